# SPDX-License-Identifier: Apache-2.0
"""Reads the result of an input_fn in the mode of `TPUConfig.per_host_input_for_training`.

=============  ===================  ====================================================
mode           calls of input_fn    a replica gets
=============  ===================  ====================================================
PER_SHARD_V1   one per replica (1)  the next batch of a separate call
PER_HOST_V1    one                  its share of the next batch
PER_HOST_V2    one                  the next batch
BROADCAST      one                  the whole next batch, the same as all others
SLICED (2)     one                  its share of the next batch
=============  ===================  ====================================================

(1) in training; evaluation uses PER_HOST_V1. (2) `eval_training_input_configuration`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import composite_tensor
from tensorflow.python.util import nest

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.upstream import tpu_context
from tpu_estimator_embedding.estimator.input.machine_context import MachineContext
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.ops.id_checks import in_batch
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.ops.owned_memory import owned
from tpu_estimator_embedding.types import Structure, Tensor

_LEAVES = (tf.Tensor, composite_tensor.CompositeTensor, tf.Variable, np.ndarray, np.generic, bool,
           int, float, str, bytes, type(None))

_NOT_DIVISIBLE = "Batch size must be divisible by the number of replicas, {}, got"

_Result = TypeVar("_Result")

# Features and labels, which are None if there are none.
Batch = tuple[Structure, Structure]


class StepBatches(NamedTuple):
    """The batches of one step.

    Attributes:
        of_replicas: `(features, labels)` of every replica.
        counted: `[replicas]` bools: whether the results of a replica count. At the end of an input
            that is evaluated some replicas may be left without a batch; they get that of another.
            None means that all count.
    """

    of_replicas: list[Batch]
    counted: Tensor | None = None


class BatchReader(NamedTuple):
    """How the batches of one step are read.

    Attributes:
        read: returns the batches of a step.
        initializer: the op that starts the input; None if none is needed.
        batches_read: variable that counts the batches read; None if no batch can be left
            over.
        batches_per_step: the number of batches that a step takes.
        is_repeatable: whether `read` creates ops that read the next batches whenever they run,
            also in a loop; otherwise it returns tensors that change only between session runs.
    """

    read: Callable[[], StepBatches]
    initializer: tf.Operation | None
    batches_read: tf.Variable | None
    batches_per_step: int
    is_repeatable: bool


def next_batch(result: Structure) -> BatchReader:
    """Reads one batch for a single replica.

    Args:
        result: a Dataset, or a nest of tensors that every run evaluates again: `features`
            or `(features, labels)`.
    """
    if not isinstance(result, tf.data.Dataset):
        batch = features_and_labels(result)
        return BatchReader(lambda: StepBatches([batch]), None, None, 1, False)
    iterator = tf.compat.v1.data.make_initializable_iterator(result)
    return BatchReader(lambda: StepBatches([features_and_labels(iterator.get_next())]),
                       iterator.initializer, None, 1, True)


def batch_for_all(result: Structure, num_replicas: int) -> BatchReader:
    """Reads one batch that every replica gets, as with BROADCAST."""
    reader = next_batch(result)
    return reader._replace(read=lambda: StepBatches(reader.read().of_replicas * num_replicas))


def batch_of_each(results: Sequence[Structure]) -> BatchReader:
    """Reads one batch of every replica's own input, as with PER_SHARD_V1; in training only."""
    readers = [next_batch(result) for result in results]
    initializers = [reader.initializer for reader in readers if reader.initializer is not None]
    return BatchReader(
        lambda: StepBatches([reader.read().of_replicas[0] for reader in readers]),
        tf.group(*initializers), None, 1, all(reader.is_repeatable for reader in readers))


