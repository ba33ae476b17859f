# SPDX-License-Identifier: Apache-2.0
"""`tpu_estimator_embedding.checkpoint`: its names, and that they load without TensorFlow."""

import pytest

from tests.subprocesses import run_python
from tpu_estimator_embedding import checkpoint


def test_every_public_name_loads():
    assert {"inspect", "convert", "reshard", "compare", "extract"} <= set(checkpoint.__all__)
    for name in checkpoint.__all__:
        assert getattr(checkpoint, name).__name__ == name


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'convertt'"):
        _ = checkpoint.convertt


def test_nothing_loads_tensorflow():
    run_python("""
        import sys
        from tpu_estimator_embedding import checkpoint
        for name in checkpoint.__all__:
            getattr(checkpoint, name)
        assert not {"tensorflow", "keras", "pyarrow", "matplotlib"} & set(sys.modules)
        """)
