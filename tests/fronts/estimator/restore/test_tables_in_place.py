# SPDX-License-Identifier: Apache-2.0
"""Evaluation and prediction read rows of large tables in the checkpoint, and load no table."""

import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import TPUEstimatorSpec, count, new_estimator, run_config
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.checkpoint import in_place_saver
from tpu_estimator_embedding.checkpoint.bundle import read_bundle
from tpu_estimator_embedding.checkpoint.bundle_format import HEADER_KEY, format_index, parse_index
from tpu_estimator_embedding.checkpoint.saved_step import SavedTensor, write_step
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, TextTensor
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator import restore
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

IN_PLACE = settings.TABLES_IN_PLACE.variable

v1 = tf.compat.v1
WORDS, KINDS = 1000, 5
DIV, MOD = "div", "mod"


@pytest.fixture(autouse=True)
def in_place(monkeypatch):
    """Reads all tables in place."""
    choose_kernels("native", monkeypatch)
    monkeypatch.setattr(restore, "LOADED_BYTES", 0)


def new_spec(strategy):
    normal = v1.truncated_normal_initializer(seed=1)
    return EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(WORDS, 4, normal, combiner="mean"),
                              "kinds": TableConfig(KINDS, 3, normal)},
        feature_to_config_dict={"word": FeatureConfig("words"), "kind": FeatureConfig("kinds")},
        optimization_parameters=StochasticGradientDescentParameters(0.01),
        partition_strategy=strategy)


def model_fn(features, labels, mode, params):
    both = tf.concat([features["word"], features["kind"]], 1)
    loss = tf.reduce_sum(both ** 2)
    return TPUEstimatorSpec(
        mode, loss=loss, train_op=count(loss) if mode == "train" else None,
        predictions={"both": both},
        eval_metrics=(lambda both: {"mean": v1.metrics.mean(both)}, [both]))


def input_of(seed, steps=3):
    """Returns the input_fn of batches in which many ids occur, and some twice."""
    def input_fn(params):
        random = np.random.default_rng(seed)
        words = np.where(random.random([16 * steps, 30]) < 0.7,
                         random.integers(WORDS, size=[16 * steps, 30]), -1)
        kinds = random.integers(KINDS, size=[16 * steps, 1])
        dataset = tf.data.Dataset.from_tensor_slices((words, kinds)).batch(16)
        return dataset.map(lambda words, kinds: {
            "word": sparse(words), "kind": sparse(kinds)})
    return input_fn


def sparse(ids):
    where = tf.where(ids >= 0)
    return tf.SparseTensor(where, tf.gather_nd(ids, where), tf.shape(ids, tf.int64))


def estimator_of(directory, num_hosts=1, strategy=DIV, model_fn=model_fn, **options):
    return new_estimator(directory, model_fn, spec=new_spec(strategy), num_hosts=num_hosts,
                         batch_size=16, **options)


def trained(directory, *layout, **options):
    estimator = estimator_of(directory, *layout, **options)
    estimator.train(input_of(1), max_steps=3)
    return estimator


def data_of(estimator):
    [piece] = read_bundle(pathlib.Path(estimator.latest_checkpoint()))["words"].pieces
    return piece.path


def numbers(estimator, hooks=()):
    """Returns the predictions of all steps."""
    return np.array([each["both"] for each in estimator.predict(input_of(2), hooks=list(hooks))])


def loaded_numbers(estimator):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(IN_PLACE, "off")
        return numbers(estimator)


class AfterStart(v1.train.SessionRunHook):
    """Calls a function once, between the start of a session and its first step."""

    def __init__(self, function):
        self._function = function

    def before_run(self, run_context):
        function, self._function = self._function, lambda session: None
        function(run_context.session)


@pytest.fixture
def messages(logged):
    """Returns what was said about tables in place."""
    return lambda: [line.removeprefix("tpu_estimator_embedding: ") for line in logged("in place")]


@pytest.mark.slow
@pytest.mark.parametrize("stored, present", [
    ((1, DIV), (1, DIV)), ((2, DIV), (1, DIV)), ((2, MOD), (1, DIV)), ((2, MOD), (2, MOD)),
    ((3, MOD), (2, MOD)), ((1, DIV), (3, MOD)), ((7, MOD), (3, DIV))], ids=str)
