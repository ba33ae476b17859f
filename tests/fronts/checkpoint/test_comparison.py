# SPDX-License-Identifier: Apache-2.0
"""What compare finds between two checkpoints."""

import ml_dtypes
import numpy as np
import pytest

from tests.fronts.checkpoint.saved import Saved, save_v1, variables
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.bundle import write_bundle
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor


def changed(saved, name, index, value):
    """Returns the variables with one number changed."""
    copies = [{key: np.array(values) for key, values in group.items()}
              for group in (saved.tables, saved.others)]
    for group in copies:
        if name in group:
            group[name][index] = value
    return Saved(*copies)


def compare(tmp_path, a, b, **options):
    return checkpoint.compare(save_v1(tmp_path / "a", a), save_v1(tmp_path / "b", b), **options)


def test_equal_checkpoints_agree(tmp_path):
    found = compare(tmp_path, variables(), variables())
    assert found.agree
    assert {(one.name, one.slot) for one in found.tensors} >= {
        ("words", "parameters"), ("tags", "accumulators"), ("dense/kernel", None)}


def test_tolerance_follows_the_size_of_a_tensor_where_none_is_given(tmp_path):
    near_zero = changed(variables(), "words", (7, 2), 3e-9)
    other = changed(variables(), "words", (7, 2), -2e-9)
    assert not compare(tmp_path, near_zero, other, rtol=1e-5).agree
    assert compare(tmp_path, near_zero, other, rtol=1e-5, atol=None).agree
    assert not compare(tmp_path, near_zero, other, atol=None).agree  # equal bits
    size = np.sqrt(np.square(variables().tables["words"]).mean())
    far = changed(variables(), "words", (7, 2), 3 * 1e-5 * size)
    assert not compare(tmp_path, near_zero, far, rtol=1e-5, atol=None).agree


def test_denormal_numbers_among_zeros_are_no_difference_where_no_tolerance_is_given(tmp_path):
    zeros = variables()
    zeros.tables["words"][:] = 0.0
    denormal = changed(zeros, "words", (7, 2), 7e-12)
    assert compare(tmp_path, zeros, denormal, rtol=1e-5, atol=None).agree
    assert not compare(tmp_path, zeros, changed(zeros, "words", (7, 2), 1e-7), rtol=1e-5,
                       atol=None).agree


@pytest.mark.parametrize("name, index, called", [
    ("words", (7, 2), ("words", "parameters", 7)),
    ("tags/Adagrad", (1, 0), ("tags", "accumulators", 1)),
    ("dense/kernel", (3, 1), ("dense/kernel", None, 3)),
    ("global_step", (), ("global_step", None, 0))])
def test_one_changed_number_is_found(name, index, called, tmp_path):
    saved = variables()
    other = changed(saved, name, index, saved.all[name][index] + 2)
    found = compare(tmp_path, saved, other)
    assert not found.agree
    [differing] = [one for one in found.tensors if one.worst_row is not None]
    assert (differing.name, differing.slot, differing.worst_row) == called
    assert differing.differing_rows == 1
    assert differing.max_difference == pytest.approx(2)


@pytest.mark.parametrize("rtol, atol, agree", [(0, 0, False), (1e-5, 0, True), (1e-7, 0, False),
                                               (0, 1e-5, True), (0, 1e-7, False)])
def test_tolerances(rtol, atol, agree, tmp_path):
    saved = changed(variables(), "words", (7, 2), 1.0)
    other = changed(saved, "words", (7, 2), 1 + 1e-6)
    found = compare(tmp_path, saved, other, rtol=rtol, atol=atol)
    assert found.agree == agree
    [words] = [one for one in found.tensors if (one.name, one.slot) == ("words", "parameters")]
    assert (words.worst_row, words.differing_rows) == (7, int(not agree))


@pytest.mark.parametrize("atol, agree", [(0, False), (0.01, True), (0.005, False)])
def test_tolerances_apply_to_bfloat16(atol, agree, tmp_path):
    for name, value in (("a", 1.0), ("b", 1.0078125)):  # neighbours in bfloat16
        scale = np.array([2.0, value], ml_dtypes.bfloat16)
        write_bundle(tmp_path / name, {"scale": ArrayTensor(scale)}, {}, lambda size: None)
    found = checkpoint.compare(tmp_path / "a", tmp_path / "b", atol=atol)
    [scale] = found.tensors
    assert (found.agree, scale.worst_row, scale.max_difference) == (agree, 1, 0.0078125)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity(value, tmp_path):
    saved = variables()
    other = changed(saved, "words", (7, 2), value)
    assert checkpoint.compare(save_v1(tmp_path / "x", other), save_v1(tmp_path / "y", other)).agree
    found = compare(tmp_path, saved, other, rtol=1.0)
    assert not found.agree
    [words] = [one for one in found.tensors if one.worst_row is not None]
    assert words.worst_row == 7
    np.testing.assert_equal(words.max_difference, value)


def test_largest_difference_wins_in_whichever_block(tmp_path):
    rows = 60_000  # of 256 bytes: two blocks
    saved = Saved({"words": np.zeros([rows, 64], np.float32)}, {"global_step": np.int64(1)})
    other = changed(changed(saved, "words", (3, 0), 1.0), "words", (rows - 2, 5), -2.0)
    [words] = [one for one in compare(tmp_path, saved, other).tensors if one.name == "words"]
    assert (words.worst_row, words.max_difference, words.differing_rows) == (rows - 2, 2.0, 2)


@pytest.mark.parametrize("format", ["tf2", "tpu-embedding-layer", "npz"])
@pytest.mark.parametrize("num_hosts, strategy", [(3, "mod"), (2, "div")])
def test_formats_and_layouts_do_not_matter(format, num_hosts, strategy, tmp_path):
    saved = variables("Adam")
    reading = checkpoint.Reading(from_hosts=num_hosts if strategy == "mod" else None)
    source = save_v1(tmp_path / "a", saved, num_hosts, strategy)
    output = tmp_path / ("b.npz" if format == "npz" else "b")
    checkpoint.convert(source, output, format, reading=reading)
    assert checkpoint.compare(source, output, reading_a=reading).agree
    assert checkpoint.compare(output, source, reading_b=reading).agree


def test_variables_of_one_side(tmp_path):
    saved = variables()
    less = Saved(saved.tables, {name: values for name, values in saved.others.items()
                                if name != "beta1_power"})
    found = compare(tmp_path, saved, less)
    assert (found.agree, found.only_in_a, found.only_in_b) == (False, ("beta1_power",), ())
    assert checkpoint.compare(tmp_path / "a", tmp_path / "b", tables_only=True).agree


@pytest.mark.parametrize("other, sentence", [
    (variables(rows=14), r"'words' .*\[13, 4\] in a, \[14, 4\] in b"),
    (variables(table="terms"), r"different tables: \['tags', 'words'\] in a"),
    (variables("Adam"), r"slots of table 'tags': \['accumulators', 'parameters'\] in a")])
def test_missing_tables_and_other_shapes_are_errors(other, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        compare(tmp_path, variables(), other)


def test_other_types_are_an_error(tmp_path):
    saved = variables()
    other = Saved(saved.tables, {**saved.others, "dense/bias": np.zeros(2, np.float64)})
    with pytest.raises(ValueError, match="'dense/bias' .* 1 in a, 2 in b"):
        compare(tmp_path, saved, other)
