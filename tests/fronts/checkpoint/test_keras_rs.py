# SPDX-License-Identifier: Apache-2.0
"""Tables that go to a model of Keras RS and back, and to a layer that names variables alike."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.checkpoint.saved import restore_v1, save_v1, values_of, variables
from tpu_estimator_embedding import checkpoint

keras = pytest.importorskip("keras", minversion="3", reason="Keras RS needs Keras 3")

SIZES = {"words": (13, 4), "tags": (2, 3)}


class StandIn(keras.layers.Layer):
    """Variables called as those of DistributedEmbedding on CPUs, where keras_rs is missing."""

    def __init__(self):
        super().__init__(name="distributed_embedding")
        self.tables = {name: keras.layers.Embedding(*size, name=name)
                       for name, size in SIZES.items()}

    def build(self, input_shape):
        for layer in self.tables.values():
            layer.build(None)

    def call(self, inputs):
        return {name: keras.ops.sum(self.tables[name](ids), 1) for name, ids in inputs.items()}


def distributed_embedding():
    keras_rs = pytest.importorskip("keras_rs")
    return keras_rs.layers.DistributedEmbedding({name: keras_rs.layers.FeatureConfig(
        name, keras_rs.layers.TableConfig(name=name, vocabulary_size=rows, embedding_dim=dim,
                                          combiner="sum"), (2, 1), (2, dim))
        for name, (rows, dim) in SIZES.items()})


@pytest.fixture(params=[StandIn, distributed_embedding])
def new_model(request):
    """A function of the optimizer that returns a model, built and compiled."""
    def model(optimizer):
        keras.backend.clear_session()  # so that layers are called as in a separate program
        inputs = {name: keras.Input((1,), batch_size=2, dtype="int32", name=name)
                  for name in SIZES}
        rows = request.param()(inputs)
        output = keras.layers.Dense(2, name="dense")(rows["words"])
        model = keras.Model(inputs, [output, rows["tags"]])
        model.compile(optimizer)
        optimizer.build(model.trainable_variables)
        return model
    return model


def state(model):
    return {variable.path: np.asarray(variable) for variable in (
        *model.variables, *model.optimizer.variables)}


OPTIMIZERS = {
    "SGD": (lambda: keras.optimizers.SGD(0.1), {}),
    "Adagrad": (lambda: keras.optimizers.Adagrad(0.1), {"Adagrad": "accumulator"}),
    "Adam": (lambda: keras.optimizers.Adam(0.1), {"Adam/m": "momentum", "Adam/v": "velocity"}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_model_restores_tables_slots_and_variables(optimizer, new_model, tmp_path):
    saved = variables(optimizer)
    new_optimizer, slots = OPTIMIZERS[optimizer]
    model = new_model(new_optimizer())
    template = tf.train.Checkpoint(model=model).save(tmp_path / "template")
    source = save_v1(tmp_path / "v1", saved)
    done = checkpoint.convert(source, tmp_path / "keras", "keras-rs", template=template)
    tf.train.Checkpoint(model=model).restore(
        str(tmp_path / "keras")).assert_existing_objects_matched()
    found, name = state(model), model.optimizer.name
    for table in SIZES:
        np.testing.assert_array_equal(
            found[f"distributed_embedding/{table}/embeddings"], saved.tables[table])
        for slot, end in slots.items():
            np.testing.assert_array_equal(
                found[f"{name}/distributed_embedding_{table}_embeddings_{end}"],
                saved.tables[f"{table}/{slot}"])
    np.testing.assert_array_equal(found["dense/kernel"], saved.others["dense/kernel"])
    assert found[f"{name}/iteration"] == 1234
    slot = {"dense/kernel/Adagrad"}  # of the dense model, which has Adagrad
    if optimizer == "Adagrad":
        np.testing.assert_array_equal(found[f"{name}/dense_kernel_accumulator"],
                                      saved.others["dense/kernel/Adagrad"])
        slot = set()
    assert set(done.left_out) == {"beta1_power"} | slot
    assert f"{name}/learning_rate" in done.kept

    checkpoint.convert(tmp_path / "keras", tmp_path / "back", "v1", layout=(3, "mod"))
    back = restore_v1(tmp_path / "back", type(saved)(saved.tables, {
        key: saved.others[key] for key in ("dense/kernel", "dense/bias", "global_step")}), 3, "mod")
    for key, values in back.items():
        np.testing.assert_array_equal(values, saved.all[key])


def test_keras_rs_from_tf2_and_compared(new_model, tmp_path):
    model = new_model(keras.optimizers.Adagrad(0.1))
    template = tf.train.Checkpoint(model=model).save(tmp_path / "template")
    checkpoint.convert(save_v1(tmp_path / "v1", variables()), tmp_path / "tf2", "tf2")
    checkpoint.convert(tmp_path / "tf2", tmp_path / "keras", "keras-rs", template=template)
    assert checkpoint.compare(tmp_path / "tf2", tmp_path / "keras", tables_only=True).agree
    report = checkpoint.inspect(tmp_path / "keras")
    assert (report.form, report.global_step) == ("keras-rs", 1234)
    assert [(table.name, table.optimizer) for table in report.tables] == [
        ("tags", "Adagrad"), ("words", "Adagrad")]


@pytest.mark.parametrize("source, optimizer, sentence", [
    ("FTRL", "Ftrl", "FTRL in Keras RS: Keras 3's Ftrl recomputes every row"),
    ("FTRL", "Adagrad", "FTRL in Keras RS"),
    ("Adam", "Adagrad", "slots of Adam, .* adagrad. Compile the model"),
    ("Momentum", "SGD", "slots of Momentum, .* sgd")])
def test_optimizers_that_differ_are_refused(source, optimizer, sentence, new_model, tmp_path):
    model = new_model(getattr(keras.optimizers, optimizer)(0.1))
    template = tf.train.Checkpoint(model=model).save(tmp_path / "template")
    v1 = save_v1(tmp_path / "v1", variables(source))
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(v1, tmp_path / "keras", "keras-rs", template=template)
    if optimizer == "Adagrad":
        checkpoint.convert(v1, tmp_path / "keras", "keras-rs", template=template,
                           without_slots=True)
        assert "_CHECKPOINTABLE_OBJECT_GRAPH" in values_of(tmp_path / "keras")


def subclassed(new_layer):
    """Returns a subclassed model, built, whose variables Keras calls alike."""
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__(name="subclassed")
            self.rows, self.dense = new_layer(), keras.layers.Dense(2, name="dense")

        def call(self, inputs):
            rows = self.rows(inputs)
            return self.dense(rows["words"]), rows["tags"]

    model = Subclassed()
    model({name: tf.constant([[0], [1]]) for name in SIZES})
    return model


@pytest.mark.parametrize("is_compiled, sentence", [
    (True, "2 tables with the name 'subclassed/embeddings'. Keras 3 gives the variables of a "
           "subclassed model the same name"),
    (False, "no tables of a compiled Keras model")])
def test_models_that_hide_their_tables_are_refused_with_the_fix(is_compiled, sentence,
                                                                tmp_path):
    model = subclassed(distributed_embedding)
    if is_compiled:
        model.compile(keras.optimizers.Adagrad(0.1))
        model.optimizer.build(model.trainable_variables)
    path = tf.train.Checkpoint(model=model).save(tmp_path / "model")
    source = save_v1(tmp_path / "v1", variables())
    for attempt in (lambda: checkpoint.inspect(path),
                    lambda: checkpoint.convert(path, tmp_path / "out", "v1"),
                    lambda: checkpoint.convert(source, tmp_path / "out", "keras-rs",
                                               template=path)):
        with pytest.raises(ValueError, match=sentence):
            attempt()
    assert not list(tmp_path.glob("out*"))


def test_names_lead_to_dense_variables_of_the_model_only(new_model, tmp_path):
    model = new_model(keras.optimizers.Adagrad(0.1))
    template = tf.train.Checkpoint(model=model).save(tmp_path / "template")
    source = save_v1(tmp_path / "v1", variables())
    table = "distributed_embedding/words"
    slot = f"{model.optimizer.name}/distributed_embedding_words_embeddings_accumulator"
    for path in (f"{table}/embeddings", table, slot, "dense", "save_counter/x", ""):
        with pytest.raises(ValueError, match="`names` must "):
            checkpoint.convert(source, tmp_path / "out", "keras-rs", template=template,
                               names={"beta1_power": path})
    assert not list(tmp_path.glob("out*"))
    names = {"dense/bias": "dense/kernel", "dense/kernel": "dense/bias"}  # of other shapes
    with pytest.raises(ValueError, match="'model/.*kernel.* shape"):
        checkpoint.convert(source, tmp_path / "out", "keras-rs", template=template, names=names)
    names = {"beta1_power": f"{model.optimizer.name}/learning_rate"}
    done = checkpoint.convert(source, tmp_path / "out", "keras-rs", template=template, names=names)
    assert "beta1_power" not in done.left_out
    assert any(np.array_equal(value, np.float32(0.81))
               for value in values_of(tmp_path / "out").values())
    for name in ("words", "words/Adagrad", "dense/bias"):  # as a table, a slot or another variable
        with pytest.raises(ValueError, match="`names` must be different for different variables"):
            checkpoint.convert(tmp_path / "out", tmp_path / "back", "v1", names={
                name: f"{model.optimizer.name}/learning_rate"})
    assert not list(tmp_path.glob("back*"))
