# SPDX-License-Identifier: Apache-2.0
"""A pipelined layer: what evaluates, predicts, serves or saves sees every update."""

import logging

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

DATA = tf.data.Dataset.from_tensors(
    ({"f": np.zeros([2], np.int64)}, np.zeros([2, 1], np.float32))).repeat(3)


@pytest.fixture(autouse=True)
def no_warnings_of_functions_that_are_traced_again():
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def new_model(keras, layer_class=embedding_layer_class, optimizer=None, subclass=None, **options):
    """Returns a layer of one value per id, 1 at first, whose gradient is 1 in every step."""
    table = mid_level.TableConfig(5, 1, tf.compat.v1.ones_initializer(),
                                  optimizer or mid_level.SGD(1.0), "sum", name="t")
    layer = layer_class(keras)({"f": mid_level.FeatureConfig(table)}, None, **options,
                               pipeline_execution_with_tensor_core=True)
    ids = keras.Input([], dtype="int64", name="f")
    model = (subclass(keras)(layer) if subclass
             else keras.Model({"f": ids}, layer({"f": ids})["f"]))
    model.compile(keras.optimizers.SGD(0.1), loss=lambda y, p: tf.reduce_mean(p, -1) / 1.0)
    return layer, model


def without_training(keras):
    """Returns a class of models that Keras 3 never tells whether they train."""
    class Model(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def call(self, inputs):
            return self.layer(inputs)["f"]
    return Model


def with_own_steps(keras):
    """Returns the same with its own steps, which AutoGraph converts."""
    class Model(without_training(keras)):
        def test_step(self, data):
            return super().test_step(data)

        def predict_step(self, data):
            ids, _ = data
            return self(ids)
    return Model


def seen_by_evaluate(model):
    return model.evaluate(DATA.take(1), verbose=0)


def seen_by_predict(model):
    return model.predict(DATA.take(1), verbose=0)[1, 0]


def seen_by_call(model):
    return float(model({"f": tf.zeros([1], tf.int64)})[0, 0])


def copied_to_hdf5(model, folder):
    values = []
    model.save(str(folder / "model.h5"), include_optimizer=False)
    with h5py.File(folder / "model.h5") as file:
        file.visititems(lambda _, part: values.append(np.array(part)) if isinstance(
            part, h5py.Dataset) else None)
    return values


COPIES = {"get_weights": lambda model, _: model.get_weights(),
          "numpy": lambda model, _: [value.numpy() for value in model.weights],
          "an HDF5 file": copied_to_hdf5}


@pytest.mark.parametrize("copy", COPIES)
def test_copies_of_the_variables_have_every_update(keras, copy, tmp_path):
    _, model = new_model(keras)
    model.fit(DATA, verbose=0)
    [table] = [value for value in COPIES[copy](model, tmp_path) if value.shape == (5, 1)]
    np.testing.assert_array_equal(table[:2, 0], [-2.0, 1.0])


@pytest.mark.parametrize("way", ["set_weights", "load_weights", "legacy HDF5"])
def test_replaced_values_get_no_update_of_before(keras, way, tmp_path):
    layer, model = new_model(keras)
    model.fit(DATA, verbose=0)
    weights, path = model.get_weights(), str(tmp_path / {
        "legacy HDF5": "model.h5"}.get(way, "model.weights.h5"))
    save = model.save if way == "legacy HDF5" else model.save_weights
    save(path)
    model.fit(DATA, verbose=0)
    model.set_weights(weights) if way == "set_weights" else model.load_weights(path)
    np.testing.assert_array_equal(model.predict(DATA.take(1), verbose=0), -2.0)
    [table] = layer.embedding_tables.values()
    np.testing.assert_array_equal(table[:2, 0], [-2.0, 1.0])


WAYS = [seen_by_evaluate, seen_by_predict, seen_by_call]


@pytest.mark.slow
@pytest.mark.parametrize("seen", WAYS)
@pytest.mark.parametrize("layer_class", [embedding_layer_class, partial_layer_class])
def test_all_updates_are_seen_before_and_after_training(keras, seen, layer_class):
    options = {"size_threshold": 1} if layer_class is partial_layer_class else {}
    _, model = new_model(keras, layer_class, **options)
    assert seen(model) == 1  # its function is traced before any training
    for trained in (1, 2):
        model.fit(DATA, verbose=0)
        assert [seen(model), seen(model)] == [1 - 3 * trained] * 2


@pytest.mark.slow
@pytest.mark.parametrize("seen", [seen_by_evaluate, seen_by_predict])
@pytest.mark.parametrize("subclass", [without_training, with_own_steps])
@pytest.mark.parametrize("layer_class", [embedding_layer_class, partial_layer_class])
def test_models_whose_call_takes_no_training_see_all_updates(keras, layer_class, subclass, seen):
    options = {"size_threshold": 1} if layer_class is partial_layer_class else {}
    _, model = new_model(keras, layer_class, subclass=subclass, **options)
    for trained in (1, 2):
        model.fit(DATA, verbose=0)
        assert [seen(model), seen(model)] == [1 - 3 * trained] * 2


@pytest.mark.slow
@pytest.mark.parametrize("subclass", [None, without_training])
def test_validation_sees_the_epoch_before_it(keras, subclass):
    validated, model = new_model(keras, subclass=subclass)
    history = model.fit(DATA, epochs=3, validation_data=DATA.take(1), verbose=0)
    assert history.history["val_loss"] == [-2, -5, -8]
    # The first step of an epoch sees what validation has applied.
    assert history.history["loss"] == pytest.approx([
        np.mean([1, 1, 0]), np.mean([-2, -2, -3]), np.mean([-5, -5, -6])])
    assert validated.embedding_tables.popitem()[1].numpy()[0, 0] == -8


def test_training_stays_one_step_late(keras):
    layer, _ = new_model(keras, optimizer=mid_level.SGD(0.25))
    seen = []
    for training in (True, None, True):
        with tf.GradientTape() as tape:
            activations = layer({"f": tf.constant([0])}, training=training)["f"]
            loss = tf.reduce_sum(activations)
        seen.append(float(activations[0, 0]))
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    assert seen == [1.0, 1.0, 0.75]
    for training in (False, 0, np.bool_(False)):
        with tf.GradientTape():
            activations = layer({"f": tf.constant([0])}, training=training)["f"]
        assert float(activations[0, 0]) == 0.25


def test_shapes_that_training_did_not_have(keras, caplog):
    layer, model = new_model(keras)
    model.fit(DATA, verbose=0)
    predict = tf.function(lambda ids: layer({"f": ids}, training=False)["f"])
    for ids in (tf.zeros([1, 2], tf.int64), tf.zeros([3], tf.int64)):
        model.fit(DATA, verbose=0)
        found = predict(ids).numpy().ravel()
        model.fit(DATA, verbose=0)
        assert np.all(predict(ids).numpy().ravel() == found - 3)
    assert "other shapes" not in caplog.text


def test_shapes_of_a_function_traced_before_training_are_warned_of(keras, caplog):
    layer, model = new_model(keras)
    predict = tf.function(lambda ids: layer({"f": ids}, training=False)["f"])
    predict(tf.zeros([1, 2], tf.int64))
    model.fit(DATA, verbose=0)
    assert caplog.text.count("is trained with feature shapes that differ") == 1
    assert layer.embedding_tables.popitem()[1].numpy()[0, 0] == -2
    assert predict(tf.zeros([1, 2], tf.int64)).numpy().ravel().tolist() == [-2, -2]


@pytest.mark.slow
@pytest.mark.parametrize("export", ["export", "saved_model.save"])
def test_fitted_model_is_exported_with_all_updates(keras, export, tmp_path):
    _, model = new_model(keras)
    model.fit(DATA, verbose=0)
    seen_by_predict(model)
    model.fit(DATA, verbose=0)
    path = str(tmp_path / "model")
    if export == "export":
        model.export(path)
    else:
        tf.saved_model.save(model, path)
    signature = tf.saved_model.load(path).signatures["serving_default"]
    [name] = signature.structured_input_signature[1]
    [served] = signature(**{name: tf.zeros([1], tf.int64)}).values()
    assert served.numpy() == [[-5]]
    assert seen_by_call(model) == -5


@pytest.mark.slow
@pytest.mark.parametrize("subclass", [None, without_training])
@pytest.mark.parametrize("seen", [seen_by_evaluate, seen_by_predict])
def test_replicas_see_all_updates(keras, seen, subclass):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"] * 1)
    with strategy.scope():
        _, model = new_model(keras, subclass=subclass)
    assert seen(model) == 1
    model.fit(DATA, verbose=0)
    assert seen(model) == -2
