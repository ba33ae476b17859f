# SPDX-License-Identifier: Apache-2.0
"""Trains models on two logical CPUs and saves them in every way; prints the ways that worked."""

import sys

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import Adagrad
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

IDS = {"small": np.array([1, 2, 3, 4]), "large": np.array([10, 20, 30, 40])}


def dataset():
    return tf.data.Dataset.from_tensors((IDS, np.ones([4, 1], np.float32)))


def model_of(keras, value):
    """Returns a model with a small and a large table, which start with one value."""
    features = {name: FeatureConfig(TableConfig(
        rows, 2, tf.compat.v1.constant_initializer(value), name=name))
        for name, rows in (("small", 5), ("large", 50))}
    layer = partial_layer_class(keras)(features, Adagrad(0.5), size_threshold=10, name="partial")
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in features}
    outputs = layer(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs["small"] + outputs["large"]))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def state_of(model):
    layer = model.get_layer("partial")
    ids = {name: tf.constant(ids) for name, ids in IDS.items()}
    return {"outputs": model(ids, training=False).numpy(), **{
        name: value.numpy() for name, value in layer.tpu_embedding._tables.variables.items()}}


def same(found, expected):
    return all(np.allclose(found[name], values, rtol=1e-5) for name, values in expected.items())


def copies(keras, model, directory, strategy):
    """Yields a name and a copy for each way to save and load, the copies made in the strategy."""
    def new_model():
        with strategy.scope():
            return model_of(keras, 7.0)

    files = ["model.keras"] + ["model.h5"] * (keras.__version__ < "3")
    for file in files:
        model.save(f"{directory}/{file}")
        with strategy.scope():
            yield file, keras.models.load_model(f"{directory}/{file}")
    for file in ["a.weights.h5"] + ["a.h5"] * (keras.__version__ < "3"):
        copy = new_model()
        model.save_weights(f"{directory}/{file}")
        copy.load_weights(f"{directory}/{file}")
        yield file, copy
    copy = new_model()
    path = tf.train.Checkpoint(model=model).save(f"{directory}/checkpoint")
    tf.train.Checkpoint(model=copy).restore(path).expect_partial()
    yield "checkpoint", copy


def check_export(model, directory, expected):
    model.export(f"{directory}/export")
    serve = tf.saved_model.load(f"{directory}/export").signatures["serving_default"]
    [served] = serve(**{name: tf.constant(ids) for name, ids in IDS.items()}).values()
    np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-6)


def main(directory, *names):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    import importlib
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name in names:
        keras = importlib.import_module(name)
        with mirrored.scope():
            model = model_of(keras, 1.0)
        model.fit(dataset(), epochs=2, verbose=0)
        expected = state_of(model)
        for strategy in (tf.distribute.get_strategy(), mirrored):
            ways = [way for way, copy in copies(keras, model, directory, strategy)
                    if same(state_of(copy), expected)]
            print(name, strategy.num_replicas_in_sync, *ways)
        check_export(model, directory, expected["outputs"])
        print(name, "export")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
