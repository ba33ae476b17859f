# SPDX-License-Identifier: Apache-2.0
"""A session for what tests build of tf.contrib."""

import pytest
import tensorflow as tf


@pytest.fixture
def session():
    """A session of a new graph, which is the default one and seeded."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        yield session
