# SPDX-License-Identifier: Apache-2.0
"""A Keras callback that says what tables do while they are trained."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.measure_recorder import MeasureRecorder
from tpu_estimator_embedding.statistics.summaries import to_line, to_summary
from tpu_estimator_embedding.statistics.table_statistics import TableStatistics, summarize

if TYPE_CHECKING:
    _Callback: Any
else:
    _Callback = object  # Keras' Callback comes in beside it


class _StatisticsCallback(_Callback):
    """Writes statistics of every table for TensorBoard, and a line into the log.

    They are those of EmbeddingStatisticsHook. Stacks of TPUEmbeddingV2 are tables here. With
    pipelining, a batch makes the update of the batch before it.

    A custom training loop calls `on_train_begin`, and `on_train_batch_begin(batch)` and
    `on_train_batch_end(batch)` around every batch.

    Args:
        log_dir: where event files go.
        every_n_batches: which batches are measured: multiples of it, counted over all epochs.
        embedding: a TPUEmbedding, TPUEmbeddingV2 or layer that `fit` does not train as a
            layer of its model; None takes the layers of the model.
        **kwargs: arguments of Keras' Callback.

    Raises:
        ValueError: if every_n_batches is not a positive int.
    """

    def __init__(self, log_dir: str, every_n_batches: int = 100, embedding: Any = None,
                 **kwargs: Any):
        super().__init__(**kwargs)
        checks.check_positive_int("every_n_batches", every_n_batches)
        self._every_n_batches, self._batches = every_n_batches, 0
        self._writer = tf.summary.create_file_writer(str(log_dir))
        self._recorders = _recorders([embedding]) if embedding is not None else {}

    def set_model(self, model: Any) -> None:
        """Has the updates of the model's layers measured, unless an embedding was given.

        Raises:
            ValueError: if there is nothing to measure.
        """
        super().set_model(model)
        if not self._recorders:
            self._recorders = _recorders(_layers(model))
            checks.check(bool(self._recorders), "model", "one with a TPUEmbeddingLayer or a "
                         "PartialTPUEmbedding of large tables", model,
                         "Or pass the TPUEmbedding as `embedding`.")
            model.train_function = None  # of an earlier fit, which measures nothing

    def on_train_begin(self, logs: Any = None) -> None:
        """Sets the marks of rows that were trained before, as their slots say."""
        for recorder in self._recorders.values():
            recorder.find_trained_rows()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Has the batch measured if it is one of those that are."""
        self._batches += 1
        self._set_due(self._batches % self._every_n_batches == 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes and logs what was measured."""
        if self._batches % self._every_n_batches:
            return
        self._set_due(False)
        statistics: dict[str, TableStatistics] = {}
        for recorder in self._recorders.values():
            measures = recorder.take()
            if measures is not None:
                statistics |= summarize(recorder.plan, measures)
        if not statistics:
            tf.get_logger().warning(
                "tpu_estimator_embedding: batch %d updated no table that is measured. Make the "
                "EmbeddingStatisticsCallback before functions that train are traced.",
                self._batches)
            return
        with self._writer.as_default():
            tf.summary.experimental.write_raw_pb(
                to_summary(statistics).SerializeToString(), self._batches)
        self._writer.flush()
        tf.get_logger().info("tpu_estimator_embedding: %s", to_line(statistics, self._batches))

    def _set_due(self, is_due: bool) -> None:
        for recorder in self._recorders.values():
            recorder.is_due.assign(is_due)


def _recorders(embeddings: Any) -> dict[str, MeasureRecorder]:
    return {f"{number}/{name}": recorder for number, embedding in enumerate(embeddings)
            for name, recorder in embedding.record_measures().items()}


def _layers(model: Any) -> Iterator[Any]:
    """Yields the layers of a model that are measured; PartialTPUEmbedding has one inside."""
    for layer in model._flatten_layers():
        if hasattr(layer, "record_measures") and not hasattr(layer, "tpu_embedding"):
            yield layer


def statistics_callback_class(keras: Any) -> type:
    """Returns the callback as one of a Keras: `keras`, `tf_keras` or `tf.keras`."""
    return _callback_class(keras.callbacks.Callback)


@functools.cache
def _callback_class(base: type) -> type:
    return type("EmbeddingStatisticsCallback", (_StatisticsCallback, base),
                {"__doc__": _StatisticsCallback.__doc__, "__module__": __name__})
