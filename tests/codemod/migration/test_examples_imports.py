# SPDX-License-Identifier: Apache-2.0
"""The legacy programs, rewritten for explicit imports: they run by `python` and end equal."""

import ast
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from examples import synthetic_data
from tests.fronts.examples.results import EXAMPLES, variables
from tests.subprocesses import start
from tpu_estimator_embedding.migration import programs
from tpu_estimator_embedding.migration.rewrite import rewrite, rewrite_files

ROOT = EXAMPLES.parent

# Program -> what writes its data, options of `run`, and arguments that end it soon.
PROGRAMS = {
    "click_through_rate": (
        lambda directory: synthetic_data.write_clicks(directory, 4000, 512), [],
        ["--data_dir=.", "--tpu=grpc://127.0.0.1:1", "--train_steps=20", "--mode=train",
         "--train_batch_size=64", "--num_shards=2", "--model_dir={model}"]),
    "continuous_evaluation": (
        lambda directory: synthetic_data.write_visits(directory, 4000, 2048), [],
        ["--data_dir=.", "--max_steps=20", "--eval_every=20", "--batch_size=64",
         "--job_dir={model}"]),
    "contrib_ranking": (
        lambda directory: synthetic_data.write_purchases(directory, 4000, 1000), ["--tf1"],
        ["--clicks=clicks.csv", "--purchases=purchases.csv", "--candidates=candidates.csv",
         "--click_steps=20", "--purchase_steps=5", "--base_dir={model}"]),
    "neural_collaborative_filtering": (
        lambda directory: synthetic_data.write_interactions(directory), [],
        ["--data_dir=.", "--rounds=1", "--model_dir={model}"]),
    "rating_ensemble": (
        lambda directory: synthetic_data.write_ratings(directory, 6000), [],
        ["--ratings=ratings.npz", "--train_steps=20", "--model_dir={model}",
         "--export_dir={model}_export"]),
    "rating_tables": (
        lambda directory: synthetic_data.write_ratings(directory, 6000), [],
        ["--ratings=ratings.npz", "--num_shards=2", "--train_steps=20", "--model_dir={model}"]),
    "sentence_classifier": (
        lambda directory: synthetic_data.write_sentences(directory, 2000, 400), [],
        ["--train_file=train.tsv", "--dev_file=dev.tsv", "--vocab_file=vocab.txt", "--use_tpu",
         "--num_train_steps=20", "--nodo_eval", "--nodo_export", "--output_dir={model}"]),
    "two_tower": (
        lambda directory: synthetic_data.write_sessions(directory, 6000), [],
        ["--sessions=sessions.npz", "--output={model}.npz", "--steps=20", "--model_dir={model}"]),
    "video_ranking_task": (
        lambda directory: synthetic_data.write_feed(directory, 8000), [],
        ["--data_dir=.", "--steps=20", "--global_batch_size=128", "--model_dir={model}"]),
}

# TPU set-up code and shards, TensorFlow 1.x, several estimators with exports, `use_tpu=False`.
# Each program takes two processes, and the pages of the guide are compared in the same way.
UNLIKE_EACH_OTHER = {"click_through_rate", "contrib_ranking", "rating_ensemble", "two_tower"}

# Two runs of a program are equal where files are read in order and Keras has a seed.
REPEATABLE = [
    (b"sloppy=is_training", b"sloppy=False"),
    (b"    early_stopping = ", b"    tf.keras.utils.set_random_seed(1)\n    early_stopping = ")]

LEGACY = ("tf.estimator", "tf.tpu", "tf.compat.v1.estimator", "tf.compat.v1.tpu", "tf.contrib",
          "tensorflow.contrib", "tensorflow.python.tpu", "tensorflow.estimator",
          "tf.distribute.cluster_resolver")


def source_of(program):
    return (EXAMPLES / f"{program}.py").read_bytes()


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_no_use_of_the_legacy_api_is_left(program):
    result = rewrite(source_of(program), program)
    assert not [finding for finding in result.findings if finding.code.startswith("TEE2")]
    tree = ast.parse(result.data)
    used = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used += [ast.unparse(node).split()[1] for node in ast.walk(tree)
             if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [name for name in used if name.startswith(LEGACY)]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_rewriting_twice_changes_nothing(program):
    once = rewrite(source_of(program), program).data
    again = rewrite(once, program)
    assert again.data == once
    assert not again.findings


@pytest.mark.parametrize("program", [
    pytest.param(program, marks=[pytest.mark.soak] * (program not in UNLIKE_EACH_OTHER))
    for program in sorted(PROGRAMS)])
def test_rewritten_program_runs_without_install_and_ends_with_equal_bits(program, tmp_path):
    write_data, options, arguments = PROGRAMS[program]
    write_data(tmp_path)
    (tmp_path / "old").mkdir()
    source = source_of(program)
    for old, new in REPEATABLE:
        source = source.replace(old, new)
    (tmp_path / f"old/{program}.py").write_bytes(source)
    programs.write_to(tmp_path / "new", rewrite_files(programs.find([tmp_path / "old"])))
    for command in (["-m", "tpu_estimator_embedding", "run", *options, f"old/{program}.py"],
                    [f"new/old/{program}.py"]):
        model = "before" if "run" in command else "after"
        done = start([sys.executable, *command, *[text.format(model=model) for text in arguments]],
                     cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
    before, after = (checkpoints(tmp_path / model) for model in ("before", "after"))
    assert before.keys() == after.keys() and before
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name


def checkpoints(directory: pathlib.Path):
    """Returns (directory, variable) -> value of the last checkpoint in each directory."""
    return {(state.parent.relative_to(directory), name): value
            for state in directory.rglob("checkpoint")
            for name, value in variables(tf.train.latest_checkpoint(str(state.parent))).items()
            if not name.startswith("tpu_estimator_embedding/")}  # a record, no number
