# SPDX-License-Identifier: Apache-2.0
"""Activations that a model concatenates are written, and their gradients read, where they are."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding as tpu_embedding
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.compat import upstream

# The gradient of a concatenation of more than 16 tensors is one op.
DIMS = {f"t{k:02d}": (3, 16, 33, 1)[k % 4] for k in range(17)}
SAME_DIMS = dict.fromkeys(DIMS, 4)
ROWS = {name: 5 + dim for name, dim in DIMS.items()}
BATCH = 6


@pytest.fixture(autouse=True)
def _native_kernels(monkeypatch):
    choose_kernels("native", monkeypatch)


def _columns(count, dims):
    return [tf.compat.v1.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity(name, ROWS[name]), dim,
        "mean" if dim == 3 else "sum",
        initializer=tf.compat.v1.random_normal_initializer(seed=dim))
        for name, dim in list(dims.items())[:count]]


def _input_layer(features, columns):
    return tf.compat.v1.feature_column.input_layer(features, columns)


def _dense_features(features, columns):
    import tf_keras
    return tf_keras.layers.DenseFeatures(columns)(features)


def _apart(features, columns):
    return [_input_layer(features, [column]) for column in columns]


def _own_order(features, columns):
    parts = _apart(features, columns)
    return tf.concat(parts[::-1], axis=-1)


def _used_twice(features, columns):
    parts = _apart(features, columns)
    return tf.concat(parts, axis=-1) + tf.reduce_sum(parts[1], axis=1, keepdims=True)


def _concatenated_twice(features, columns):
    parts = _apart(features, columns)
    return tf.concat(parts, axis=1) + tf.concat(parts[::-1], axis=1)


def _with_another(features, columns):
    return tf.concat([*_apart(features, columns), tf.ones([BATCH, 2])], axis=1)


def _interactions(features, columns):
    """A DLRM: products of all vectors, beside the vectors."""
    of_numbers = tf.sin(tf.compat.v1.get_variable("of_numbers", [BATCH, 4], use_resource=True))
    vectors = [of_numbers, *_apart(features, columns)]
    stacked = tf.stack(vectors, axis=1)
    products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, len(vectors) ** 2])
    return tf.concat([products, *vectors], axis=1)


def _along_the_batch(features, columns):
    return tf.concat([tf.pad(part, [[0, 0], [0, 33 - part.shape[1]]])
                      for part in _apart(features, columns)], axis=0)


LAYERS = {layer.__name__: layer for layer in (
    _input_layer, _dense_features, _own_order, _used_twice, _concatenated_twice, _with_another,
    _interactions, _along_the_batch)}


def _input_fn(params):
    random = np.random.default_rng(3)
    ids = {name: random.integers(0, rows, [5 * BATCH, 4]) for name, rows in ROWS.items()}
    lengths = random.integers(1, 5, [5 * BATCH])

    def to_sparse(batch, lengths):
        mask = tf.sequence_mask(lengths, 4)
        return {name: tf.SparseTensor(tf.where(mask), tf.boolean_mask(values, mask),
                                      [BATCH, 4]) for name, values in batch.items()}

    return tf.data.Dataset.from_tensor_slices((ids, lengths)).batch(
        BATCH, drop_remainder=True).map(to_sparse)


class _Ops(tf.compat.v1.train.SessionRunHook):
    """Counts the ops of a training graph that run in a step."""

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(None, options=tf.compat.v1.RunOptions(
            trace_level=tf.compat.v1.RunOptions.FULL_TRACE))

    def after_run(self, run_context, run_values):
        self.types = [node.timeline_label.partition(" = ")[2].partition("(")[0]
                      for device in run_values.run_metadata.step_stats.dev_stats
                      for node in device.node_stats]


def _train(model_dir, layer, hooks=(), count=4):
    columns = _columns(count, SAME_DIMS if layer is _interactions else DIMS)

    def model_fn(features, labels, mode, params):
        inputs = layer(features, columns)
        kernel = tf.compat.v1.get_variable(
            "kernel", [inputs.shape[-1], 2], use_resource=True,
            initializer=tf.compat.v1.random_normal_initializer(seed=1))
        loss = tf.reduce_sum(tf.sin(inputs @ kernel))
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.AdagradOptimizer(0.1))
        return upstream.tpu_estimator.TPUEstimatorSpec(
            mode, loss=loss, predictions={"inputs": inputs},
            train_op=optimizer.minimize(loss, tf.compat.v1.train.get_global_step()))

    estimator = tpu_embedding.TPUEstimator(
        model_fn=model_fn, model_dir=str(model_dir), use_tpu=True, train_batch_size=BATCH,
        predict_batch_size=BATCH,
        config=upstream.tpu_config.RunConfig(
            tf_random_seed=1,
            tpu_config=upstream.tpu_config.TPUConfig(iterations_per_loop=1)),
        embedding_config_spec=tpu_embedding.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tpu_embedding.AdagradParameters(0.3)))
    estimator.train(_input_fn, max_steps=5, hooks=hooks)
    values = {name: estimator.get_variable_value(name)
              for name in estimator.get_variable_names()}
    return values, [each["inputs"] for each in estimator.predict(_input_fn)]


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [*((name, 4) for name in LAYERS),
                                             ("_input_layer", 17), ("_interactions", 17)])
def test_trained_values_have_the_same_bits(tmp_path, monkeypatch, name, count):
    """As without joining, however the model uses its activations."""
    values, predictions = _train(tmp_path / "joined", LAYERS[name], count=count)
    monkeypatch.setattr("tpu_estimator_embedding.estimator.step.joined_tables.may_join",
                        lambda plan: False)
    expected, expected_predictions = _train(tmp_path / "apart", LAYERS[name], count=count)
    assert sorted(values) == sorted(expected)
    for variable, value in expected.items():
        np.testing.assert_array_equal(values[variable], value, variable)
    np.testing.assert_array_equal(predictions, expected_predictions)


@pytest.mark.parametrize(("name", "count"), [
    ("_input_layer", 4), ("_dense_features", 4), ("_own_order", 4), ("_input_layer", 17)])
def test_no_copies_are_left(tmp_path, name, count):
    ops = _Ops()
    _train(tmp_path, LAYERS[name], [ops], count)
    copies = {"ConcatV2", "SplitV", "Split", "Slice", "StridedSlice"}
    assert "TpuEmbeddingJoinedLookUp" in ops.types and not copies & set(ops.types)


def test_beside_others_all_tables_are_one_piece(tmp_path):
    ops = _Ops()
    _train(tmp_path, _with_another, [ops])
    copies = {"SplitV", "Slice", "StridedSlice"}
    assert ops.types.count("ConcatV2") == 1 and not copies & set(ops.types)


@pytest.mark.parametrize("count", [4, 17])
def test_interactions_have_no_ops_for_each_table(tmp_path, count):
    ops = _Ops()
    _train(tmp_path, _interactions, [ops], count)
    assert "TpuEmbeddingJoinedLookUp" in ops.types
    assert not {"Pack", "Unpack", "SplitV"} & set(ops.types)
    # Of both vectors of a product; of both uses of `of_numbers`; of both uses of all tables.
    assert ops.types.count("AddN") == 3


def test_other_models_keep_their_ops(tmp_path):
    ops = _Ops()
    _train(tmp_path, _along_the_batch, [ops])
    assert "TpuEmbeddingLookUp" in ops.types and "TpuEmbeddingJoinedLookUp" not in ops.types


def test_tensorflows_ops_look_up_apart(tmp_path, monkeypatch):
    choose_kernels("tf", monkeypatch)
    ops = _Ops()
    _train(tmp_path, _input_layer, [ops])
    assert "ConcatV2" in ops.types and not [name for name in ops.types if "TpuEmbed" in name]