def successive_batches(result: Structure, num_replicas: int, *,
                       to_the_end: bool = False) -> BatchReader:
    """Reads a batch for each replica from one input, as with PER_HOST_V2.

    Args:
        result: a Dataset.
        num_replicas: number of replicas.
        to_the_end: whether the last step may have batches for some of them only; else it is
            dropped.

    Raises:
        TypeError: if `result` is not a Dataset.
    """
    checks.check_type(tf.data.Dataset, "the result of input_fn",
                      "a Dataset with PER_HOST_V2, which gives every replica its own batch", result)
    if num_replicas == 1:
        return next_batch(result)
    iterator = tf.compat.v1.data.make_initializable_iterator(result)
    if to_the_end:
        return BatchReader(lambda: _batches_that_are_left(iterator, num_replicas),
                           iterator.initializer, None, num_replicas, True)
    counter = _counter()
    return BatchReader(lambda: StepBatches(_next_batches(iterator, num_replicas, counter)),
                       iterator.initializer, counter, num_replicas, True)


def shared_batch(result: Structure, num_replicas: int, embedding_keys: Iterable[str] = (),
                 batch_axis: Sequence[int] | None = None, *,
                 to_the_end: bool = False) -> BatchReader:
    """Reads one batch and splits it over the replicas, as with PER_HOST_V1.

    Args:
        result: as for `next_batch`.
        num_replicas, embedding_keys, batch_axis: as for `split_batch`.
        to_the_end: whether one replica gets a last batch that cannot be split; else it is dropped.
    """
    if num_replicas == 1:
        return next_batch(result)
    if not isinstance(result, tf.data.Dataset):
        return BatchReader(lambda: StepBatches(split_batch(
            *features_and_labels(result), num_replicas, embedding_keys, batch_axis)), None, None,
            1, False)
    iterator = tf.compat.v1.data.make_initializable_iterator(result)
    if to_the_end:
        return BatchReader(
            lambda: _split_or_whole_batch(iterator, num_replicas, embedding_keys, batch_axis),
            iterator.initializer, None, 1, True)
    counter = _counter()

    def read() -> StepBatches:
        batch = _next_divisible_batch(iterator, num_replicas, counter, embedding_keys, batch_axis)
        return StepBatches(split_batch(*batch, num_replicas, embedding_keys, batch_axis))

    return BatchReader(read, iterator.initializer, counter, 1, True)


def features_and_labels(result: Structure) -> Batch:
    """Returns `(features, labels)` in own containers; labels are None if the input has none.

    Raises:
        ValueError: if there are not one or two parts.
        TypeError: if a leaf is neither a tensor nor a constant; it could hold tensors that would
            be evaluated apart from the others.
    """
    if not isinstance(result, list | tuple):
        result = result, None
    checks.check(len(result) == 2, "the result of input_fn", "features or (features, labels)",
                 result)
    for path, leaf in nest.flatten_with_joined_string_paths(tuple(result)):
        checks.check_type(_LEAVES, f"the result of input_fn at {path!r}", "a tensor", leaf,
                          "Return a dictionary of tensors, or give the class __tf_flatten__ and "
                          "__tf_unflatten__.")
    features, labels = tf.nest.map_structure(
        lambda leaf: tf.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf,
        tuple(result))
    return features, labels


def _next_batches(iterator: tf.data.Iterator, count: int, counter: tf.Variable) -> list[Batch]:
    """Reads several batches, one after the other; fails if the input ends."""
    batches: list[Batch] = []
    counted: list[tf.Operation] = []
    for _ in range(count):
        with tf.control_dependencies(counted):
            batch = iterator.get_next()
        with tf.control_dependencies(tensors_of(batch)):
            counted = [counter.assign_add(1, read_value=False)]
        with tf.control_dependencies(counted):
            batches.append(features_and_labels(_identity(batch)))
    return batches


