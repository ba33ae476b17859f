# SPDX-License-Identifier: Apache-2.0
"""The output of inspect, against NumPy."""

import contextlib
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests.fronts.checkpoint.saved import save_v1, variables
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle_optimizers import SUFFIXES, initial_slots, update_row
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.bundle import read_bundle
from tpu_estimator_embedding.checkpoint.inspection import RowStatistics
from tpu_estimator_embedding.checkpoint.npz_format import read_npz
from tpu_estimator_embedding.checkpoint.report import describe_report

INITIAL = {"Adagrad": 0.1, "ProximalAdagrad": 0.1, "Ftrl": 0.1, "ProximalYogi": 0.1}


def trained(optimizer, rows, untrained):
    """Slots as after training, in which some rows have what they started with."""
    saved = variables(optimizer, rows)
    tables = {}
    for name, values in saved.tables.items():
        suffix = name.removeprefix("words/").removeprefix("tags/")
        if suffix in ("words", "tags"):
            tables[name] = values
            continue
        tables[name] = INITIAL.get(suffix, 0.0) + np.abs(values) + np.float32(0.5)
        tables[name][untrained if name.startswith("words") else []] = INITIAL.get(suffix, 0.0)
    return dataclasses.replace(saved, tables=tables)


@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (3, "mod")])
def test_report_of_a_checkpoint(num_hosts, strategy, tmp_path):
    saved = variables("Adam")
    source = save_v1(tmp_path / "v1", saved, num_hosts, strategy)
    report = checkpoint.inspect(source, reading=checkpoint.Reading(
        from_hosts=num_hosts if strategy == "mod" else None))
    assert (report.form, report.global_step) == ("v1", 1234)
    assert report.size == sum(np.asarray(values).nbytes for values in saved.all.values())
    assert report.variables == {name: np.shape(values) for name, values in saved.others.items()}
    tags, words = report.tables
    assert (words.name, words.rows, words.dimension, words.optimizer, words.slots) == (
        "words", 13, 4, "Adam", ("momenta", "velocities"))
    assert (words.num_hosts, words.partition_strategy) == (num_hosts, strategy)
    assert words.size == 3 * 13 * 4 * 4
    assert tags.rows == 2
    norms = np.linalg.norm(saved.tables["words"], axis=1)
    found = words.statistics
    np.testing.assert_allclose((found.min_norm, found.mean_norm, found.max_norm),
                               (norms.min(), norms.mean(), norms.max()), rtol=1e-6)
    assert found.histogram.sum() == 13


@pytest.mark.parametrize("optimizer", [name for name in SUFFIXES if SUFFIXES[name]])
@pytest.mark.parametrize("untrained", [[], [0], [5, 11, 12]], ids=str)
def test_optimizer_and_rows_never_trained(optimizer, untrained, tmp_path):
    source = save_v1(tmp_path / "v1", trained(optimizer, 13, untrained))
    _, words = checkpoint.inspect(source).tables
    assert words.optimizer == optimizer
    expected = len(untrained)
    if not untrained and INITIAL.keys() & set(SUFFIXES[optimizer]):
        expected = 0  # the smallest value is that of one number, not of a row
    assert words.statistics.never_trained == (
        None if optimizer == "FrequencyEstimator" else expected)


@pytest.mark.parametrize("untrained", [0, 2])
@pytest.mark.parametrize("case", CASES)
def test_rows_that_no_update_has_touched_are_counted(case, untrained):
    kind, hyperparameters = CASES[case].kind, CASES[case].hyperparameters
    draw = np.random.default_rng(3)
    rows = draw.normal(0.0, 0.2, [9, 3])
    slots = {slot: np.full_like(rows, value)
             for slot, value in initial_slots(kind, hyperparameters).items()}
    touched = slice(0, 9 - untrained)
    for step in range(4):
        rows[touched], after = update_row(
            kind, hyperparameters, draw.normal(0.0, 0.2, rows[touched].shape), rows[touched],
            {slot: values[touched] for slot, values in slots.items()}, 0.1, step)
        for slot, values in after.items():
            slots[slot][touched] = values
    statistics = RowStatistics(slots)
    for block in (slice(0, 4), slice(4, 9)):
        statistics.add(rows[block], {slot: values[block] for slot, values in slots.items()})
    assert statistics.never_trained == (
        None if kind in ("SGD", "FrequencyEstimator") else untrained)


def test_sgd_does_not_tell_which_rows_were_trained(tmp_path):
    _, words = checkpoint.inspect(save_v1(tmp_path / "v1", variables("SGD"))).tables
    assert (words.optimizer, words.statistics.never_trained) == (None, None)


def test_rows_that_are_not_finite_are_counted(tmp_path):
    saved = variables("SGD")
    saved.tables["words"][3, 0] = np.nan
    saved.tables["words"][4, 1] = np.inf
    _, words = checkpoint.inspect(save_v1(tmp_path / "v1", saved)).tables
    assert words.statistics.not_finite == 2
    finite = np.delete(saved.tables["words"], [3, 4], 0)
    assert words.statistics.mean_norm == pytest.approx(np.linalg.norm(finite, axis=1).mean())


