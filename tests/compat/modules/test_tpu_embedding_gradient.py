# SPDX-License-Identifier: Apache-2.0
"""The restored `tpu_embedding_gradient` module."""

import pytest

from tpu_estimator_embedding.compat.modules import tpu_embedding_gradient
from tpu_estimator_embedding.low_level import tpu_embedding_gradient as v1_gradient


@pytest.mark.parametrize("name", tpu_embedding_gradient.__all__)
def test_functions_are_this_packages(name):
    assert getattr(tpu_embedding_gradient, name) is getattr(v1_gradient, name)
