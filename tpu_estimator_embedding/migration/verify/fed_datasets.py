# SPDX-License-Identifier: Apache-2.0
"""Datasets that a TF2 program iterates over, fed with the batches of the legacy program."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

from tpu_estimator_embedding.migration.verify.batches import RecordedBatches
from tpu_estimator_embedding.runtime.interception import intercepted
from tpu_estimator_embedding.types import Structure


class DatasetFeed:
    """Feeds every Dataset: batch n while n steps are done.

    Under a strategy of R replicas, replica r is fed batch n R + r. A Dataset whose elements have a
    different structure than the legacy program's is not fed.

    Attributes:
        own: the first Dataset that was iterated over, preferably one that is fed.
        is_recorded: whether the batches of the legacy program fit `own`.
    """

    def __init__(self, batches: RecordedBatches, next_step: Callable[[], int]) -> None:
        """Takes the recorded batches, and the function that returns the step of the next batch."""
        self._batches, self._next_step = batches, next_step
        self._iterate: Callable[[tf.data.Dataset], Iterator[Structure]] = (
            tf.data.Dataset.__iter__)
        self._shared: _Shared | None = None  # what a strategy iterates over now
        self.own: tf.data.Dataset | None = None
        self.is_recorded = True
        self._is_paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets Datasets have their own batches."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    @contextlib.contextmanager
    def feeding(self) -> Iterator[None]:
        """Intercepts the Datasets that a program iterates over eagerly."""
        self._iterate = tf.data.Dataset.__iter__
        with (intercepted(tf.data.Dataset, {"__iter__": self._iter}, autograph=False),
              intercepted(multi_device_iterator_ops.OwnedMultiDeviceIterator,
                          {"__init__": self._share}, autograph=False)):
            yield

    def use(self, batches: RecordedBatches) -> None:
        """Feeds other batches to the Datasets that are iterated over from now on."""
        self._batches = batches

    def own_batches(self, count: int) -> RecordedBatches:
        """Reads the first batches of the program's own Dataset."""
        assert self.own is not None
        elements = list(_flat(self._iterate(self.own.take(count))))
        return RecordedBatches(elements, len(elements) < count)

    def _share(self, original: Callable[..., None], iterator: object,
               dataset: tf.data.Dataset | None = None, devices: Any = None,
               **options: object) -> None:
        self._shared = None if dataset is None else _Shared(dataset, len(devices))
        try:
            original(iterator, dataset, devices, **options)
        finally:
            self._shared = None

    def _iter(self, original: Callable[[tf.data.Dataset], Iterator[Structure]],
              dataset: tf.data.Dataset) -> Iterator[Structure]:
        if self._is_paused or not tf.executing_eagerly():
            return original(dataset)
        shared = self._shared
        replica, count = shared.take_replica() if shared else (0, 1)
        specs = tf.nest.flatten(dataset.element_spec, expand_composites=True)
        is_recorded = self._batches.fit(specs)
        if self.own is None or is_recorded > self.is_recorded:
            self.own, self.is_recorded = shared.dataset if shared else dataset, is_recorded
        fed = tf.data.Dataset.from_generator(
            lambda: self._generate(dataset, is_recorded, replica, count),
            output_signature=tuple(specs))
        spec = dataset.element_spec
        fed = fed.map(lambda *tensors: tf.nest.pack_sequence_as(
            spec, list(tensors), expand_composites=True))
        return original(fed.with_options(_in_step()))

    def _generate(self, dataset: tf.data.Dataset, is_recorded: bool, replica: int,
                  count: int) -> Iterator[tuple[np.ndarray, ...]]:
        read = self._batches.elements[replica::count] if is_recorded else []
        own = None if is_recorded else _flat(self._iterate(dataset))
        while True:
            step = self._next_step()
            while own is not None and len(read) <= step:
                element = next(own, None)
                if element is None:
                    return
                read.append(element)
            if step >= len(read):
                return
            yield tuple(read[step])


class _Shared:
    """A Dataset whose batches a strategy deals out to its replicas, an iterator for each."""

    def __init__(self, dataset: tf.data.Dataset, count: int) -> None:
        self.dataset, self._count = dataset, count
        self._replicas = iter(range(count))

    def take_replica(self) -> tuple[int, int]:
        """Returns the number of the replica whose iterator is made, and their count."""
        return next(self._replicas), self._count


def _flat(elements: Iterable[Structure]) -> Iterator[list[np.ndarray]]:
    for element in elements:
        yield [np.asarray(tensor) for tensor in tf.nest.flatten(element, expand_composites=True)]


def _in_step() -> tf.data.Options:
    """Returns options that disable reading ahead."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return options