def _batches_that_are_left(iterator: tf.data.Iterator, count: int) -> StepBatches:
    """Reads up to `count` batches; fails if there is none. The first one fills the places."""
    first = iterator.get_next()
    batches, found = [first], [tf.constant(True)]
    with tf.control_dependencies(tensors_of(first)):
        read = tf.no_op()
    for _ in range(count - 1):
        with tf.control_dependencies([read]):
            optional = iterator.get_next_as_optional()
            found.append(optional.has_value())
        read = found[-1]
        batches.append(_one_of(read, optional.get_value, lambda: first))
    return StepBatches([features_and_labels(batch) for batch in batches], tf.stack(found))


def _split_or_whole_batch(iterator: tf.data.Iterator, num_replicas: int,
                          embedding_keys: Iterable[str],
                          batch_axis: Sequence[int] | None) -> StepBatches:
    """Reads one batch; the last one is the first replica's if it cannot be split."""
    batch = iterator.get_next()
    features, labels = features_and_labels(batch)
    size = _batch_size(features, labels, embedding_keys, batch_axis)
    if isinstance(size, int):
        return StepBatches(split_batch(features, labels, num_replicas, embedding_keys, batch_axis))

    def check_end() -> tf.Operation:
        return tf.debugging.Assert(
            tf.logical_not(iterator.get_next_as_optional().has_value()),
            [_NOT_DIVISIBLE.format(num_replicas), size, "samples before the end of the input."])

    is_split = tf.equal(size % num_replicas, 0)
    with tf.control_dependencies(tensors_of(batch)):
        guard = tf.cond(is_split, tf.no_op, check_end)
    with tf.control_dependencies([guard]):
        features, labels = _identity((features, labels))
    shares = _one_of(
        is_split, lambda: split_batch(features, labels, num_replicas, embedding_keys, batch_axis),
        lambda: [(features, labels)] * num_replicas)
    return StepBatches(shares, tf.logical_or(is_split, tf.range(num_replicas) < 1))


def _one_of(condition: Tensor, then: Callable[[], Structure],
            otherwise: Callable[[], Structure]) -> Any:
    """Returns one of two nests of tensors, of the structure of the first."""
    structures = []

    def tensors(make: Callable[[], Structure]) -> list[Tensor]:
        structures.append(make())
        return [tf.identity(leaf) for leaf in tensors_of(structures[-1])]

    chosen = tf.compat.v1.cond(condition, lambda: tensors(then), lambda: tensors(otherwise),
                               strict=True)
    return with_tensors(structures[0], [_with_common_shape(*three) for three in zip(
        chosen, *map(tensors_of, structures), strict=True)])


def _with_common_shape(chosen: Tensor, *choices: Tensor) -> Tensor:
    first, second = (choice.shape for choice in choices)
    chosen.set_shape(first.most_specific_compatible_shape(second))
    return chosen


def _next_divisible_batch(iterator: tf.data.Iterator, num_replicas: int, counter: tf.Variable,
                          embedding_keys: Iterable[str], batch_axis: Sequence[int] | None
                          ) -> Batch:
    """Reads a batch; the last one is dropped if it cannot be split."""
    batch = iterator.get_next()
    size = _batch_size(*features_and_labels(batch), embedding_keys, batch_axis)

    def read_on() -> tf.Operation:
        with tf.control_dependencies(tensors_of(iterator.get_next())):  # fails at the end
            return tf.debugging.Assert(False, [
                _NOT_DIVISIBLE.format(num_replicas), size, "samples before the end of the input."])

    with tf.control_dependencies(tensors_of(batch)):
        counted = counter.assign_add(1, read_value=False)
    with tf.control_dependencies([counted]):
        guard = tf.cond(tf.equal(size % num_replicas, 0), tf.no_op, read_on)
    with tf.control_dependencies([guard]):
        return features_and_labels(_identity(batch))


def _counter() -> tf.Variable:
    return tf.compat.v1.get_variable(
        "input_batches_read", [], tf.int64, initializer=tf.compat.v1.zeros_initializer(),
        use_resource=True, trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])


