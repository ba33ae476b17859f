# SPDX-License-Identifier: Apache-2.0
"""A Keras model of tables and a forward pass, with the methods of TPUEstimator."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.trainer import columns, initial_values
from tpu_estimator_embedding.trainer.forward import ModeKeys
from tpu_estimator_embedding.trainer.trainer import (
    SavingListener,
    Trainer,
    Variables,
    check_no_sessions,
    check_steps,
    listeners_of,
    warn_of_no_batch,
)
from tpu_estimator_embedding.types import Structure, Tensor


class KerasTrainer(Trainer):
    """Trains a forward function and a `mid_level.TPUEmbeddingLayer` with `Model.fit`.

    The arguments and methods are those of `Trainer`. `model` is the Keras model. The variables
    are made from the `element_spec` of the input, so that `fit` reads every batch, once.

    Example: what `migrate --to layers` writes::

        trainer = KerasTrainer(model_fn, embedding_config, make_optimizer, dense_learning_rate,
                               train_batch_size=64)
        trainer.train(input_fn, steps=1000)
    """

    def train(self, input_fn: Callable[..., tf.data.Dataset], hooks: object = None,
              steps: int | None = None, max_steps: int | None = None,
              saving_listeners: Sequence[SavingListener] | None = None) -> "KerasTrainer":
        """Trains as `Trainer.train` does, in one epoch of `Model.fit`."""
        check_steps(steps, max_steps)
        check_no_sessions(hooks=hooks)
        listeners = listeners_of(saving_listeners)
        dataset = self._dataset(input_fn, ModeKeys.TRAIN)
        self._build(dataset.element_spec, ModeKeys.TRAIN)
        if max_steps is not None:
            steps = max(0, max_steps - self._step())
        if steps == 0:
            return self
        try:
            self.model.fit(dataset, steps_per_epoch=steps, verbose=2,
                           callbacks=[_AfterSteps(
                               lambda loss: self._after_step(loss, listeners))])
        except ValueError as error:
            if "(empty logs)" not in str(error).lower():
                raise
            warn_of_no_batch()
            return self
        self._end_training(listeners)
        return self

    def train_step(self, features: columns.Features, labels: Structure) -> Tensor:
        """Looks up, computes the loss, updates tables and dense variables; returns the loss."""
        ids, weights = columns.ids_and_weights(features, self.feature_config, self.embedding_config)
        with tf.GradientTape() as tape:
            activations = {name: self._with_multiplier(name, value) for name, value in
                           self.embedding(ids, weights, training=True).items()}
            loss = self._forward(features, labels, ModeKeys.TRAIN, ids, activations).loss
        of_tables, gradients = tape.gradient(
            loss, (self.embedding.trainable_variables, self.forward.trainable_variables))
        self.embedding.apply_gradients(of_tables)
        self._apply_dense(gradients)
        return loss

    def _make_tables(self) -> None:
        config = self.embedding_config
        self.feature_config = initial_values.with_own_draws(
            config.feature_config(self.global_step))
        self.embedding = mid_level.TPUEmbeddingLayer(
            self.feature_config, None, pipeline_execution_with_tensor_core=config.PIPELINED)
        self.model = _Model(self.embedding, self.train_step)
        self.model.compile()

    def _completed(self) -> contextlib.AbstractContextManager[None]:
        return self.embedding._tables.completed()

    def _table_variables(self) -> Variables:
        self.embedding._tables.complete()
        return dict(self.embedding._tables.variables)

    def _lookup(self, ids: columns.Features, weights: columns.Weights | None,
                mode: str) -> dict[str, Tensor]:
        # Without the layer's variable, which an export of the lookup does not need.
        tables = self.embedding._tables
        activations: dict[str, Tensor] = tables.lookup(
            ids, weights, tf.zeros([tables.carrier_size]), training=False)
        return activations

    def _with_multiplier(self, feature: str, activations: Tensor) -> Tensor:
        scale = columns.table_multiplier(self.feature_config[feature].table.name, self.global_step,
                                         self.embedding_config)
        return activations if scale is None else _with_scaled_gradient(activations, scale)


class _Model(tf.keras.Model):
    """What `fit` trains: its step is that of the Trainer."""

    def __init__(self, embedding: mid_level.TPUEmbeddingLayer,
                 step: Callable[[columns.Features, Structure], Tensor]) -> None:
        super().__init__()
        self.embedding, self._step = embedding, step

    def train_step(self, data: tuple[columns.Features, Structure]) -> dict[str, Tensor]:
        """Runs one step of `fit`."""
        return {"loss": self._step(*data)}


class _AfterSteps(tf.keras.callbacks.Callback):
    def __init__(self, function: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._function = function

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Tensor] | None = None) -> None:
        """Passes the loss of a step on."""
        self._function((logs or {})["loss"])


@tf.custom_gradient
def _with_scaled_gradient(value: Tensor,
                          scale: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, None]]]:
    return tf.identity(value), lambda gradient: (scale * gradient, None)
