# SPDX-License-Identifier: Apache-2.0
"""A training loop around tables of Keras RS, with the methods of TPUEstimator."""

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.trainer import columns
from tpu_estimator_embedding.trainer.forward import ModeKeys
from tpu_estimator_embedding.trainer.trainer import Trainer, Variables
from tpu_estimator_embedding.types import Structure, Tensor

# Slot of a table -> attribute of a Keras optimizer with that slot of all its variables.
_SLOTS = {"accumulators": "_accumulators", "momenta": "_momentums", "velocities": "_velocities"}


class KerasRsTrainer(Trainer):
    """Trains a forward function and a `keras_rs.layers.DistributedEmbedding`.

    The arguments and methods are those of `Trainer`. Without a TPU the layer does not train its
    tables; this class does, with the Keras 3 optimizers of `embedding_config.optimizers()`.

    Example: what `migrate --to keras-rs` writes::

        trainer = KerasRsTrainer(model_fn, embedding_config, make_optimizer, dense_learning_rate,
                                 train_batch_size=64)
        trainer.train(input_fn, steps=1000)
    """

    def train_step(self, features: columns.Features, labels: Structure) -> Tensor:
        """Looks up, computes the loss, updates tables and dense variables; returns the loss."""
        ids, weights = columns.ids_and_weights(features, self.feature_config, self.embedding_config)
        with tf.GradientTape(persistent=True) as tape:
            activations = self._lookup(ids, weights, ModeKeys.TRAIN)
            loss = self._forward(features, labels, ModeKeys.TRAIN, ids, activations).loss
        of_activations, gradients = tape.gradient(
            loss, (activations, self.forward.trainable_variables))
        tables = self._tables()
        table_gradients = tape.gradient(
            activations, {name: table.value for name, table in tables.items()},
            output_gradients=_with_zeros(of_activations, activations))
        for name, table in tables.items():
            if table_gradients[name] is not None:  # else no feature of the batch has the table
                self._update_table(name, table, table_gradients[name])
        self._apply_dense(gradients)
        return loss

    def _make_tables(self) -> None:
        import keras_rs  # type: ignore[import-untyped]
        self.feature_config = self.embedding_config.feature_config()
        self.embedding = keras_rs.layers.DistributedEmbedding(self.feature_config)
        self._table_optimizers: dict[str, Any] = self.embedding_config.optimizers()

    def _make_table_slots(self) -> None:
        for name, table in self._tables().items():
            if not self._table_optimizers[name].built:
                self._table_optimizers[name].build([table])

    def _tables(self) -> dict[str, tf.Variable]:
        """Returns table -> its Keras variable."""
        return {layer.name: layer.embeddings for layer in
                self.embedding._default_device_embedding_layers.values()}

    def _completed(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # Keras RS has no pipelining

    def _table_variables(self) -> Variables:
        found = dict(self._tables())
        for name, optimizer in self._table_optimizers.items():
            for slot, attribute in _SLOTS.items():
                if slots := getattr(optimizer, attribute, None):
                    found[f"{name}/{slot}"] = slots[0]
        return found

    def _saved(self) -> dict[str, object]:
        return {**super()._saved(), "table_optimizers": self._table_optimizers}

    def _lookup(self, ids: columns.Features, weights: columns.Weights | None,
                mode: str) -> dict[str, Tensor]:
        looked_up = {name: _in_rows(value) for name, value in ids.items()}
        if weights is not None:
            weights = {name: _in_rows(weights[name]) if weights[name] is not None
                       else tf.ones_like(value, tf.float32)
                       for name, value in looked_up.items()}
        activations: dict[str, Tensor] = self.embedding(looked_up, weights,
                                                     training=mode == ModeKeys.TRAIN)
        return activations

    def _update_table(self, name: str, table: tf.Variable, gradient: tf.IndexedSlices) -> None:
        config, optimizer = self.embedding_config, self._table_optimizers[name]
        gradient = _of_each_row_once(gradient)
        values = gradient.values
        scale = columns.table_multiplier(name, self.global_step, config)
        values = values if scale is None else scale * values
        low, high = config.GRADIENT_LIMITS.get(name, (None, None))
        values = values if low is None else tf.maximum(values, low)
        values = values if high is None else tf.minimum(values, high)
        if name in config.LEARNING_RATES:
            optimizer.learning_rate.assign(config.LEARNING_RATES[name](self.global_step))
        optimizer.apply(
            [tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)], [table])


def _with_zeros(gradients: Mapping[str, Tensor | None],
                activations: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replaces missing gradients of activations by zeros, as TPUEstimator does."""
    without = sorted(name for name, gradient in gradients.items() if gradient is None)
    if without:
        warnings.warn(f"The gradients of features {without} are None: their rows are updated with "
                      "a gradient of zeros.", stacklevel=2)
    return {name: tf.zeros_like(activations[name]) if gradient is None else gradient
            for name, gradient in gradients.items()}


def _in_rows(value: columns.FeatureTensor) -> columns.FeatureTensor:
    """Converts a sparse batch to a ragged one: Keras RS would look up id 0 in the gaps."""
    if not isinstance(value, tf.SparseTensor):
        return value
    return tf.RaggedTensor.from_value_rowids(
        value.values, value.indices[:, 0], nrows=value.dense_shape[0])


def _of_each_row_once(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the gradients of ids that repeat in a batch, which Keras 3 does not do."""
    ids, places = tf.unique(gradient.indices)
    return tf.IndexedSlices(
        tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids)), ids,
        gradient.dense_shape)
