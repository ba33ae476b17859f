# SPDX-License-Identifier: Apache-2.0
"""EmbeddingStatisticsCallback: in `fit`, and in custom training loops."""


import numpy as np
import pytest
import tensorflow as tf

from tests.event_files import events
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.mid_level import SGD, Adagrad, FeatureConfig, TableConfig, TPUEmbedding
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.statistics_callback import (
    statistics_callback_class,
)
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

IDS = np.array([0, 1, 1, 1, 2, 3, 3, 3])  # two in a batch


@pytest.fixture(autouse=True, params=["tf", "native"])
def kernels(request, monkeypatch):
    choose_kernels(request.param, monkeypatch)


def table():
    return TableConfig(12, 4, tf.zeros_initializer(), combiner="sum", name="counts")


def fitted(log_dir, layer_class, callbacks, optimizer, **options):
    features = {"id": FeatureConfig(table())}
    layer = layer_class(features, optimizer, **options)
    inputs = tf.keras.Input([1], dtype=tf.int64, name="id")
    model = tf.keras.Model({"id": inputs}, layer({"id": inputs})["id"])
    model.compile(tf.keras.optimizers.SGD(1.0), loss=lambda labels, outputs: -tf.reduce_sum(
        outputs, -1) + 0 * tf.reduce_sum(labels))
    dataset = tf.data.Dataset.from_tensor_slices(
        ({"id": IDS[:, np.newaxis]}, np.zeros([8, 4], np.float32))).batch(2)
    for callback in callbacks:
        model.fit(dataset, epochs=1, callbacks=callback, verbose=0)
    layer = getattr(layer, "tpu_embedding", layer)
    [rows] = layer.embedding_tables.values()
    return rows.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("make, options", [
    (embedding_layer_class, {}), (partial_layer_class, {"size_threshold": 0})])
def test_numbers_of_every_second_batch_of_fit(make, options, tmp_path):
    callback = statistics_callback_class(tf.keras)(tmp_path, 2)
    # The loss is a mean over the two samples of a batch: gradients are -1/2.
    fitted(tmp_path, make(tf.keras), [[], [callback]], SGD(1.0), **options)
    found = {tag.rpartition("/")[2]: points for tag, points in events(tmp_path).items()}
    assert found["unique_ids"] == {2: 1, 4: 1}
    assert found["total_ids"] == {2: 2, 4: 2}
    assert found["gradient_norm"] == {2: 2, 4: 2}  # of four columns of -1/2 - 1/2
    assert found["update_norm"] == {2: 2, 4: 2}
    assert found["coverage"] == pytest.approx({2: 2 / 12, 4: 4 / 12})
    assert found["row_norms"][4].num == 1


@pytest.mark.slow
def test_marks_begin_with_what_was_trained_before(tmp_path):
    callback = statistics_callback_class(tf.keras)(tmp_path, 4)
    fitted(tmp_path, embedding_layer_class(tf.keras), [[callback], [callback]], Adagrad(1.0))
    [coverage] = [points for tag, points in events(tmp_path).items() if "coverage" in tag]
    assert coverage == pytest.approx({4: 4 / 12, 8: 4 / 12})


@pytest.mark.slow
def test_fit_with_the_callback_is_bit_for_bit_that_without(tmp_path):
    callback = statistics_callback_class(tf.keras)(tmp_path, 2)
    rows = [fitted(tmp_path, embedding_layer_class(tf.keras), [callbacks], Adagrad(0.3))
            for callbacks in ([], [callback])]
    assert rows[0].tobytes() == rows[1].tobytes()


@pytest.mark.parametrize("log_dir", [None, 3, b"logs"])
def test_directory_that_is_no_path_is_refused(log_dir):
    with pytest.raises(TypeError, match=f"`log_dir` must be a path, got {log_dir}"):
        statistics_callback_class(tf.keras)(log_dir)


def test_embedding_without_tables_is_refused(tmp_path):
    with pytest.raises(TypeError, match="`embedding` must be a TPUEmbedding, TPUEmbeddingV2 or "
                       "layer with tables, or None, got 5"):
        statistics_callback_class(tf.keras)(tmp_path, embedding=5)


def test_model_without_tables_is_an_error(tmp_path):
    inputs = tf.keras.Input([1])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="`model` must be a model with a TPUEmbeddingLayer"):
        model.fit(np.ones([2, 1]), np.ones([2, 1]), verbose=0,
                  callbacks=[statistics_callback_class(tf.keras)(tmp_path)])


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("make", [TPUEmbedding, TPUEmbeddingV2])
def test_loop_of_ones_own(make, pipelined, tmp_path):
    embedding = make({"id": FeatureConfig(table(), output_shape=[4])}, SGD(1.0), pipelined)
    callback = statistics_callback_class(tf.keras)(tmp_path, 1, embedding)

    @tf.function
    def step(ids):
        if make is TPUEmbedding:
            embedding.enqueue({"id": ids})
            activations, preserved = embedding.dequeue(), ()
        else:
            activations, *preserved = embedding({"id": ids})
        embedding.apply_gradients({"id": -tf.ones_like(activations["id"])}, *preserved)

    callback.on_train_begin()
    for batch, ids in enumerate([[0, 1, 1, 1], [2, 2, 2, 2], [4, 5, 6, 7]]):
        callback.on_train_batch_begin(batch)
        step(tf.constant(ids))
        callback.on_train_batch_end(batch)
    found = {tag.rpartition("/")[2]: points for tag, points in events(tmp_path).items()}
    unique = [2, 1, 4]
    assert found["unique_ids"] == {step: value for step, value in zip(
        (2, 3, 4) if pipelined else (1, 2, 3), unique, strict=True) if step < 4}
    assert found["total_ids"][3] == 4


@pytest.mark.slow
@pytest.mark.parametrize("is_v2", [False, True], ids=["layer", "v2"])
def test_a_measured_model_is_exported(is_v2, tmp_path):
    """Functions that were traced before the export measure; the export keeps their results."""
    config = {"id": FeatureConfig(table(), output_shape=[4])}
    if is_v2:
        embedding = TPUEmbeddingV2(config, Adagrad(1.0))
        embedding.build()
    else:
        embedding = embedding_layer_class(tf.keras)(config, Adagrad(1.0))
    callback = statistics_callback_class(tf.keras)(tmp_path / "logs", 1, embedding=embedding)
    module = tf.Module()
    module.embedding = embedding

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int64)])
    def step(ids):
        if is_v2:
            activations, preserved = embedding({"id": ids})
            embedding.apply_gradients({"id": tf.ones_like(activations["id"])}, preserved)
            return activations["id"]
        with tf.GradientTape() as tape:
            activations = embedding({"id": ids}, training=True)["id"]
            loss = tf.reduce_sum(activations)
        gradients = tape.gradient(loss, embedding.trainable_variables)
        getattr(embedding, "tpu_embedding", embedding).apply_gradients(gradients)
        return activations

    module.step = step
    callback.on_train_begin()
    callback.on_train_batch_begin(0)
    step(tf.constant([3, 5, 5, 0], tf.int64))
    callback.on_train_batch_end(0)
    tf.saved_model.save(module, str(tmp_path / "export"))
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    ids = tf.constant([3, 4, 0, 0], tf.int64)
    for _ in range(2):
        np.testing.assert_allclose(loaded.step(ids), step(ids), rtol=1e-6)
    assert len(events(tmp_path / "logs"))
