# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose tables have different shapes: the error, and the fix that it names."""

import os
import re
import shlex
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.checkpoint.saved import save_v1, variables
from tests.fronts.estimator import counting
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint, cli, tf_estimator
from tpu_estimator_embedding.checkpoint import saver_patches
from tpu_estimator_embedding.checkpoint.bundle import read_bundle
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec


def new_estimator(model_dir, rows, dim=2, strategy="div", optimizer=None, **options):
    """One table."""
    def model_fn(features, labels, mode, params):
        if mode == "infer":
            predictions = {"word": features["word"]}
            return counting.TPUEstimatorSpec(mode, predictions=predictions, export_outputs={
                "serving_default": tf_estimator.export.PredictOutput(predictions)})
        loss = tf.reduce_sum(features["word"])
        if mode == "eval":
            return counting.TPUEstimatorSpec(mode, loss=loss)
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            loss, tf.compat.v1.train.get_global_step())
        return counting.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    spec = EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(rows, dim, combiner=None)},
        feature_to_config_dict={"word": FeatureConfig("words")},
        optimization_parameters=optimizer or AdagradParameters(0.5),
        partition_strategy=strategy)
    return counting.new_estimator(model_dir, model_fn, spec=spec, batch_size=2, **options)


def input_fn(params):
    return tf.data.Dataset.from_tensors(({"word": [1, 1]}, [0.0, 0.0])).repeat()


def train(model_dir, rows, dim=2, steps=1, strategy="div", optimizer=None):
    """Trains one table on the id 1."""
    estimator = new_estimator(model_dir, rows, dim, strategy, optimizer)
    estimator.train(input_fn, steps=steps)
    return estimator


CALLS = {"train": lambda estimator: estimator.train(input_fn, steps=1),
         "evaluate": lambda estimator: estimator.evaluate(input_fn, steps=1),
         "predict": lambda estimator: next(estimator.predict(input_fn))}


@pytest.mark.parametrize("rows", [9, 3])
def test_other_vocabulary_names_the_command_that_helps(rows, tmp_path):
    before = train(tmp_path / "old", 5)
    saved = {name: before.get_variable_value(name) for name in ("words", "words/Adagrad")}
    with pytest.raises(ValueError, match=r"Shape of 'words\S*' in \S+/old/model\.ckpt-1 must be "
                       rf"\[{rows},2\], as in this program, got \[5, 2\]\.") as error:
        train(tmp_path / "old", rows)
    [command] = re.findall("`(tpu-estimator-embedding checkpoint convert .*?)`", str(error.value))
    command = command.replace("NEW_MODEL_DIR", str(tmp_path / "new"))
    assert cli.main(shlex.split(command)[1:]) == 0
    after = train(tmp_path / "new", rows)
    found = {name: after.get_variable_value(name) for name in saved}
    assert found["words"].shape == (rows, 2)
    untouched = [row for row in range(min(rows, 5)) if row != 1]
    for name, values in saved.items():
        np.testing.assert_array_equal(found[name][untouched], values[untouched])
    assert after.get_variable_value("global_step") == 2


def receiver():
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    return tf_estimator.export.ServingInputReceiver({"word": ids}, {"word": ids})


@pytest.mark.all_cases
@pytest.mark.parametrize("call", [
    lambda estimator, export: estimator.evaluate(input_fn, steps=1),
    lambda estimator, export: next(estimator.predict(input_fn)),
    lambda estimator, export: next(estimator.predict(
        input_fn, checkpoint_path=estimator.latest_checkpoint())),
    lambda estimator, export: estimator.export_saved_model(export, receiver)])
def test_every_call_names_a_table_of_another_shape(call, tmp_path):
    train(tmp_path / "model", 5)
    with pytest.raises(ValueError, match=r"Shape of 'words' in \S+/model/model\.ckpt-1 must be "
                       r"\[9,2\], as in this program, got \[5, 2\]\. To grow or shrink"):
        call(new_estimator(tmp_path / "model", 9), str(tmp_path / "export"))


