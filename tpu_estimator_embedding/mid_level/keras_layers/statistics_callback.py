# SPDX-License-Identifier: Apache-2.0
"""A Keras callback that logs statistics of tables during training."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.statistics.summaries import to_line, to_summary
from tpu_estimator_embedding.statistics.table_statistics import TableStatistics, summarize

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    _Callback: Any
else:
    _Callback = object  # statistics_callback_class adds Keras' Callback as a base


class Measured(Protocol):
    """A TPUEmbedding, or a layer with tables."""

    def record_measures(self) -> Mapping[str, MeasureRecorder]: ...


class _StatisticsCallback(_Callback):
    """Writes statistics of every table for TensorBoard, and logs one line per measured batch.

    The statistics are those of EmbeddingStatisticsHook. A stack of TPUEmbeddingV2 counts as one
    table. With pipelining, a batch applies the update of the previous batch.

    A custom training loop calls `on_train_begin` once, and `on_train_batch_begin(batch)` and
    `on_train_batch_end(batch)` around every batch.

    Args:
        log_dir: directory of the event files.
        every_n_batches: measures every n-th batch, counted over all epochs.
        embedding: a TPUEmbedding, TPUEmbeddingV2 or layer that is not a layer of the model; None
            means the layers of the model.
        **kwargs: arguments of Keras' Callback.

    Raises:
        TypeError: if log_dir is no path, or embedding has no tables.
        ValueError: if every_n_batches is not a positive int, or log_dir a file.
    """

    def __init__(self, log_dir: str, every_n_batches: int = 100, embedding: Measured | None = None,
                 **kwargs: Any):
        super().__init__(**kwargs)
        checks.check_type((str, os.PathLike), "log_dir", "a path", log_dir)
        checks.check_can_be_directory("log_dir", log_dir)
        checks.check_positive_int("every_n_batches", every_n_batches)
        if embedding is not None and not hasattr(embedding, "record_measures"):
            raise TypeError(checks.complaint(
                "embedding", "a TPUEmbedding, TPUEmbeddingV2 or layer with tables, or None",
                embedding))
        self._every_n_batches, self._batches = every_n_batches, 0
        self._writer = tf.summary.create_file_writer(str(log_dir))
        self._recorders = _recorders([embedding]) if embedding is not None else {}

    def set_model(self, model: "keras.Model") -> None:
        """Enables measuring of the model's layers, unless an embedding was given.

        Raises:
            ValueError: if the model has no layer to measure.
        """
        super().set_model(model)
        if not self._recorders:
            self._recorders = _recorders(_layers(model))
            checks.check(bool(self._recorders), "model", "a model with a TPUEmbeddingLayer or a "
                         "PartialTPUEmbedding with large tables", model,
                         "Or pass the TPUEmbedding as `embedding`.")
            model.train_function = None  # that of an earlier fit does not measure

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Marks rows whose slots show that they were trained before, for the coverage."""
        for recorder in self._recorders.values():
            recorder.find_trained_rows()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Starts measuring if this batch is to be measured."""
        self._batches += 1
        self._set_due(self._batches % self._every_n_batches == 0)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Writes and logs the statistics of a measured batch."""
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
                "tpu_estimator_embedding: batch %d updated no measured table. Create the "
                "EmbeddingStatisticsCallback before the training functions are traced.",
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


def _recorders(embeddings: Iterable[Measured]) -> dict[str, MeasureRecorder]:
    return {f"{number}/{name}": recorder for number, embedding in enumerate(embeddings)
            for name, recorder in embedding.record_measures().items()}


def _layers(model: "keras.Model") -> Iterator[Measured]:
    """Yields the TPUEmbeddingLayers of a model, also those inside PartialTPUEmbedding."""
    for layer in model._flatten_layers():
        if hasattr(layer, "record_measures") and not hasattr(layer, "tpu_embedding"):
            yield layer


def statistics_callback_class(keras: ModuleType) -> type:
    """Returns the callback class for a Keras: `keras`, `tf_keras` or `tf.keras`."""
    return _callback_class(keras.callbacks.Callback)


@functools.cache
def _callback_class(base: type) -> type:
    return type("EmbeddingStatisticsCallback", (_StatisticsCallback, base),
                {"__doc__": _StatisticsCallback.__doc__, "__module__": __name__})
