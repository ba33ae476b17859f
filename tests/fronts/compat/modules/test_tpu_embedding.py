# SPDX-License-Identifier: Apache-2.0
"""The restored `tpu_embedding` module."""

import importlib

import pytest

from tpu_estimator_embedding.compat.modules import tpu_embedding


def test_everything_listed_exists():
    assert all(hasattr(tpu_embedding, name) for name in tpu_embedding.__all__)


@pytest.mark.parametrize("name", tpu_embedding._MODULES)
def test_modules_are_reached_through_it_as_through_tensorflows(name):
    import tpu_estimator_embedding
    tpu_estimator_embedding.install()
    from tensorflow.python.tpu import tpu_embedding as restored
    assert getattr(restored, name) is importlib.import_module(tpu_embedding._MODULES[name])
    assert getattr(tpu_embedding, name) is getattr(restored, name)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = tpu_embedding.no_such_name
