# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of TPUEmbedding: the keys of TensorFlow's class, to it and from it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding_v2  # under its public name it may be ours

from tpu_estimator_embedding.mid_level import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingForServing,
)

upstream = tf.tpu.experimental.embedding

OPTIMIZERS = [(SGD, ()), (Adagrad, ("accumulators",)),
              (AdagradMomentum, ("accumulators", "momenta")), (Adam, ("momenta", "velocities")),
              (FTRL, ("accumulators", "linears"))]


def configs(api=None, initializer=None):
    api = api or upstream
    tables = [api.TableConfig(7, 3, initializer, name="first"),
              api.TableConfig(5, 2, initializer, name="second")]
    return {"a": api.FeatureConfig(tables[0]), "b": api.FeatureConfig(tables[1])}


def trained(optimizer):
    embedding = TPUEmbedding(configs(), optimizer)
    embedding.enqueue({"a": tf.constant([1, 2]), "b": tf.constant([3, 3])})
    embedding.apply_gradients(embedding.dequeue())
    return embedding


def save(embedding, path):
    return tf.train.Checkpoint(embedding=embedding).save(path / "model")


def values_of(embedding):
    return {name: variable.numpy()
            for name, variable in embedding._trackable_children().items()}


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("optimizer, slots", OPTIMIZERS)
def test_keys_are_those_of_the_class_of_tensorflow(optimizer, slots, tmp_path):
    path = save(trained(optimizer(0.5)), tmp_path)
    keys = {name for name, _ in tf.train.list_variables(path)}
    end = ".ATTRIBUTES/VARIABLE_VALUE"
    assert keys == {"_CHECKPOINTABLE_OBJECT_GRAPH", f"save_counter/{end}", *(
        f"embedding/{table}{slot}/{end}" for table in ("first", "second")
        for slot in ("", *(f".S{name}" for name in slots)))}


@pytest.mark.usefixtures("tensorflows_own")
@pytest.mark.parametrize("optimizer, slots", OPTIMIZERS)
def test_class_of_tensorflow_and_this_one_read_each_other(optimizer, slots, tmp_path):
    ours = trained(optimizer(0.5))
    theirs = tpu_embedding_v2.TPUEmbedding(configs(), getattr(upstream, optimizer.__name__)(0.5))
    theirs.build()
    tf.train.Checkpoint(embedding=theirs).restore(save(ours, tmp_path)).assert_consumed()
    found = {name: variables[slot].numpy() for table, variables in theirs._variables.items()
             for slot in variables
             for name in [table if slot == "parameters" else f"{table}/{slot}"]}
    check_equal(found, values_of(ours))

    other = TPUEmbedding(configs(), optimizer(0.5))
    status = tf.train.Checkpoint(embedding=other).restore(save(theirs, tmp_path))
    assert not values_of(other)
    other.build()
    status.assert_consumed()
    check_equal(values_of(other), values_of(ours))


@pytest.mark.parametrize("build_first", [False, True])
def test_restored_tables_train_on_as_if_never_saved(build_first, tmp_path):
    ours, other = trained(Adam(0.1)), TPUEmbedding(configs(), Adam(0.1))
    if build_first:
        other.build()
    tf.train.Checkpoint(embedding=other).restore(save(ours, tmp_path))
    for embedding in (ours, other):
        embedding.enqueue({"a": tf.constant([2, 5]), "b": tf.constant([3, 0])})
        embedding.apply_gradients(embedding.dequeue())
    check_equal(values_of(other), values_of(ours))


@pytest.mark.parametrize("optimizer", [None, SGD(0.1)])
def test_slots_are_left_out_where_there_is_no_optimizer_for_them(optimizer, tmp_path):
    path, ours = tmp_path, trained(Adagrad(0.5))
    other = TPUEmbedding(configs(), optimizer)
    status = tf.train.Checkpoint(embedding=other).restore(save(ours, path))
    tables = other.embedding_tables
    status.assert_existing_objects_matched()
    assert list(values_of(other)) == ["first", "second"]
    for config, table in tables.items():
        np.testing.assert_array_equal(table, values_of(ours)[config.name])


@pytest.mark.parametrize("optimizer", [None, Adagrad(0.5)])
def test_tables_are_restored_for_serving(optimizer, tmp_path):
    ours = trained(Adagrad(0.5))
    serving = TPUEmbeddingForServing(configs(), optimizer)
    status = tf.train.Checkpoint(embedding=serving).restore(save(ours, tmp_path))
    activations = serving({"a": tf.constant([1]), "b": tf.constant([[3]])})
    status.assert_existing_objects_matched()
    np.testing.assert_array_equal(activations["a"], values_of(ours)["first"][[1]])
    np.testing.assert_array_equal(activations["b"], values_of(ours)["second"][[[3]]])
    slots = {"accumulators"} if optimizer else set()
    assert serving.variables["first"].keys() == {"parameters", *slots}


def test_tables_of_serving_are_trainable():
    serving = TPUEmbeddingForServing(configs(), Adagrad(0.5))
    assert serving.variables["first"]["parameters"].trainable
    assert not serving.variables["first"]["accumulators"].trainable


def test_names_of_tables_without_one_are_their_places(tmp_path):
    tables = [TableConfig(3, 1), TableConfig(4, 1), TableConfig(5, 1, name="named")]
    embedding = TPUEmbedding([FeatureConfig(tables[k]) for k in (1, 0, 1, 2)], SGD(0.1))
    embedding.build()
    shapes = dict(tf.train.list_variables(save(embedding, tmp_path)))
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert {name: shapes[f"embedding/{name}{end}"] for name in ("table_0", "table_1", "named")} == {
        "table_0": [4, 1], "table_1": [3, 1], "named": [5, 1]}
    assert [table.name for table in tables] == [None, None, "named"]


def test_slots_may_be_created_by_the_program():
    created = []

    def create(table, names, initializers):
        slots = {name: tf.Variable(2 * initializer(table.shape, tf.float32), trainable=False)
                 for name, initializer in zip(names, initializers, strict=True)}
        created.append(slots)
        return slots

    embedding = trained(Adagrad(0.5, initial_accumulator_value=0.25,
                                slot_variable_creation_fn=create))
    children = embedding._trackable_children()
    assert [slots["accumulators"] is children[f"{table}/accumulators"] for slots, table in zip(
        created, ("first", "second"), strict=True)] == [True, True]
    assert children["first/accumulators"][0].numpy().tolist() == [0.5] * 3


def test_slots_of_another_shape_are_refused():
    optimizer = Adagrad(0.5, slot_variable_creation_fn=lambda table, names, initializers: {
        name: tf.Variable([0.0]) for name in names})
    with pytest.raises(ValueError, match="`slot_variable_creation_fn` of table 'first' must be "):
        TPUEmbedding(configs(), optimizer).build()
