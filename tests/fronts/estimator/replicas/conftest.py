# SPDX-License-Identifier: Apache-2.0
"""Both generations of control flow, alone and with a session."""

import pytest
import tensorflow as tf


@pytest.fixture(params=["v1", "v2"])
def control_flow(request):
    """Chooses the loops and branches that graphs are built with; returns which."""
    if request.param == "v1":
        tf.compat.v1.disable_control_flow_v2()
    yield request.param
    tf.compat.v1.enable_control_flow_v2()


@pytest.fixture
def session(control_flow):
    """A session of a new graph, which is the default one."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield session