def _batch_size(features: Structure, labels: Structure, embedding_keys: Iterable[str],
                batch_axis: Sequence[int] | None) -> Tensor | int:
    """Returns the number of samples: an integer if it is static, else a tensor."""
    by_row = [features[key] for key in embedding_keys
              if key in features] if isinstance(features, Mapping) else []
    first, axis = (by_row[0], 0) if by_row else (
        next(leaf for leaf in tf.nest.flatten((features, labels)) if leaf is not None),
        batch_axis[0] if batch_axis else 0)
    size = (tf.compat.dimension_value(first.shape[axis])
            if isinstance(first, tf.Tensor) and first.shape.rank is not None else None)
    if size is not None:
        return size
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[axis]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows(out_type=tf.int64)
    return tf.shape(first, out_type=tf.int64)[axis]


def _identity(batch: Structure) -> Structure:
    return tf.nest.map_structure(lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf,
                                 batch, expand_composites=True)


def split_batch(features: Structure, labels: Structure, num_replicas: int,
                embedding_keys: Iterable[str] = (), batch_axis: Sequence[int] | None = None
                ) -> list[Batch]:
    """Returns `(features, labels)` of every replica.

    Args:
        features: a tensor, or a dictionary of tensors, including sparse or ragged ones.
        labels: the same, or None.
        num_replicas: number of equal shares; must divide the batch.
        embedding_keys: features that are ids or weights; their batch axis is the first.
        batch_axis: the batch axis of every other tensor of features and then labels, in
            the order of `tf.nest.flatten`; None means the first axis.

    Raises:
        TypeError: if there are embedding_keys and `features` is not a dictionary.
        ValueError: if `batch_axis` has a wrong number of entries, or a batch of known size
            cannot be split.
    """
    keys = set(embedding_keys)
    if keys:
        checks.check_type(Mapping, "features", "a dictionary, because embedding features are "
                          "found by name", features)
    by_row = {key: value for key, value in features.items() if key in keys} if keys else {}
    others = ({key: value for key, value in features.items() if key not in keys} if keys
              else features)
    shares_by_row = _split(by_row, num_replicas, None)
    shares = _split((others, labels), num_replicas, batch_axis)
    return [({**rows, **share} if keys else share, share_labels)
            for rows, (share, share_labels) in zip(shares_by_row, shares, strict=True)]


def _split(structure: Structure, num_replicas: int, axes: Sequence[int] | None) -> list[Structure]:
    leaves = nest.flatten_with_joined_string_paths(structure)
    tensors = [leaf for _, leaf in leaves if leaf is not None]
    if axes is None:
        axes = [0] * len(tensors)
    checks.check(len(axes) == len(tensors), "batch_axis",
                 f"have one entry for each of the {len(tensors)} tensors of features and labels",
                 axes)
    remaining = iter(axes)
    parts = [[None] * num_replicas if leaf is None
             else _split_tensor(name, leaf, num_replicas, next(remaining))
             for name, leaf in leaves]
    return [tf.nest.pack_sequence_as(structure, list(share))
            for share in zip(*parts, strict=True)] if parts else [structure] * num_replicas


