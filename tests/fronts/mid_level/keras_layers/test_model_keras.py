# SPDX-License-Identifier: Apache-2.0
"""Layers in models of another Keras, and ids that Keras 3 passes as floats."""

import importlib
import importlib.metadata

import numpy as np
import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

HAS_KERAS_3 = importlib.metadata.version("keras") >= "3"
LAYERS = {"layer": lambda keras, config: embedding_layer_class(keras)(config, SGD(0.1)),
          "partial": lambda keras, config: partial_layer_class(keras)(config, SGD(0.1)),
          "partial of large tables": lambda keras, config: partial_layer_class(keras)(
              config, SGD(0.1), size_threshold=0)}
IDS = np.array([[1], [4], [1], [2]], np.int32)


def model_of(keras, layer):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = layer, keras.layers.Dense(1)

        def call(self, inputs, training=None):
            return self.dense(self.embedding({"a": inputs["a"]})["a"])

    model = Model()
    model.compile("sgd", "mse")
    return model


def new_layer(kind, keras):
    return LAYERS[kind](keras, {"a": FeatureConfig(TableConfig(9, 2))})


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("of_model, of_layer", [("keras", "tf_keras"), ("tf_keras", "keras")])
def test_a_model_of_another_keras_is_refused(of_model, of_layer, kind):
    layer = new_layer(kind, importlib.import_module(of_layer))
    model = model_of(importlib.import_module(of_model), layer)
    with pytest.raises(ValueError, match="must be called by a model of the same Keras, got a layer "
                       "of .* in a model of .*, which would not save its tables"):
        model({"a": tf.constant(IDS)}, training=True)
    layer({"a": tf.constant(IDS)})  # by itself it may be called


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("of_model, of_layer", [("keras", "tf_keras"), ("tf_keras", "keras")])
def test_a_functional_model_of_another_keras_is_refused(of_model, of_layer, kind):
    if not HAS_KERAS_3:
        pytest.skip("needs Keras 3")
    layer = new_layer(kind, importlib.import_module(of_layer))
    inputs = importlib.import_module(of_model).Input([1], dtype="int32")
    with pytest.raises(ValueError, match="must be called by a model of the same Keras, got a layer "
                       "of .* in a model of .*, which would not save its tables"):
        layer({"a": inputs})


@pytest.mark.long
def test_a_keras_3_model_after_install_is_refused_with_the_fix():
    if not HAS_KERAS_3:
        pytest.skip("needs Keras 3")
    done = run_python("""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        import keras
        from tests.fronts.mid_level.keras_layers import test_model_keras
        from tpu_estimator_embedding import mid_level
        layer = mid_level.TPUEmbeddingLayer({"a": mid_level.FeatureConfig(
            mid_level.TableConfig(9, 2))}, mid_level.SGD(0.1))
        try:
            test_model_keras.model_of(keras, layer)({"a": test_model_keras.IDS})
        except ValueError as error:
            print(error)
    """)
    assert "Build the model with tf.keras, or leave out `install()` and `run`" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not HAS_KERAS_3, reason="needs Keras 3")
@pytest.mark.parametrize("with_signature", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_subclassed_model_is_exported(kind, with_signature, tmp_path):
    keras = importlib.import_module("keras")
    model = model_of(keras, new_layer(kind, keras))
    model.fit(tf.data.Dataset.from_tensors(({"a": IDS}, np.ones([4, 1], np.float32))), verbose=0)
    signature = [{"a": keras.InputSpec(shape=(None, 1), dtype="int32", name="a")}]
    model.export(str(tmp_path), verbose=False,
                 **({"input_signature": signature} if with_signature else {}))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(
        loaded.serve({"a": tf.constant(IDS, tf.int32 if with_signature else tf.float32)}),
        model.predict({"a": IDS}, verbose=0))
    if not with_signature:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be integers, got"):
            loaded.serve({"a": tf.constant(IDS + 0.5, tf.float32)})


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("ids", [[0.5], [float("nan")], [2.0 ** 25], [float("inf")]])
def test_floats_that_are_no_ids_are_refused(kind, ids):
    layer = new_layer(kind, importlib.import_module("tf_keras"))
    with pytest.raises(ValueError, match="Ids of feature 'a' must be integers, got 'float32'"):
        layer({"a": tf.constant(ids)})
    inputs = [tf.constant([3]), tf.constant([3.0]), tf.constant([3.0], tf.bfloat16)]
    if kind != "partial":  # Keras looks those up without a combiner
        inputs += [tf.ragged.constant([[3.0]]), tf.sparse.from_dense([[3.0]])]
    found = [layer({"a": each})["a"].numpy().tolist() for each in inputs]
    assert all(each == found[0] for each in found)