def test_norms_without_finite_rows_are_null_in_json(tmp_path):
    saved = variables("SGD")
    saved.tables["words"][:] = np.nan
    report = checkpoint.inspect(save_v1(tmp_path / "v1", saved))
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["tables"][-1]["statistics"] == {
        "min_norm": None, "mean_norm": None, "max_norm": None, "not_finite": 13,
        "never_trained": None}


def test_tables_among_dense_variables_are_recognized_by_names(tmp_path):
    saved = variables(table="scope/words_embedding/embedding_weights")
    source = save_v1(tmp_path / "v1", saved)
    assert [table.name for table in checkpoint.inspect(source).tables] == [
        "scope/words_embedding/embedding_weights", "tags"]
    chosen = checkpoint.inspect(source, reading=checkpoint.Reading(tables=("dense/kernel",)))
    assert [(table.name, table.optimizer) for table in chosen.tables] == [
        ("dense/kernel", "Adagrad")]
    with pytest.raises(ValueError, match="`tables` has 'dense/bias', .* rank 2"):
        checkpoint.inspect(source, reading=checkpoint.Reading(tables=("dense/bias",)))


def test_from_hosts_finds_tables_by_their_parts(tmp_path):
    """A name with a scope and a slot that dense variables have too: only the parts tell."""
    saved = variables(table="scope/words")
    source = save_v1(tmp_path / "v1", saved, 3, "mod")
    report = checkpoint.inspect(source, reading=checkpoint.Reading(from_hosts=3))
    assert [table.name for table in report.tables] == ["scope/words", "tags"]


def test_tables_that_leave_out_one_in_parts_are_refused(tmp_path):
    """Its rows would stay in the order of the hosts, as those of a variable."""
    source = save_v1(tmp_path / "v1", variables(), 3, "mod")
    with pytest.raises(ValueError, match=r"^`tables` must have all .* without \['words'\]"):
        checkpoint.inspect(source, reading=checkpoint.Reading(from_hosts=3, tables=("tags",)))
    both = checkpoint.inspect(source, reading=checkpoint.Reading(
        from_hosts=3, tables=("tags", "words")))
    assert [table.name for table in both.tables] == ["tags", "words"]


@pytest.mark.parametrize("from_hosts", [2, 4])
def test_other_number_of_hosts_than_the_parts_is_refused(from_hosts, tmp_path):
    source = save_v1(tmp_path / "v1", variables(), 3, "mod")
    with pytest.raises(ValueError, match=f"`from_hosts` is {from_hosts}, but"):
        checkpoint.inspect(source, reading=checkpoint.Reading(from_hosts=from_hosts))


def test_from_hosts_is_refused_if_the_checkpoint_records_it(tmp_path):
    checkpoint.reshard(save_v1(tmp_path / "v1", variables()), tmp_path / "mod", 3, "mod")
    with pytest.raises(ValueError, match="`from_hosts` does not apply .*got 3"):
        checkpoint.inspect(tmp_path / "mod", reading=checkpoint.Reading(from_hosts=3))


def test_quick_reads_no_values(tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    entry = read_bundle(pathlib.Path(source))["words"].pieces[0].entry
    with (tmp_path / "v1.data-00000-of-00001").open("r+b") as file:
        file.seek(entry.offset)
        file.write(bytes(4))
    report = checkpoint.inspect(source, values=False)
    assert [table.statistics for table in report.tables] == [None, None]
    with pytest.raises(ValueError, match="must not be corrupt"):
        checkpoint.inspect(source)


def test_report_as_text_and_as_json(tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    report = checkpoint.inspect(source)
    text = describe_report(report, with_variables=True)
    assert f"{source}: v1, step 1234, " in text
    assert [line.split()[:6] for line in text.splitlines() if line.startswith("words")] == [
        ["words", "13", "4", "div", "×", "1"]]
    assert "dense/kernel" in text
    assert "dense/kernel" not in describe_report(report, with_variables=False)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["tables"][1]["slots"] == ["accumulators"]
    assert plain["variables"]["dense/kernel"] == [4, 2]


@pytest.mark.all_cases
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_damaged_byte_of_an_archive_is_one_error(save, seed, tmp_path):
    rng = np.random.default_rng(seed)
    path = tmp_path / "arrays.npz"
    arrays = {"words": rng.normal(size=(90, 8)).astype(np.float32), "step": np.arange(3)}
    save(path, **arrays)
    whole = path.read_bytes()
    positions = [*range(200), *rng.integers(200, len(whole) - 200, 50),
                 *range(len(whole) - 200, len(whole))]
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            read = {name: b"".join(map(bytes, tensor.chunks()))
                    for name, tensor in read_npz(path)[0].items()}
            assert read == {name: array.tobytes() for name, array in arrays.items()}