def test_same_numbers_as_of_loaded_tables(tmp_path, messages, stored, present):
    trained(tmp_path, *stored)
    estimator = estimator_of(tmp_path, *present)
    found, metrics = numbers(estimator), estimator.evaluate(input_of(2), steps=3)
    assert [message.split(" of tables")[0] for message in messages()] == ["15.7 KiB"] * 2
    assert np.array_equal(found, loaded_numbers(estimator))
    assert np.abs(found).min() > 0
    assert metrics["mean"] == pytest.approx(found.mean(), rel=1e-5)


@pytest.mark.slow
def test_tables_in_several_files(tmp_path):
    estimator = trained(tmp_path / "model", 3, MOD)
    expected = loaded_numbers(estimator_of(tmp_path / "model"))
    prefix = pathlib.Path(estimator.latest_checkpoint())
    shards = [[], [], []]  # as servers write them
    for key, tensor in read_bundle(prefix).items():
        if tensor.is_text:
            shards[0].append(SavedTensor(key, TextTensor(tensor.text()), ()))
            continue
        for shard, piece in enumerate(tensor.pieces):
            values = np.frombuffer(b"".join(map(bytes, piece.chunks())), tensor.numpy_dtype)
            is_part = len(tensor.pieces) > 1
            shards[shard].append(SavedTensor(key, ArrayTensor(values.reshape(
                [size for _, size in piece.extents])), tensor.shape if is_part else (),
                piece.extents if is_part else ()))
    shutil.copytree(tmp_path / "model", tmp_path / "sharded",
                    ignore=shutil.ignore_patterns("*.data-*"))
    write_step(tmp_path / "sharded" / prefix.name, shards)
    found = estimator_of(tmp_path / "sharded")
    assert len(list((tmp_path / "sharded").glob("*.data-*"))) == 3
    assert np.array_equal(numbers(found), expected)


@pytest.mark.slow
def test_more_rows_than_are_kept(tmp_path, monkeypatch):
    estimator = trained(tmp_path, 2, MOD)
    monkeypatch.setattr(in_place_saver, "KEPT_BYTES", 2000)
    assert np.array_equal(numbers(estimator), loaded_numbers(estimator))


def test_small_tables_are_loaded(tmp_path, monkeypatch, messages):
    estimator = trained(tmp_path)
    monkeypatch.setattr(restore, "LOADED_BYTES", 100)  # more than `kinds` has
    found = numbers(estimator)
    assert [message.split(" of tables")[0] for message in messages()] == ["15.6 KiB"]
    monkeypatch.setattr(restore, "LOADED_BYTES", 1 << 20)
    assert np.array_equal(found, numbers(estimator))
    assert len(messages()) == 1


@pytest.mark.slow
def test_training_deletes_the_checkpoint_that_is_evaluated(tmp_path):
    config = run_config(keep_checkpoint_max=1, save_checkpoints_steps=1)
    estimator = trained(tmp_path, config=config)
    expected, evaluated = loaded_numbers(estimator), estimator.latest_checkpoint()
    found = numbers(estimator_of(tmp_path), [AfterStart(
        lambda session: estimator.train(input_of(3), steps=3))])
    assert not os.path.exists(f"{evaluated}.index")
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, numbers(estimator))  # of the newest checkpoint


def test_data_file_that_is_replaced_keeps_its_rows(tmp_path):
    estimator = trained(tmp_path)
    expected = loaded_numbers(estimator)

    def replace(session):
        data = data_of(estimator)
        (tmp_path / "other").write_bytes(bytes(data.stat().st_size))
        os.replace(tmp_path / "other", data)

    assert np.array_equal(numbers(estimator, [AfterStart(replace)]), expected)


