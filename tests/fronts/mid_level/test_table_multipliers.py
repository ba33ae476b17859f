# SPDX-License-Identifier: Apache-2.0
"""Gradient multipliers of single tables in the TF2 classes.

Every gradient is -1 and the learning rate 1: a row is the sum of the multipliers of its
updates.
"""

import pytest
import tensorflow as tf

from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.mid_level import SGD, FeatureConfig, TableConfig, TPUEmbedding
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

BATCH_SIZE = 4
IDS = {"user": tf.constant([0, 1, 2, 3]), "item": tf.constant([0, 1, 2, 3])}
MULTIPLIERS = {"us*": "warmup:4"}


@pytest.fixture(autouse=True, params=["tf", "native"])
def kernels(request, monkeypatch):
    choose_kernels(request.param, monkeypatch)


def features():
    tables = {name: TableConfig(8, 4, tf.zeros_initializer(), name=name)
              for name in ("user", "item")}
    return tables, {name: FeatureConfig(table, output_shape=[BATCH_SIZE])
                    for name, table in tables.items()}


class OfTPUEmbedding:
    """Each of these classes trains for one step, and reads a table."""

    def __init__(self, multipliers, pipelined=False):
        self.tables, config = features()
        self.object = TPUEmbedding(config, SGD(1.0), pipelined, table_multipliers=multipliers)

    def step(self):
        self.object.enqueue(IDS)
        activations = self.object.dequeue()
        self.object.apply_gradients(
            {name: -tf.ones_like(value) for name, value in activations.items()})
        return activations

    def holder(self):
        return self.object

    def row(self, table):
        return float(tf.convert_to_tensor(self.object.embedding_tables[self.tables[table]])[0, 0])


class OfV2(OfTPUEmbedding):
    def __init__(self, multipliers, pipelined=False):
        self.tables, config = features()
        self.object = TPUEmbeddingV2(config, SGD(1.0), pipelined, table_multipliers=multipliers)

    def step(self):
        activations, preserved = self.object(IDS)
        self.object.apply_gradients(
            {name: -tf.ones_like(value) for name, value in activations.items()}, preserved)
        return activations


class OfLayer(OfTPUEmbedding):
    def __init__(self, multipliers, pipelined=False):
        self.tables, config = features()
        self.object = partial_layer_class(tf.keras)(
            config, SGD(1.0), pipelined, size_threshold=0, table_multipliers=multipliers)

    def step(self):
        with tf.GradientTape() as tape:
            activations = self.object(IDS)
            loss = -tf.add_n([tf.reduce_sum(value) for value in activations.values()])
        layer = self.object.tpu_embedding
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
        return activations

    def holder(self):
        return self.object.tpu_embedding

    def row(self, table):
        tables = self.object.tpu_embedding.embedding_tables
        return float(tables[self.tables[table]].numpy()[0, 0])


WAYS = [OfTPUEmbedding, OfV2, OfLayer]


@pytest.mark.parametrize("way", WAYS)
def test_schedules_count_updates(way):
    trained = way(MULTIPLIERS)
    for _ in range(6):
        trained.step()
    assert trained.row("user") == 0 + 0.25 + 0.5 + 0.75 + 1 + 1
    assert trained.row("item") == 6


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_function_counts_as_often_as_it_is_called(way):
    trained = way(MULTIPLIERS)
    trained.step()
    function = tf.function(trained.step)
    for _ in range(3):
        function()
    assert trained.row("user") == 0 + 0.25 + 0.5 + 0.75


@pytest.mark.parametrize("way", WAYS)
def test_pipelined_updates_have_the_multiplier_of_their_own_step(way):
    trained = way({"user": "piecewise:1:1:4:2:16"}, pipelined=True)
    seen = [float(trained.step()["user"][0, 0]) for _ in range(4)]
    assert seen == [0, 0, 1, 5]
    assert trained.row("user") == 1 + 4 + 16 + 16


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_keeps_the_count(way, tmp_path):
    first = way(MULTIPLIERS)
    for _ in range(2):
        first.step()
    path = tf.train.Checkpoint(embedding=first.object).save(tmp_path / "checkpoint")
    second = way(MULTIPLIERS)
    status = tf.train.Checkpoint(embedding=second.object).restore(path)
    second.step()
    status.assert_existing_objects_matched()
    assert second.row("user") == 0 + 0.25 + 0.5


@pytest.mark.parametrize("way, key, format", [
    (OfTPUEmbedding, "embedding", "tf2"), (OfLayer, "layer", "tpu-embedding-layer")])
def test_a_converted_checkpoint_keeps_the_count(way, key, format, tmp_path):
    first = way(MULTIPLIERS)
    for _ in range(2):
        first.step()
    saved = tf.train.Checkpoint(**{key: first.holder()}).save(tmp_path / "checkpoint")
    checkpoint.convert(saved, tmp_path / "v1/model.ckpt-2", "v1", global_step=2)
    checkpoint.convert(tmp_path / "v1/model.ckpt-2", tmp_path / "new/ckpt-1", format)
    second = way(MULTIPLIERS)
    status = tf.train.Checkpoint(**{key: second.holder()}).restore(str(tmp_path / "new/ckpt-1"))
    second.step()
    status.assert_existing_objects_matched()
    assert second.row("user") == 0 + 0.25 + 0.5


@pytest.mark.parametrize("way, key, format", [
    (OfTPUEmbedding, "embedding", "tf2"), (OfLayer, "layer", "tpu-embedding-layer")])
def test_the_count_of_a_template_is_the_global_step(way, key, format, tmp_path):
    """A checkpoint of TPUEstimator has no count: its schedules get the global step."""
    estimators = tf.train.Checkpoint(**{key: way({}).holder()}).save(tmp_path / "estimators")
    checkpoint.convert(estimators, tmp_path / "v1/model.ckpt-2", "v1", global_step=2)
    second = way(MULTIPLIERS)
    holder = tf.train.Checkpoint(**{key: second.holder()})
    checkpoint.convert(tmp_path / "v1/model.ckpt-2", tmp_path / "new/ckpt-1", format,
                       template=holder.save(tmp_path / "template"))
    holder.restore(str(tmp_path / "new/ckpt-1"))
    second.step()
    assert second.row("user") == 0.5


def test_a_layer_is_saved_with_its_multipliers():
    layer = OfLayer({"user": "warmup:4*0.5"}).object
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert layer.get_config()["table_multipliers"] == {"user": "warmup:4*0.5"}


def test_a_small_table_of_keras_has_no_multiplier():
    _, config = features()
    with pytest.raises(ValueError, match="must be keyed by names of tables"):
        partial_layer_class(tf.keras)(config, SGD(1.0), table_multipliers={"user": 0.5})