def test_slots_that_training_goes_on_without_are_named_once(tmp_path, logged):
    train(tmp_path, 5, steps=3)
    for _ in range(2):  # after the first time, checkpoints have no slots
        train(tmp_path, 5, optimizer=StochasticGradientDescentParameters(0.5))
    [line] = logged("continues without")
    assert f"training continues without ['words/Adagrad'] of {tmp_path}/model.ckpt-3," in line


def test_other_dimension_has_no_command(tmp_path):
    train(tmp_path, 5)
    with pytest.raises(ValueError, match=r"must be \[5,3\], as in this program, got \[5, 2\]\. Its "
                       "dimension cannot change: train in a new model_dir"):
        train(tmp_path, 5, dim=3)


def test_truncated_data_file_is_named(tmp_path):
    checkpoint.reshard(save_v1(tmp_path / "v1", variables()), tmp_path / "cut", 3, "mod")
    os.truncate(next(tmp_path.glob("cut.data*")), 1)
    with pytest.raises(tf.errors.DataLossError, match=f"{tmp_path}/cut is truncated.* earlier"):
        saver_patches.saved_layouts(str(tmp_path / "cut"))


@pytest.mark.parametrize("is_directory", [True, False])
def test_warm_start_from_another_vocabulary_names_the_source(is_directory, tmp_path):
    before = train(tmp_path / "old", 5)
    source = str(tmp_path / "old") if is_directory else before.latest_checkpoint()
    with pytest.raises(ValueError, match=r"Shape of 'words\S*' in \S+/old/model\.ckpt-1 must be "
                       r"\[9,2\], as in this program, got \[5, 2\]\.") as error:
        new_estimator(tmp_path / "new", 9, warm_start_from=source).train(input_fn, steps=1)
    [command] = re.findall("for warm_start_from: `(tpu-estimator-embedding .*?)`", str(error.value))
    command = command.replace("NEW_DIR", str(tmp_path / "resized"))
    assert cli.main(shlex.split(command)[1:]) == 0
    after = new_estimator(tmp_path / "new", 9, warm_start_from=str(tmp_path / "resized"))
    after.train(input_fn, steps=1)
    np.testing.assert_array_equal(after.get_variable_value("words")[2:5],
                                  before.get_variable_value("words")[2:5])
    assert after.get_variable_value("global_step") == 1
    with pytest.raises(ValueError, match=r"old/model\.ckpt-1 .* Its dimension cannot change: "
                       "leave it out of `vars_to_warm_start`"):
        new_estimator(tmp_path / "other", 5, 3, warm_start_from=source).train(input_fn, steps=1)


@pytest.mark.parametrize("damage, sentence", [
    (lambda index, data: os.truncate(index, 20), "file is too short to be an sstable: {0} is "
     "damaged, or lacks a file"),
    (lambda index, data: index.write_bytes(bytes(200)), r"not an sstable \(bad magic number\): "
     "{0} is damaged, or lacks a file"),
    (lambda index, data: data.unlink(), r"{0}\.data\S+; No such file or directory: {0} is damaged, "
     "or lacks a file"),
    (lambda index, data: index.unlink(), "The passed save_path is not a valid checkpoint: {0}: its "
     "index is missing")])
def test_damaged_checkpoint_names_the_fix(damage, sentence, tmp_path):
    estimator = train(tmp_path, 5)
    damage(tmp_path / "model.ckpt-1.index", max(tmp_path.glob("*ckpt-1.data*")))
    calls = CALLS if (tmp_path / "model.ckpt-1.index").exists() else ["train"]
    for call in calls:
        with pytest.raises((tf.errors.OpError, ValueError), match="^" + sentence.format(
                rf"{tmp_path}/model\.ckpt-1") + r"\. Restore its files, or write the name of an "
                "earlier checkpoint into the file `checkpoint` in its directory"):
            CALLS[call](estimator)


def changed_byte_in(name, prefix):
    """Changes a value of a variable; returns what every error says."""
    [piece] = read_bundle(prefix)[name].pieces
    content = bytearray(piece.path.read_bytes())
    content[piece.entry.offset] ^= 16
    piece.path.write_bytes(content)
    return (rf"^TensorBundle at {prefix} shard \d \(\d+ bytes\): Checksum does not match: stored "
            r"\d+ vs. calculated on the restored bytes \d+: \S+ is damaged, or lacks a file\. "
            "Restore its files, or write the name of an earlier checkpoint into the file "
            r"`checkpoint` in its directory\.$")