def test_ops_of_the_scaffold_stay(tmp_path):
    called = []

    def with_scaffold(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(
            scaffold_fn=lambda: v1.train.Scaffold(local_init_op=tf.group(
                v1.train.Scaffold.default_local_init_op(),
                tf.py_function(lambda: called.append(1), [], []))))

    estimator = trained(tmp_path, model_fn=with_scaffold)
    called.clear()
    numbers(estimator)
    assert called == [1]


def test_files_are_closed_with_the_session(tmp_path):
    def open_files(session=None):
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        opened.append(sum(os.path.realpath(link) == str(data) for link in links))

    opened, estimator = [], trained(tmp_path)
    data = data_of(estimator).resolve()
    estimator.evaluate(input_of(2), steps=3, hooks=[AfterStart(open_files)])
    open_files()
    assert opened == [1, 0]


@pytest.mark.parametrize("size, what", [(100, "truncated"), (None, "changed")])
def test_data_file_that_is_written_to_is_an_error(tmp_path, size, what):
    estimator = trained(tmp_path)

    data = data_of(estimator)

    def write(session):
        if size is None:
            data.write_bytes(bytes(data.stat().st_size))
        else:
            os.truncate(data, size)

    with pytest.raises(tf.errors.DataLossError, match=f"`checkpoint` must stay .* {what} mean"):
        estimator.evaluate(input_of(2), steps=3, hooks=[AfterStart(write)])


def test_checkpoint_that_is_truncated_before_is_an_error_of_tensorflow(tmp_path):
    estimator = trained(tmp_path)
    os.truncate(data_of(estimator), 100)
    with pytest.raises(tf.errors.OpError):
        numbers(estimator)


def test_checkpoint_of_the_other_order_of_bytes_is_not_read_in_place(tmp_path, messages):
    estimator = trained(tmp_path)
    index = pathlib.Path(f"{estimator.latest_checkpoint()}.index")
    items = parse_index(index.read_bytes())
    big_endian = b"\x10\x01"  # field 2 of the header
    index.write_bytes(format_index({**items, HEADER_KEY: items[HEADER_KEY] + big_endian}))
    with pytest.raises((tf.errors.OpError, ValueError)):  # of the checksums: rows were not swapped
        numbers(estimator)
    assert not [message for message in messages() if "are read" in message]


def test_is_off_by_the_environment(tmp_path, monkeypatch, messages):
    estimator = trained(tmp_path)
    monkeypatch.setenv(IN_PLACE, "off")
    numbers(estimator)
    assert messages() == [f"tables are loaded, not read in place: {IN_PLACE}=off"]


@pytest.mark.slow
def test_table_that_another_op_reads_is_loaded(tmp_path, messages):
    class Sums(v1.train.SessionRunHook):
        def begin(self):
            [words] = [each for each in v1.global_variables() if each.name == "words:0"
                       or each.name.startswith("words/part_0")]
            self.sum = tf.reduce_sum(words, name="of_the_hook")

        def after_create_session(self, session, coord):
            self.value = session.run(self.sum)

    estimator, sums = trained(tmp_path), Sums()
    found = numbers(estimator, [sums])
    assert sums.value == pytest.approx(estimator.get_variable_value("words").sum(), rel=1e-4)
    assert sorted(messages()) == [
        message for message in sorted(messages()) if "60 B of tables are read in place" in message
        or "not read in place: of_the_hook reads or changes words" in message]
    assert len(messages()) == 2
    assert np.array_equal(found, numbers(estimator))


def test_fetch_of_a_table_says_how_to_load_it(tmp_path):
    def fetch():
        return AfterStart(lambda session: session.run(v1.global_variables("words")))

    estimator = trained(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{IN_PLACE}=off in"):
        estimator.evaluate(input_of(2), steps=3, hooks=[fetch()])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{IN_PLACE}=off in"):
        numbers(estimator, [fetch()])


def test_saver_of_the_model_loads_tables(tmp_path, messages):
    restored = []

    class Saver(v1.train.Saver):
        def restore(self, *args):
            restored.append(args)
            super().restore(*args)

    def with_saver(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec if mode == "train" else spec._replace(
            scaffold_fn=lambda: v1.train.Scaffold(saver=Saver()))

    found = numbers(trained(tmp_path, model_fn=with_saver))
    assert len(restored) == 1
    assert messages() == ["tables are loaded, not read in place: the model_fn gives a saver"]
    assert np.array_equal(found, numbers(estimator_of(tmp_path)))


def test_scaffold_of_another_class_stays(tmp_path, messages):
    ready = []

    class OwnScaffold(v1.train.Scaffold):
        def finalize(self):
            ready.append(self)
            return super().finalize()

    def with_scaffold(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(scaffold_fn=OwnScaffold)

    estimator = trained(tmp_path, model_fn=with_scaffold)
    ready.clear()
    numbers(estimator)
    assert len(ready) == 1
    assert messages()[-1].endswith("in place: the Scaffold of the model_fn is a OwnScaffold")


@pytest.mark.slow
def test_ops_of_tensorflow_load_tables(tmp_path, monkeypatch, messages):
    estimator = trained(tmp_path)
    found = numbers(estimator)
    choose_kernels("tf", monkeypatch)
    assert np.allclose(numbers(estimator), found, rtol=1e-6)
    assert "only the native kernels" in messages()[-1]


def test_evaluation_without_a_checkpoint_initializes_tables(tmp_path):
    metrics = estimator_of(tmp_path).evaluate(input_of(2), steps=3)
    assert metrics["global_step"] == 0
    assert metrics["mean"] != 0
