# SPDX-License-Identifier: Apache-2.0
"""Which ops the graph of every front door has: compiled ones, but where it is exported."""

import ast

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests import subprocesses
from tests.fronts.estimator import counting
from tests.fronts.low_level.small_program import SmallProgram
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.mid_level import (
    SGD,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingV2,
)
from tpu_estimator_embedding.mid_level.config.table_config import QuantizationConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

pytestmark = pytest.mark.every_tensorflow

LOOKUP = {"TpuEmbeddingPrepareIds", "TpuEmbeddingLookUp"}
TRAIN = LOOKUP | {"TpuEmbeddingUpdate"}
TF_LOOKUP = {"ResourceGather"}
TF_TRAIN = {"ResourceGather", "ResourceScatterUpdate"}
KNOWN = TRAIN | TF_TRAIN
IDS = tf.constant([1, 2, 3, 1], tf.int64)


def features(**options):
    table = TableConfig(10, 2, tf.compat.v1.ones_initializer(), combiner="sum", name="words",
                        **options)
    return {"title": FeatureConfig(table, output_shape=[4])}


def types_in(graph):
    """Returns the types of ops on tables in a graph and in its functions."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function
                                 for node in function.node_def)]
    return {node.op for node in nodes} & KNOWN


class GraphOfRun(tf.compat.v1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        self.types = types_in(session.graph)


def estimator(run):
    def types(tmp_path):
        hook, ids = GraphOfRun(), counting.input_of([1, 2, 3, 4])
        estimator = counting.new_estimator(tmp_path)
        estimator.train(ids, steps=1, hooks=[hook] if run == "train" else None)
        if run == "evaluate":
            estimator.evaluate(ids, hooks=[hook])
        elif run == "predict":
            list(estimator.predict(ids, hooks=[hook]))
        return hook.types
    return types


def low_level(num_cores):
    return lambda tmp_path: types_in(SmallProgram(num_cores).graph)


def tpu_embedding(training):
    def types(tmp_path):
        embedding = TPUEmbedding(features(), SGD(0.5))

        @tf.function
        def step(ids):
            embedding.enqueue({"title": ids}, training=training)
            activations = embedding.dequeue()
            if training:
                embedding.apply_gradients(activations)
            return activations

        return types_in(step.get_concrete_function(IDS).graph)
    return types


def tpu_embedding_v2(training, **options):
    def types(tmp_path):
        embedding = TPUEmbeddingV2(features(**options), SGD(0.5))

        @tf.function
        def step(ids):
            activations, preserved = embedding({"title": ids})
            if training:
                embedding.apply_gradients(activations, preserved)
            return activations

        return types_in(step.get_concrete_function(IDS).graph)
    return types


def layer(training, make):
    def types(tmp_path):
        layer = make()

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer({"title": ids}, training=training)["title"])
            if training:
                gradients = tape.gradient(loss, layer.trainable_variables)
                getattr(layer, "tpu_embedding", layer).apply_gradients(gradients)
            return loss

        return types_in(step.get_concrete_function(IDS).graph)
    return types


def embedding_layer():
    return embedding_layer_class(tf_keras)(features(), SGD(0.5))


def partial_layer():
    return partial_layer_class(tf_keras)(features(), SGD(0.5), size_threshold=5)


FRONT_DOORS = {
    "estimator, train": (estimator("train"), TRAIN, TF_TRAIN),
    "estimator, evaluate": (estimator("evaluate"), LOOKUP, TF_LOOKUP),
    "estimator, predict": (estimator("predict"), LOOKUP, TF_LOOKUP),
    "low level, 1 core": (low_level(1), TRAIN, TF_TRAIN),
    "low level, 2 cores": (low_level(2), TRAIN, TF_TRAIN),
    "TPUEmbedding, training": (tpu_embedding(True), TRAIN, TF_TRAIN),
    "TPUEmbedding": (tpu_embedding(False), LOOKUP, TF_LOOKUP),
    "TPUEmbeddingV2, training": (tpu_embedding_v2(True), TRAIN, TF_TRAIN),
    "TPUEmbeddingV2": (tpu_embedding_v2(False), LOOKUP, TF_LOOKUP),
    "TPUEmbeddingLayer, training": (layer(True, embedding_layer), TRAIN, TF_TRAIN),
    "TPUEmbeddingLayer, training unknown": (layer(None, embedding_layer), LOOKUP, TF_LOOKUP),
    "TPUEmbeddingLayer": (layer(False, embedding_layer), LOOKUP, TF_LOOKUP),
    "PartialTPUEmbedding, training": (layer(True, partial_layer), TRAIN, TF_TRAIN),
    "PartialTPUEmbedding": (layer(False, partial_layer), LOOKUP, TF_LOOKUP),
}


@pytest.mark.parametrize("front_door", FRONT_DOORS)
@pytest.mark.parametrize("kernels", ["native", "tf"])
def test_ops_are_those_of_the_chosen_kernels(front_door, kernels, tmp_path, monkeypatch):
    choose_kernels(kernels, monkeypatch)
    types, native, tf_ops = FRONT_DOORS[front_door]
    assert types(tmp_path) == (native if kernels == "native" else tf_ops)


def test_tpu_embedding_v2_prepares_the_ids_of_features(monkeypatch):
    choose_kernels("native", monkeypatch)
    small = TableConfig(10, 8, combiner="mean", name="a"), TableConfig(20, 8, name="b")
    embedding = TPUEmbeddingV2({name: FeatureConfig(table, output_shape=[4])
                                for name, table in zip("xy", small, strict=True)}, SGD(0.5))
    step = tf.function(lambda ids: embedding({"x": ids, "y": ids}))
    definition = step.get_concrete_function(IDS).graph.as_graph_def()
    [prepare] = [node for function in definition.library.function for node in function.node_def
                 if node.op == "TpuEmbeddingPrepareIds"]
    assert list(prepare.attr["feature_names"].list.s) == [b"x", b"y"]
    assert list(prepare.attr["feature_vocabulary_sizes"].list.i) == [10, 20]
    assert list(prepare.attr["combiners"].list.s) == [b"mean", b"mean"]
    assert list(prepare.attr["table_of_feature"].list.i) == [0, 1]
    assert len(set(prepare.attr["vocabulary_sizes"].list.i)) == 1  # one stack holds both
    assert list(prepare.attr["row_offsets"].list.i) == [0, 8]


def test_quantized_tables_run_on_tensorflows_ops(tmp_path, monkeypatch):
    choose_kernels("native", monkeypatch)
    quantized = tpu_embedding_v2(
        True, quantization_config=QuantizationConfig(3, -1.0, 1.0))
    assert quantized(tmp_path) == TF_TRAIN


class Served(tf.Module):
    """Functions on TPUEmbeddingV2 and a layer that a program traced before it saves them."""

    def __init__(self):
        super().__init__()
        self.embedding = TPUEmbeddingV2(features(), SGD(0.5))
        self.layer = embedding_layer()

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int64)])
    def lookup(self, ids):
        activations, _ = self.embedding({"title": ids})
        return activations["title"]

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int64)])
    def train(self, ids):
        activations, preserved = self.embedding({"title": ids})
        self.embedding.apply_gradients(activations, preserved)
        return tf.cond(ids[0] > 0, lambda: self.lookup(ids), lambda: 2.0 * activations["title"])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def call_layer(self, ids):
        return self.layer({"title": ids})["title"]


LOAD = """
    import sys
    import tensorflow as tf
    served = tf.saved_model.load({model!r})
    ids = tf.constant([1, 2, 3, 1], tf.int64)
    print(served.signatures["serving_default"](ids=ids)["output_0"].numpy()[:, 0].tolist())
    print(served.call_layer(ids).numpy()[:, 0].tolist())
    print(served.lookup(ids).numpy()[:, 0].tolist())
    print(served.train(ids).numpy()[:, 0].tolist())
    print(any(name.startswith("tpu_estimator") for name in sys.modules))
"""


@pytest.mark.long
def test_what_was_traced_before_it_is_exported_loads_without_the_package(tmp_path, monkeypatch):
    choose_kernels("native", monkeypatch)
    served = Served()
    found = [served.train(IDS), served.lookup(IDS), served.call_layer(IDS)]
    assert types_in(served.train.get_concrete_function().graph) == TRAIN
    signature = served.lookup.get_concrete_function()
    tf.saved_model.save(served, str(tmp_path / "model"), signatures=signature)
    # Saving changes nothing for this process.
    np.testing.assert_array_equal(served.lookup(IDS), found[1])
    assert types_in(served.lookup.get_concrete_function().graph) == LOOKUP
    done = subprocesses.run_python(LOAD.format(model=str(tmp_path / "model")))
    by_signature, by_layer, looked_up, trained, is_imported = map(
        ast.literal_eval, done.stdout.splitlines())
    np.testing.assert_allclose(by_signature, found[1][:, 0])
    np.testing.assert_allclose(by_layer, found[2][:, 0])
    np.testing.assert_allclose(looked_up, found[1][:, 0])
    np.testing.assert_allclose(trained, np.multiply(looked_up, [0.0, 0.5, 0.5, 0.0]))
    assert not is_imported