@pytest.mark.parametrize("name", ["words", "global_step"])
def test_changed_byte_names_the_checkpoint_and_the_fix(name, tmp_path):
    estimator = train(tmp_path, 5)
    message = changed_byte_in(name, tmp_path / "model.ckpt-1")
    for call in CALLS.values():
        with pytest.raises(tf.errors.DataLossError, match=message):
            call(estimator)


def test_changed_byte_is_named_by_a_warm_start_and_where_a_value_is_read(tmp_path):
    estimator = train(tmp_path / "old", 5)
    message = changed_byte_in("words", tmp_path / "old/model.ckpt-1")
    new = new_estimator(tmp_path / "new", 5, warm_start_from=str(tmp_path / "old/model.ckpt-1"))
    for call in (lambda: estimator.get_variable_value("words"),
                 lambda: new.train(input_fn, steps=1)):
        with pytest.raises(tf.errors.DataLossError, match=message):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("content, what", [(None, "missing"), ("junk", "damaged"),
                                           ('model_checkpoint_path: "mod', "damaged")])
@pytest.mark.parametrize("call", CALLS)
def test_checkpoints_that_no_state_file_names_are_named(call, content, what, tmp_path, logged):
    estimator = train(tmp_path, 5, steps=12)
    for step in (2, 9):
        tf.io.gfile.copy(f"{tmp_path}/model.ckpt-12.index", f"{tmp_path}/model.ckpt-{step}.index")
    (tmp_path / "checkpoint").unlink()
    if content:
        (tmp_path / "checkpoint").write_text(content)
    estimator.evaluate(input_fn, steps=1, checkpoint_path=f"{tmp_path}/model.ckpt-12")
    assert not logged("file `checkpoint`")
    CALLS[call](estimator)
    [line] = logged("file `checkpoint`")
    assert f"its file `checkpoint` is {what}. {tmp_path} has model.ckpt-12." in line
    # The fix, as the message says it.
    eval(line.partition("write the file: ")[2], {"tf": tf})
    assert estimator.evaluate(input_fn, steps=1)["global_step"] == 12
    assert logged("file `checkpoint`") == [line]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("content, sentence", [
    (b"", "Invalid checkpoint state loaded from {0}"), (b"\xff", "'utf-8' codec can't decode")])
def test_state_file_that_tensorflow_cannot_read_names_the_fix(
        content, sentence, call, tmp_path):
    estimator = train(tmp_path, 5)
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{sentence.format(tmp_path)}.*: its file `checkpoint` "
                       f"is damaged. {tmp_path} has model.ckpt-1. To load") as error:
        CALLS[call](estimator)
    eval(str(error.value).partition("write the file: ")[2], {"tf": tf})
    assert estimator.evaluate(input_fn, steps=1)["global_step"] == 1
    for path in tmp_path.glob("model.ckpt*"):
        path.unlink()
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(ValueError, match="There is no checkpoint. Remove the file"):
        CALLS[call](estimator)


READS = {"latest_checkpoint": lambda estimator: estimator.latest_checkpoint(),
         "get_variable_names": lambda estimator: estimator.get_variable_names(),
         "get_variable_value": lambda estimator: estimator.get_variable_value("words")}


@pytest.mark.parametrize("read", READS)
def test_reads_without_a_state_file_name_the_fix(read, tmp_path):
    estimator = train(tmp_path, 5)
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ValueError, match=f"^Invalid checkpoint state loaded from {tmp_path}: its "
                       f"file `checkpoint` is damaged. {tmp_path} has model.ckpt-1. To load"):
        READS[read](estimator)
    (tmp_path / "checkpoint").write_text("junk")
    if read == "latest_checkpoint":  # as in TensorFlow
        assert estimator.latest_checkpoint() is None
        return
    with pytest.raises(ValueError, match=f"^Could not find trained model in model_dir: {tmp_path}: "
                       f"its file `checkpoint` is damaged. {tmp_path} has") as error:
        READS[read](estimator)
    eval(str(error.value).partition("write the file: ")[2], {"tf": tf})
    assert len(READS[read](estimator)) > 1


