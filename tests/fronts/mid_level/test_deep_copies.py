# SPDX-License-Identifier: Apache-2.0
"""copy.deepcopy of the classes: other tables and slots, the same configs and behaviour."""

import copy
import importlib
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import subprocesses
from tests.fronts.mid_level.keras_layers.step_programs import KERASES
from tpu_estimator_embedding.mid_level import (
    Adagrad,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingForServing,
    TPUEmbeddingV0,
    TPUEmbeddingV2,
)
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.multipliers.schedule import Constant, Then

PROGRAM = pathlib.Path(__file__).parent / "deep_copies_program.py"
IDS = {"title": tf.constant([1, 2])}


@pytest.fixture
def table():
    return TableConfig(4, 2, tf.ones_initializer(), combiner="sum", name="words")


def train(embedding):
    embedding.enqueue(IDS)
    embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, embedding.dequeue()))


def train_v2(embedding):
    activations, preserved = embedding(IDS)
    embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations), preserved)


def train_variables(embedding):
    for slots in embedding.variables.values():
        for variable in slots.values():
            variable.assign_add(tf.ones_like(variable))


KINDS = [
    (lambda config, pipelined: TPUEmbedding(config, Adagrad(1.0), pipelined), train),
    (lambda config, pipelined: TPUEmbeddingV2(config, Adagrad(1.0), pipelined, num_sc_per_chip=1),
     train_v2),
    (lambda config, _: TPUEmbeddingV0(config, Adagrad(1.0)), train_variables),
    (lambda config, _: TPUEmbeddingForServing(config, Adagrad(1.0)), train_variables)]


def values(embedding, path):
    """Returns all that a checkpoint holds."""
    reader = tf.train.load_checkpoint(tf.train.Checkpoint(e=embedding).save(path / "model"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if "VARIABLE_VALUE" in name and "layouts" not in name and "counter" not in name}


@pytest.mark.parametrize("make, step", KINDS)
@pytest.mark.parametrize("pipelined", [False, True])
def test_copies_are_trained_by_themselves(make, step, pipelined, table, tmp_path):
    embedding = make({"title": FeatureConfig(table, output_shape=[2])}, pipelined)
    step(embedding)
    copied = copy.deepcopy(embedding)
    before = values(embedding, tmp_path)
    assert {name: value.tolist() for name, value in values(copied, tmp_path).items()} == {
        name: value.tolist() for name, value in before.items()}
    step(copied)
    np.testing.assert_equal(values(embedding, tmp_path), before)
    step(embedding)  # with the slots that the copy has, too
    np.testing.assert_equal(values(embedding, tmp_path), values(copied, tmp_path))
    assert np.any(embedding.embedding_tables[table] != 1.0)
    np.testing.assert_array_equal(copied.embedding_tables[table], embedding.embedding_tables[table])


@pytest.mark.parametrize("make, step", KINDS)
def test_copy_of_what_was_not_used_has_its_tables(make, step, table, tmp_path):
    trained, config = make({"title": FeatureConfig(table, output_shape=[2])}, False), {
        "title": FeatureConfig(table, output_shape=[2])}
    step(trained)
    path = tf.train.Checkpoint(e=trained).save(tmp_path / "trained")
    embedding = make(config, False)
    tf.train.Checkpoint(e=embedding).restore(path)  # before there are variables
    copied = copy.deepcopy(embedding)
    np.testing.assert_array_equal(copied.embedding_tables[table], trained.embedding_tables[table])
    step(copied), step(trained)
    np.testing.assert_array_equal(copied.embedding_tables[table], trained.embedding_tables[table])


@pytest.mark.parametrize("first", [0, 1])
def test_config_that_is_copied_too_is_the_key(first, table):
    parts = [TPUEmbedding({"title": FeatureConfig(table)}, Adagrad(1.0)), table]
    copied = copy.deepcopy(parts[::-1] if first else parts)
    embedding, key = copied[::-1] if first else copied
    assert embedding.embedding_tables[key].shape == [4, 2]


def test_waiting_batches_and_attributes_of_a_subclass(table):
    class Named(TPUEmbedding):
        labels = None

    embedding = Named({"title": FeatureConfig(table)}, Adagrad(1.0))
    embedding.labels = {"kind": ["words"]}
    embedding.enqueue(IDS)
    copied = copy.deepcopy(embedding)
    copied.labels["kind"].append("more")
    assert isinstance(copied, Named) and embedding.labels == {"kind": ["words"]}
    with pytest.raises(RuntimeError, match="`dequeue` must come after enqueue"):
        copied.dequeue()
    embedding.dequeue()


def test_multipliers_continue_with_the_step_of_the_original(table):
    embedding = TPUEmbedding({"title": FeatureConfig(table)}, Adagrad(1.0), table_multipliers={
        "words": Then(Constant(1.0), 1, Constant(0.1))})
    train(embedding)
    copied = copy.deepcopy(embedding)
    train(embedding), train(copied)
    assert np.any(embedding.embedding_tables[table] != 1.0)
    np.testing.assert_array_equal(copied.embedding_tables[table], embedding.embedding_tables[table])


@pytest.mark.parametrize("keras", KERASES)
@pytest.mark.parametrize("pipelined", [False, True])
def test_layers_are_trained_by_themselves(keras, pipelined, table):
    keras = importlib.import_module(keras)

    class Named(embedding_layer_class(keras)):
        labels = None

    layer, optimizer = Named({"title": FeatureConfig(table)}, Adagrad(1.0), pipelined,
                             name="movies"), keras.optimizers.SGD()
    layer.labels = {"kind": ["words"]}

    def train(layer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(IDS)["title"])
        optimizer.apply_gradients([(tape.gradient(loss, layer.trainable_variables)[0],
                                    layer.trainable_variables[0])])

    def values(layer):
        return [np.array(value) for value in layer.get_weights()]

    optimizer.build(layer.trainable_variables)
    train(layer)
    copied, before = copy.deepcopy(layer), values(layer)
    np.testing.assert_equal(values(copied), before)
    copied.labels["kind"].append("more")
    assert (copied.name, layer.labels) == ("movies", {"kind": ["words"]})
    optimizer = keras.optimizers.SGD()
    optimizer.build(copied.trainable_variables)
    train(copied)
    np.testing.assert_equal(values(layer), before)
    trained = copied.embedding_tables[table].numpy()
    assert np.any(trained != layer.embedding_tables[table].numpy())
    optimizer = keras.optimizers.SGD()
    optimizer.build(layer.trainable_variables)
    train(layer)  # with the slots that the copy has, too
    np.testing.assert_array_equal(layer.embedding_tables[table].numpy(), trained)


@pytest.mark.parametrize("keras", KERASES)
def test_layer_with_its_own_constructor_is_not_copied_in_part(keras, table):
    class Counting(embedding_layer_class(importlib.import_module(keras))):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.count = 0

    with pytest.raises(TypeError, match="cannot copy Counting, .* Override its method"):
        copy.deepcopy(Counting({"title": FeatureConfig(table)}, Adagrad(1.0)))


@pytest.mark.long
def test_objects_of_a_strategy():
    done = subprocesses.start([sys.executable, PROGRAM])
    assert done.returncode == 0, done.stderr
