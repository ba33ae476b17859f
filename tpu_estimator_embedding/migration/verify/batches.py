# SPDX-License-Identifier: Apache-2.0
"""Batches of an input_fn: read once, saved in a file, and replayed in the same structure.

`RecordedInput` takes the place of a program's input_fn.
"""

import dataclasses
import functools
import hashlib
import inspect
import pathlib
import pickle
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding import types
from tpu_estimator_embedding.migration.verify.recording import BATCHES, RecordingSettings

SEED = 1


@dataclasses.dataclass(frozen=True)
class RecordedBatches:
    """The batches of one call of an input_fn.

    Attributes:
        elements: the tensors of each batch; components of sparse and ragged tensors separately.
        ended: whether there were no more.
    """

    elements: list[list[np.ndarray]]
    ended: bool

    def save(self, path: pathlib.Path) -> None:
        """Writes them to a file."""
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps((self.elements, self.ended)))

    @classmethod
    def load(cls, path: pathlib.Path) -> "RecordedBatches":
        """Reads what `save` wrote."""
        return cls(*pickle.loads(path.read_bytes()))

    def fit(self, specs: Sequence[object]) -> bool:
        """Returns whether the first batch, if any, has these dtypes and compatible shapes."""
        if not self.elements:
            return True
        batch = self.elements[0]
        return len(specs) == len(batch) and all(
            isinstance(spec, tf.TensorSpec) and spec.shape.is_compatible_with(array.shape)
            and spec.dtype == tf.as_dtype(array.dtype if array.dtype != object else tf.string)
            for spec, array in zip(specs, batch, strict=True))

    def digests(self) -> tuple[str, ...]:
        """Returns a digest of each batch: equal digests mean equal bits."""
        return tuple(hashlib.sha256(b"".join(
            pickle.dumps((array.dtype.str, array.shape, array.tolist()
                          if array.dtype == object else array.tobytes()))
            for array in element)).hexdigest() for element in self.elements)


@dataclasses.dataclass(frozen=True)
class Structure:
    """The structure of the elements of an input.

    Attributes:
        spec: nested TypeSpecs.
        is_dataset: whether the input_fn returns a Dataset, not tensors.
    """

    spec: types.Structure  # of a `tf.TypeSpec` for each tensor
    is_dataset: bool

    def describe(self) -> str:
        """Returns names, dtypes and shapes as text."""
        return f"{'Dataset' if self.is_dataset else 'tensors'} of {self.spec}"


def read(call: Callable[[], types.Structure], count: int,
         seed: int = SEED) -> tuple[RecordedBatches, Structure]:
    """Calls an input_fn in a new graph with a seed, and reads its first batches."""
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(seed)
        result = _without_missing_labels(call())
        structure = Structure(_spec_of(result), isinstance(result, tf.data.Dataset))
        start = []
        if structure.is_dataset:
            iterator = tf.compat.v1.data.make_initializable_iterator(result)
            result, start = iterator.get_next(), [iterator.initializer]
        tensors = tf.nest.flatten(result, expand_composites=True)
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.local_variables_initializer(),
                         tf.compat.v1.tables_initializer()])
            session.run(start)
            coordinator = tf.train.Coordinator()
            if tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS):
                tf.compat.v1.train.start_queue_runners(session, coordinator)
            elements: list[list[np.ndarray]] = []
            ended = False
            try:
                while len(elements) < count:
                    elements.append([np.asarray(value) for value in session.run(tensors)])
            except tf.errors.OutOfRangeError:
                ended = True
            coordinator.request_stop()
    return RecordedBatches(elements, ended), structure


def play(batches: RecordedBatches, structure: Structure) -> types.Structure:
    """Returns a Dataset, or tensors, of recorded batches in the current graph.

    After the last recorded batch they start again, unless the input ended there, so that code that
    reads ahead of training does not run out of batches.
    """
    def generate() -> Iterator[tuple[np.ndarray, ...]]:
        yield from map(tuple, batches.elements)

    flat = tuple(tf.nest.flatten(structure.spec, expand_composites=True))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=flat).map(
        lambda *tensors: tf.nest.pack_sequence_as(structure.spec, list(tensors),
                                                  expand_composites=True))
    if not batches.ended:
        dataset = dataset.repeat()
    if structure.is_dataset:
        return dataset
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    tf.compat.v1.add_to_collection(
        tf.compat.v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def _without_missing_labels(result: types.Structure) -> types.Structure:
    if isinstance(result, tuple) and len(result) == 2 and result[1] is None:
        return result[0]
    return result


def _spec_of(result: types.Structure) -> types.Structure:
    if isinstance(result, tf.data.Dataset):
        return result.element_spec
    return tf.nest.map_structure(tf.type_spec_from_value, result)


class RecordedInput:
    """Replaces an input_fn.

    Args:
        input_fn: of the program.
        settings: of its run.
        count: number of batches to read.
        ends: whether the replayed input ends with them.

    Attributes:
        inputs: for each call, the structure of the elements as text.
        digests: for each call, a digest of each batch that the program itself would be fed.
        is_repeatable: whether the input of the reference gives the same batches again.
        is_seedless: whether it also does so with another seed of the graph.
    """

    def __init__(self, input_fn: Callable[..., types.Structure], settings: RecordingSettings,
                 count: int, *, ends: bool = False) -> None:
        self._input_fn, self._ends = input_fn, ends
        self._accepted = inspect.signature(input_fn).parameters
        self._reference = settings.reference and pathlib.Path(settings.reference, BATCHES)
        self._directory = pathlib.Path(settings.directory, BATCHES)
        self._count = count
        self.inputs: list[str] = []
        self.digests: list[tuple[str, ...]] = []
        self.is_repeatable = self.is_seedless = True

    def input_fn(self, params: object, config: object, mode: str) -> types.Structure:
        """Returns the batches to train on."""
        given = {"params": params, "config": config, "mode": mode}
        call = functools.partial(self._input_fn, **{
            name: value for name, value in given.items() if name in self._accepted})
        own, structure = read(call, self._count)
        name = f"{len(self.inputs)}.pickle"
        self.inputs.append(structure.describe())
        self.digests.append(own.digests())
        if self._reference:
            recorded = self._reference / name
            return self._play(RecordedBatches.load(recorded) if recorded.exists() else own,
                              structure)
        own.save(self._directory / name)
        again, _ = read(call, self._count)
        self.is_repeatable &= again.digests() == own.digests()
        other, _ = read(call, self._count, SEED + 1)
        self.is_seedless &= other.digests() == own.digests()
        return self._play(own, structure)

    def _play(self, recorded: RecordedBatches, structure: Structure) -> types.Structure:
        return play(dataclasses.replace(recorded, ended=True) if self._ends else recorded,
                    structure)