def export(estimator, directory):
    estimator.export_saved_model(str(directory), lambda: None)


def test_export_names_what_hides_the_checkpoint_and_the_fix(tmp_path):
    estimator = counting.new_estimator(tmp_path / "model", embedding_config_spec=None)
    with pytest.raises(ValueError, match=f"^Couldn't find trained model at {tmp_path}/model. Call "
                       r"train\(\) before, or pass `checkpoint_path`.$"):
        export(estimator, tmp_path / "export")
    estimator = train(tmp_path / "model", 5)
    (tmp_path / "model/model.ckpt-1.index").unlink()
    with pytest.raises(ValueError, match="^Couldn't find trained model at .*: the index of "
                       f"{tmp_path}/model/model.ckpt-1 is missing. Restore its files, or"):
        export(estimator, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_missing_index_is_named_by_calls_that_go_on_without_it(tmp_path, logged):
    estimator = train(tmp_path, 5)
    (tmp_path / "model.ckpt-1.index").unlink()
    missing = f"the index of {tmp_path}/model.ckpt-1 is missing. Restore its files, or"
    for read in ("get_variable_names", "get_variable_value"):
        with pytest.raises(ValueError, match="^Could not find trained model .*: " + missing):
            READS[read](estimator)
    estimator.evaluate(input_fn, steps=1)
    assert "training fails" in "".join(logged(missing))


TRAIN = """
    import sys
    from tests.fronts.estimator.restore.test_restore_errors import train
    train(sys.argv[1], 5)
"""


@pytest.mark.long
def test_directory_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o555)
    command = [sys.executable, "-c", textwrap.dedent(TRAIN), tmp_path]
    if not os.getuid():  # root may write anywhere, with its capabilities
        command[:0] = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    done = start(command)
    tmp_path.chmod(0o755)
    last = done.stderr.splitlines()[-1]
    assert f"PermissionDeniedError: {tmp_path}/" in last
    assert last.endswith(f"; Permission denied. `model_dir` must be a directory that this process "
                         f"may write to, got '{tmp_path}'. Give another one, or change its "
                         "permissions.")


def test_averages_of_parts_name_what_the_saver_needs(tmp_path):
    """As in stock TensorFlow, `variables_to_restore` has a name for every part."""
    v1 = tf.compat.v1

    def model_fn(features, labels, mode, params):
        with v1.variable_scope("wide", partitioner=v1.fixed_size_partitioner(2)):
            kernel = v1.get_variable("kernel", [4], initializer=v1.ones_initializer())
        loss = tf.reduce_sum(tf.convert_to_tensor(kernel))
        average = v1.train.ExponentialMovingAverage(0.9)
        if mode == "eval":
            return counting.TPUEstimatorSpec(mode, loss=loss, scaffold_fn=lambda: v1.train.Scaffold(
                saver=v1.train.Saver(params["names"](average.variables_to_restore()))))
        step = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        with tf.control_dependencies([train_op]):
            train_op = average.apply(v1.trainable_variables())
        return counting.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def whole(names):
        parts = [names[f"wide/kernel/part_{part}/ExponentialMovingAverage"] for part in range(2)]
        return {"global_step": names["global_step"],
                "wide/kernel/ExponentialMovingAverage": parts}

    estimators = [counting.new_estimator(
        tmp_path, model_fn, embedding_config_spec=None, params={"names": names})
                  for names in (dict, whole)]
    estimators[0].train(counting.input_of([0, 1]), max_steps=1)
    with pytest.raises(ValueError, match="`var_list` of the Saver must be names of variables, not "
                       "of parts of them, got 'wide/kernel/part_[01]/ExponentialMovingAverage'. "
                       "A checkpoint has all parts under one name: give the Saver "
                       r"{'wide/kernel/ExponentialMovingAverage': \[the parts\]}"):
        estimators[0].evaluate(counting.input_of([0, 1]))
    assert estimators[1].evaluate(counting.input_of([0, 1]))["loss"] == pytest.approx(
        4 * (0.9 * 1.0 + 0.1 * 0.9))