def _split_tensor(name: str, tensor: Tensor | tf.SparseTensor | tf.RaggedTensor, num_replicas: int,
                  axis: int) -> list[Tensor]:
    size = tf.compat.dimension_value(tensor.shape[axis])
    checks.check(size is None or size % num_replicas == 0, "batch size",
                 f"divisible by the number of replicas, {num_replicas}", size,
                 "Drop the remainder in input_fn.")
    if size is None:
        tensor = _divisible(tensor, num_replicas, axis)
    if isinstance(tensor, tf.SparseTensor):
        return _split_sparse(in_batch(tensor, name, axis), num_replicas, axis, size)
    if num_replicas > 1:
        tensor = owned(tensor)
    if isinstance(tensor, tf.RaggedTensor):
        share = tensor.nrows() // num_replicas
        return [tensor[replica * share:(replica + 1) * share] for replica in range(num_replicas)]
    if size:
        return tf.split(tensor, num_replicas, axis=axis)
    # By sizes: by a number of shares, TensorFlow splits no batch of 0 samples.
    shares = tf.fill([num_replicas], tf.shape(tensor)[axis] // num_replicas)
    return tf.split(tensor, shares, axis=axis, num=num_replicas)


def _divisible(tensor: Tensor | tf.SparseTensor | tf.RaggedTensor, num_replicas: int,
               axis: int) -> Tensor | tf.SparseTensor | tf.RaggedTensor:
    """Returns the tensor, of which a session checks that it has equal shares."""
    size = (tensor.dense_shape[axis] if isinstance(tensor, tf.SparseTensor) else
            tensor.nrows() if isinstance(tensor, tf.RaggedTensor) else tf.shape(tensor)[axis])
    with tf.control_dependencies(assert_that(
            tf.equal(size % num_replicas, 0), "Batch size must be divisible by the number of "
            f"replicas, {num_replicas}, got {VALUE}. Drop the remainder in input_fn.", size)):
        return _identity(tensor)


def _split_sparse(tensor: tf.SparseTensor, num_replicas: int, axis: int,
                  size: int | None) -> list[tf.SparseTensor]:
    if size:
        return tf.sparse.split(tensor, num_replicas, axis=axis)
    # A batch of 0 samples is split as one with a sample for each replica, which has no ids either.
    shape = tensor.dense_shape
    is_batch = tf.equal(tf.range(tf.size(shape)), axis)
    in_shares = tf.maximum(shape[axis], num_replicas)
    parts = tf.sparse.split(tf.SparseTensor(tensor.indices, tensor.values,
                                            tf.where(is_batch, in_shares, shape)),
                            num_replicas, axis=axis)
    of_share = tf.where(is_batch, shape[axis] // num_replicas, shape)
    return [tf.SparseTensor(part.indices, part.values, of_share) for part in parts]


def call_input_fn(ctx: MachineContext,
                  input_fn: Callable[[tpu_context.TPUContext], _Result]) -> list[_Result]:
    """Returns the results of the calls of an input_fn, as many as the mode makes.

    Args:
        ctx: the context, in the mode to run.
        input_fn: called with the `TPUContext` of an invocation.
    """
    num_calls = ctx.num_replicas if ctx.is_input_sharded_per_core() else 1
    return [input_fn(_invocation(ctx, index)) for index in range(num_calls)]


def read_input(ctx: MachineContext, results: Sequence[Structure], embedding_keys: Iterable[str],
               batch_axis: Sequence[int] | None, *, to_the_end: bool = False) -> BatchReader:
    """Reads the batches of one step.

    Args:
        ctx: the context, in the mode to run.
        results: what `call_input_fn` returned.
        embedding_keys: features that are ids or weights.
        batch_axis: the constructor's argument.
        to_the_end: whether batches that cannot fill all replicas at the end of the input are used.
    """
    if ctx.is_input_sharded_per_core():
        return batch_of_each(results)
    [result] = results
    if ctx.is_input_slice_broadcast_to_all_cores():
        return shared_batch(result, ctx.num_replicas, embedding_keys, batch_axis,
                            to_the_end=to_the_end)
    if ctx.is_input_broadcast_with_iterators():
        return batch_for_all(result, ctx.num_replicas)
    if ctx.is_input_per_host_with_iterators():
        return successive_batches(result, ctx.num_replicas, to_the_end=to_the_end)
    return shared_batch(result, ctx.num_replicas, embedding_keys, batch_axis,
                        to_the_end=to_the_end)


def _invocation(ctx: MachineContext, index: int) -> tpu_context.TPUContext:
    return tpu_context.TPUContext(
        ctx, input_device=ctx.tpu_host_placement_function(host_id=0), invocation_index=index,
        host_id=0)
