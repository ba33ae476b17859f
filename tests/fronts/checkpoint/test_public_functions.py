# SPDX-License-Identifier: Apache-2.0
"""`tpu_estimator_embedding.checkpoint`: its names, that they load without TensorFlow, types."""

import numpy as np
import pytest

from tests.fronts.checkpoint.saved import save_v1, variables
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


@pytest.mark.parametrize("options, sentence", [
    ({"resize": 3}, "`resize` must be a mapping of tables to numbers of rows, or None, got 3"),
    ({"names": [1]}, r"`names` must be a mapping of names, or None, got \[1\]"),
    ({"names": {"words": 1}}, "`names` must be a mapping of texts to texts, got {'words': 1}"),
    ({"reading": {}}, "`reading` must be a checkpoint.Reading or None, got {}"),
    ({"resize": {"words": checkpoint.Resize(20, lambda shape: np.zeros((2, 2)))}},
     r"`initializer` must be a function that returns \(7, 4\) .*, got \(2, 2\)")])
def test_convert_refuses_arguments_of_other_types_and_leaves_nothing(options, sentence, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises((TypeError, ValueError), match=sentence):
        checkpoint.convert(source, tmp_path / "new/out", **options)
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("rows", [(0,), "0:3", 3, (0, 1.5)])
def test_extract_refuses_rows_that_are_no_range(rows, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match=r"`rows` must be \(first id, last id \+ 1\), or None"):
        checkpoint.extract(source, "words", tmp_path / "out.tsv", rows=rows)


@pytest.mark.parametrize("tolerance", ["rtol", "atol"])
def test_compare_refuses_tolerances_that_are_no_numbers(tolerance):
    with pytest.raises(TypeError, match=f"`{tolerance}` must be a number, got 'x'"):
        checkpoint.compare("a", "b", **{tolerance: "x"})


@pytest.mark.parametrize("path", [None, 3, b"model"])
def test_inspect_refuses_what_is_no_path(path):
    with pytest.raises(TypeError, match=f"`checkpoint` must be a path, got {path}"):
        checkpoint.inspect(path)
