# SPDX-License-Identifier: Apache-2.0
"""A click model and its input as programs for TPUEstimator define them, with TensorFlow's API.

Two hidden layers compute the log odds of a click from the embeddings of all ids, averages of the
sequences and the price.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow.compat.v1 as tf

from tpu_estimator_embedding.demo.features import FEATURES, LABEL, PRICE, ClickFeature
from tpu_estimator_embedding.io import parse_examples, record_batches
from tpu_estimator_embedding.types import Tensor

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
    from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn

_LAYERS = (64, 32)


def embedding_columns() -> "list[EmbeddingColumn]":
    """Returns one TPU embedding column for every feature."""
    alone = [_embedding_column(feature) for feature in FEATURES if not feature.table]
    shared = [feature for feature in FEATURES if feature.table]
    return alone + tf.tpu.experimental.shared_embedding_columns(
        [_categorical_column(feature) for feature in shared], dimension=shared[0].dimension,
        combiner=shared[0].combiner, initializer=_initializer(),
        shared_embedding_collection_name=shared[0].table)


def embedding_config_spec(
        learning_rate: float = 0.5,
        multiplier: Callable[[Tensor], Tensor] | None = None) -> "EmbeddingConfigSpec":
    """Returns the EmbeddingConfigSpec of all columns.

    Args:
        learning_rate: learning rate of all tables.
        multiplier: function of the global step that scales their gradients, or None.
    """
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        feature_columns=embedding_columns(),
        optimization_parameters=tf.tpu.experimental.AdagradParameters(
            learning_rate, initial_accumulator=0.1),
        experimental_gradient_multiplier_fn=multiplier)


def is_table(variable_name: str) -> bool:
    """Whether a variable in a checkpoint is a table, not a slot or a dense variable."""
    shared = {feature.table for feature in FEATURES}
    return variable_name in shared or variable_name.endswith("/embedding_weights")


def model_fn(features, labels, mode, params):
    """Builds the model for one mode.

    Args:
        features: those of `record_spec`.
        labels: `[batch, 1]` float32, or None for predictions.
        mode: a `tf.estimator.ModeKeys`.
        params: has the keys "columns", the embedding columns, and "dense_learning_rate".
    """
    log_odds = _log_odds(features, params["columns"])
    probability = tf.sigmoid(log_odds)
    predictions = {"probability": probability}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, predictions=predictions,
            export_outputs={"serving_default": tf.estimator.export.PredictOutput(predictions)})
    loss = tf.losses.sigmoid_cross_entropy(labels, log_odds)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(_metrics, [labels, probability]))
    optimizer = tf.tpu.CrossShardOptimizer(
        tf.train.AdagradOptimizer(params["dense_learning_rate"]))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def _log_odds(features, columns):
    inputs = [tf.log1p(features[PRICE])]
    sequences = [column for column in columns if column.is_sequence_column()]
    singles = [column for column in columns if not column.is_sequence_column()]
    inputs.append(tf.keras.layers.DenseFeatures(singles)(features))
    for column in sequences:
        inputs.append(_weighted_positions(features, column))
    hidden = tf.concat(inputs, axis=1)
    for number, width in enumerate(_LAYERS):
        hidden = tf.nn.relu(_dense(hidden, width, f"hidden_{number}"))
    return _dense(hidden, 1, "log_odds")


def _dense(inputs, width, name):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [inputs.shape[1], width])
        bias = tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
    return tf.matmul(inputs, kernel) + bias


def _weighted_positions(features, column):
    """Averages a sequence `[batch, length, dim]`; later positions have more weight."""
    activations, lengths = tf.keras.experimental.SequenceFeatures([column])(features)
    positions = tf.range(tf.shape(activations)[1])[tf.newaxis, :]
    from_the_end = tf.cast(lengths[:, tf.newaxis], tf.int32) - 1 - positions
    weights = tf.where(from_the_end >= 0, tf.pow(0.5, tf.cast(from_the_end, tf.float32)),
                       tf.zeros_like(from_the_end, tf.float32))
    weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
    return tf.reduce_sum(activations * weights[:, :, tf.newaxis], axis=1)


def _metrics(labels, probability):
    return {"auc": tf.metrics.auc(labels, probability, num_thresholds=1000)}


def _categorical_column(feature: ClickFeature):
    if feature.is_sequence:
        return tf.feature_column.sequence_categorical_column_with_identity(
            feature.name, feature.vocabulary_size)
    column = tf.feature_column.categorical_column_with_identity(
        feature.name, feature.vocabulary_size)
    if feature.weight_key:
        return tf.feature_column.weighted_categorical_column(column, feature.weight_key)
    return column


def _embedding_column(feature: ClickFeature):
    return tf.tpu.experimental.embedding_column(
        _categorical_column(feature), feature.dimension, combiner=feature.combiner,
        initializer=_initializer(),
        max_sequence_length=feature.max_ids if feature.is_sequence else 0)


def _initializer():
    # Smaller than the default, so that untrained ids have little effect on predictions.
    return tf.truncated_normal_initializer(stddev=0.05)


def record_spec() -> dict[str, tf.io.FixedLenFeature | tf.io.VarLenFeature]:
    """Returns the parsing spec of a SavedModel for a record's features, without the label."""
    spec = {PRICE: tf.io.FixedLenFeature([1], tf.float32)}
    for feature in FEATURES:
        spec[feature.name] = tf.io.VarLenFeature(tf.int64)
        if feature.weight_key:
            spec[feature.weight_key] = tf.io.VarLenFeature(tf.float32)
    return spec


def make_input_fn(files: Sequence[pathlib.Path], first_batch: int = 0
                  ) -> Callable[[dict[str, Any]], tf.data.Dataset]:
    """Returns an `input_fn` that reads the files once, in order.

    Args:
        files: click logs.
        first_batch: batches before it are skipped, because an earlier run has used them.

    Returns:
        A function of `params` that returns a dataset of `(features, labels)`: id features as
        RaggedTensors `[batch, (ids)]`, the price `[batch, 1]`, labels `[batch, 1]` float32. The
        last batch may be smaller.
    """
    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        dataset = record_batches(files, params["batch_size"]).skip(first_batch)
        return dataset.map(_parse, num_parallel_calls=2).prefetch(4)

    return input_fn


def _parse(serialized: tf.Tensor) -> tuple[dict[str, Tensor], Tensor]:
    # Parses whole batches, which is several times faster than single records.
    features = parse_examples(serialized, embedding_columns(), {
        PRICE: record_spec()[PRICE], LABEL: tf.io.FixedLenFeature([1], tf.int64)})
    return features, tf.cast(features.pop(LABEL), tf.float32)
