# SPDX-License-Identifier: Apache-2.0
"""Click logs on disk: complete, the same for the same seed, and resumable."""

import runpy

import numpy as np
import pytest
import tensorflow as tf

from tests import docs
from tpu_estimator_embedding.demo import click_logs
from tpu_estimator_embedding.demo.click_logs import ClickLogs, HiddenModel
from tpu_estimator_embedding.demo.features import FEATURES
from tpu_estimator_embedding.demo.model import make_input_fn


@pytest.fixture
def logs(tmp_path, monkeypatch) -> ClickLogs:
    """Logs of several small files."""
    monkeypatch.setattr(click_logs, "_RECORDS_PER_FILE", 400)
    return ClickLogs(tmp_path / "logs", examples=1000, seed=5)


def contents(logs: ClickLogs) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(logs.directory.iterdir())}


def count(paths) -> int:
    return sum(1 for _ in tf.data.TFRecordDataset([str(path) for path in paths]))


def test_write_holds_out_a_tenth(logs):
    assert logs.write()
    assert count(logs.train_files) == logs.train_examples == 900
    assert count(logs.eval_files) == logs.eval_examples == 100
    assert [path.name for path in logs.train_files] == [
        "train-00000.tfrecord", "train-00001.tfrecord", "train-00002.tfrecord"]


def test_write_again_changes_nothing(logs):
    logs.write()
    before = {path: path.stat().st_mtime_ns for path in logs.directory.iterdir()}
    assert not logs.write()
    assert before == {path: path.stat().st_mtime_ns for path in logs.directory.iterdir()}


def test_write_after_an_interruption_adds_what_is_missing(logs):
    logs.write()
    complete = contents(logs)
    kept, lost = logs.train_files[:2]
    lost.rename(lost.with_suffix(".unfinished"))
    time_of_kept = kept.stat().st_mtime_ns
    assert logs.write()
    assert contents(logs) == complete
    assert kept.stat().st_mtime_ns == time_of_kept


def test_write_with_another_seed_writes_other_records(logs, tmp_path):
    logs.write()
    other = ClickLogs(tmp_path / "other", examples=1000, seed=6)
    other.write()
    assert contents(other) != contents(logs)


def test_examples_too_few_to_hold_any_out(tmp_path):
    with pytest.raises(ValueError, match="`--examples` must be at least 10, got 9."):
        ClickLogs(tmp_path, examples=9, seed=1)


@pytest.mark.slow
def test_parsed_batches_are_what_was_drawn(logs):
    logs.write()
    [(path, size), *_] = logs._files("train", logs.train_examples)
    drawn = logs._draw(HiddenModel.from_seed(5), path, size)
    features, labels = next(iter(make_input_fn([path])({"batch_size": size})))
    np.testing.assert_array_equal(labels[:, 0], drawn.clicked)
    np.testing.assert_array_equal(features["price"][:, 0], drawn.price)
    for feature in FEATURES:
        ids, lengths, weights = drawn.id_lists[feature.name]
        np.testing.assert_array_equal(features[feature.name].values, ids)
        np.testing.assert_array_equal(features[feature.name].row_lengths(), lengths)
        if feature.weight_key:
            np.testing.assert_array_equal(features[feature.weight_key].values, weights)


def test_input_fn_continues_at_a_batch(logs):
    logs.write()
    all_labels, rest = (
        np.concatenate([labels for _, labels in make_input_fn(logs.train_files, first)(
            {"batch_size": 64})]) for first in (0, 10))
    np.testing.assert_array_equal(rest, all_labels[640:])
    assert len(rest) == 260


@pytest.mark.slow
def test_best_auc_is_that_of_the_true_probabilities(tmp_path):
    logs = ClickLogs(tmp_path, examples=20_000, seed=5)
    logs.write()
    labels = np.concatenate([labels for _, labels in make_input_fn(logs.eval_files)(
        {"batch_size": 1000})])[:, 0]
    drawn = logs._draw(HiddenModel.from_seed(5), logs.eval_files[0], logs.eval_examples)
    clicked, others = drawn.probability[labels == 1], drawn.probability[labels == 0]
    assert logs.best_auc() == pytest.approx((clicked[:, np.newaxis] > others).mean())
    assert logs.best_auc() > 0.85


def test_program_of_the_input_page_reads_the_click_logs_of_the_demo(tmp_path, monkeypatch, capsys):
    [program] = docs.code_blocks(docs.page("input"))
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "tpu-estimator-embedding-demo" / "click_logs"
    ClickLogs(directory, examples=100, seed=5).write()
    (tmp_path / "program.py").write_text(program)
    names = runpy.run_path("program.py")
    assert names["features"]["interests"].nrows() == 3 and "RaggedTensor" in capsys.readouterr().out
