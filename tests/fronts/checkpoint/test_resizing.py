# SPDX-License-Identifier: Apache-2.0
"""Vocabularies that grow and shrink, with their slots, in every format."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fronts.checkpoint.saved import restore_v1, save_v1, values_of, variables
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.resizing import ResizedRows, row_initializer
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor

END = "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.mark.parametrize("before", [(1, "div"), (3, "mod")], ids=str)
def test_grown_table_keeps_its_rows_and_its_layout(before, tmp_path):
    saved = variables("Adagrad")
    saved.tables["words/Adagrad"][:] = np.abs(saved.tables["words/Adagrad"]) + 0.1
    saved.tables["words/Adagrad"][4] = 0.1
    reading = checkpoint.Reading(from_hosts=before[0] if before[1] == "mod" else None)
    checkpoint.convert(save_v1(tmp_path / "v1", saved, *before), tmp_path / "grown",
                       reading=reading, resize={"words": 100})
    tables = {**saved.tables, "words": np.zeros([100, 4], np.float32),
              "words/Adagrad": np.zeros([100, 4], np.float32)}
    found = restore_v1(tmp_path / "grown", type(saved)(tables, saved.others), *before)
    np.testing.assert_array_equal(found["words"][:13], saved.tables["words"])
    np.testing.assert_array_equal(found["words/Adagrad"][:13], saved.tables["words/Adagrad"])
    np.testing.assert_array_equal(found["words/Adagrad"][13:], np.float32(0.1))
    new = found["words"][13:]
    assert np.abs(new).max() <= 2 / np.sqrt(4)
    assert 0.3 < new.std() < 0.55  # of a truncated normal: 0.88 / √4
    assert len(np.unique(new)) == new.size
    np.testing.assert_array_equal(found["tags"], saved.tables["tags"])


YOGI = {"words/ProximalYogi": 0.25, "words/ProximalYogi_1": 0.0}  # v and m of untrained rows


def test_slots_of_added_rows_are_those_of_untrained_rows(tmp_path):
    """v of ProximalYogi may shrink below its initial value."""
    saved = variables("ProximalYogi")
    for name, value in YOGI.items():
        saved.tables[name][:] = np.abs(saved.tables[name]) * 0.01 + 0.001
        saved.tables[name][[3, 8]] = value
    source = save_v1(tmp_path / "v1", saved)
    checkpoint.convert(source, tmp_path / "grown", resize={"words": 15})
    found = values_of(tmp_path / "grown")
    for name, value in YOGI.items():
        np.testing.assert_array_equal(found[name][:13], saved.tables[name])
        np.testing.assert_array_equal(found[name][13:], np.float32(value))


def test_initial_value_that_no_row_shows_is_asked_for(tmp_path):
    source = save_v1(tmp_path / "v1", variables("ProximalYogi"))
    with pytest.raises(ValueError, match="initial value of slot 'v' of table 'words' is not known: "
                       "all rows were trained. .* --slot-value words/v=VALUE"):
        checkpoint.convert(source, tmp_path / "out", resize={"words": 15})
    assert not list(tmp_path.glob("*out*"))
    checkpoint.convert(source, tmp_path / "fewer", resize={"words": 12})
    checkpoint.convert(source, tmp_path / "out", resize={
        "words": checkpoint.Resize(15, slot_values={"v": 0.5})})
    assert values_of(tmp_path / "out")["words/ProximalYogi"][13:].tolist() == [[0.5] * 4] * 2
    checkpoint.convert(source, tmp_path / "bare", resize={"words": 15}, without_slots=True)


@pytest.mark.parametrize("format", ["v1", "tf2", "tpu-embedding-layer", "npz"])
@pytest.mark.parametrize("rows", [1, 12, 13, 14])
def test_format_stays_as_it_is(format, rows, tmp_path):
    saved = variables("Adam")
    paths = [tmp_path / (f"{name}.npz" if format == "npz" else name) for name in ("a", "b")]
    checkpoint.convert(save_v1(tmp_path / "v1", saved), paths[0], format)
    done = checkpoint.convert(*paths, resize={"words": checkpoint.Resize(rows, "constant:7")})
    assert done.contents.form == format
    assert (done.left_out, done.kept) == ((), ())
    checkpoint.convert(paths[1], tmp_path / "back", "v1")
    found = values_of(tmp_path / "back")
    expected = np.full([14, 4], 7, np.float32)
    expected[:13] = saved.tables["words"]
    np.testing.assert_array_equal(found["words"], expected[:rows])
    moments = np.zeros([14, 4], np.float32)
    moments[:13] = saved.tables["words/Adam/v"]
    np.testing.assert_array_equal(found["words/Adam/v"], moments[:rows])
    np.testing.assert_array_equal(found["dense/kernel"], saved.others["dense/kernel"])


def test_resized_while_converted(tmp_path):
    saved = variables()
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "tf2", "tf2", resize={
        "words": checkpoint.Resize(15, np.ones, {"accumulators": 0.25})})
    found = values_of(tmp_path / "tf2")
    assert found[f"embedding/words{END}"][13:].tolist() == [[1.0] * 4] * 2
    assert found[f"embedding/words.Saccumulators{END}"][13:].tolist() == [[0.25] * 4] * 2


@pytest.mark.parametrize("resize, sentence", [
    ({"nothing": 5}, "`resize` has .*'nothing'.*'tags', 'words'"),
    ({"words": 0}, "`rows` must be an int of at least 1, got 0"),
    ({"words": checkpoint.Resize(20, "constant")}, "`initializer` must be truncated_normal"),
    ({"words": checkpoint.Resize(20, "normal:a")}, "`initializer` must be truncated_normal"),
    ({"words": checkpoint.Resize(20, slot_values={"momenta": 1.0})},
     "`slot_values` has .*'momenta'.* of table 'words'.*'accumulators'")])
def test_wrong_arguments(resize, sentence, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(source, tmp_path / "out", resize=resize)
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("rows", [10**13, 2**59, 2**62, 2**63, 2**70])
def test_sizes_that_no_disk_has_are_refused(rows, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(OSError, match=r"`output` must be on a disk with \d{14,} bytes free"):
        checkpoint.convert(source, tmp_path / "new/out", resize={"words": rows})
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("text, low, high, std", [
    ("zeros", 0, 0, 0), ("constant:3", 3, 3, 0), ("uniform:1,3", 1, 3, 2 / np.sqrt(12)),
    ("normal", -9, 9, 0.5), ("normal:2", -99, 99, 2), ("truncated_normal", -1, 1, 0.44),
    ("truncated_normal:10", -20, 20, 8.8)])
def test_initializers(text, low, high, std):
    values = row_initializer(text, 4)((10_000, 4))
    assert values.shape == (10_000, 4)
    assert low <= values.min() <= values.max() <= high
    assert values.std() == pytest.approx(std, rel=0.02)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_of_accumulators_that_no_optimizer_can_have_are_refused(value):
    with pytest.raises(ValueError, match=f"'accumulators'.* finite and at least 0, got {value}"):
        checkpoint.Resize(20, slot_values={"accumulators": value})
    assert checkpoint.Resize(20, slot_values={"momenta": -1.0}).slot_values == {"momenta": -1.0}


def test_slot_values_that_are_no_dictionary_are_refused():
    with pytest.raises(TypeError, match="^`slot_values` must be a dictionary from slots to values, "
                       "got 5"):
        checkpoint.Resize(9, slot_values=5)


@pytest.mark.parametrize("text", ["normal:nan", "normal:-1", "constant:inf", "uniform:2,1",
                                  "truncated_normal:-1"])
def test_initializers_of_impossible_numbers_are_refused(text):
    with pytest.raises(ValueError, match=f"`initializer` must .* got '{text}'"):
        row_initializer(text, 4)


def test_slot_values_are_refused_where_slots_are_left_out(tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match="`slot_values` has no effect .* got .*'words'"):
        checkpoint.convert(source, tmp_path / "out", without_slots=True, resize={
            "words": checkpoint.Resize(20, slot_values={"accumulators": 1.0})})
    assert not list(tmp_path.glob("*out*"))


def test_table_of_a_column_is_found_by_the_name_of_the_column(tmp_path):
    table = "input_layer/words_embedding/embedding_weights"
    saved = variables(table=table)
    source = save_v1(tmp_path / "v1", saved)
    checkpoint.convert(source, tmp_path / "grown", resize={"words": 20})
    grown = values_of(tmp_path / "grown")[table]
    assert grown.shape == (20, 4)
    np.testing.assert_array_equal(grown[:13], saved.tables[table])
    with pytest.raises(ValueError, match="`resize` must be of different tables, got 'input_layer"):
        checkpoint.convert(source, tmp_path / "twice", resize={"words": 20, table: 30})
    assert not list(tmp_path.glob("twice*"))


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 11), st.integers(1, 12))
def test_any_piece_has_saved_rows_first_and_new_ones_after_them(saved, rows, start, stop):
    start, stop = min(start, rows - 1), max(min(stop, rows), min(start, rows - 1) + 1)
    values = np.arange(saved * 2, dtype=np.float32).reshape(saved, 2)
    resized = ResizedRows(ArrayTensor(values), rows,
                          lambda shape: np.full(shape, -1.0, np.float32))
    whole = np.concatenate([values, np.full([12, 2], -1.0, np.float32)])[:rows]
    np.testing.assert_array_equal(resized.read_rows(start, stop), whole[start:stop])
