# SPDX-License-Identifier: Apache-2.0
"""The preprocessing of SparseCore lookups: sorts the ids of features by core."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, to_enqueue_data
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.mid_level.config.sparse_core_embedding_config import (
    SparseCoreEmbeddingConfig,
)
from tpu_estimator_embedding.mid_level.config.structure import Ids
from tpu_estimator_embedding.mid_level.input.enqueue_device import parse_device, refusal
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    SortedIds,
    StackIds,
    partition_sizes,
    sort_ids,
    to_csr,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_ids import (
    by_core,
    stack_ids,
    unchecked_stack_ids,
)
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import FeaturePlace, Stacks
from tpu_estimator_embedding.ops.assertion import assert_that, require
from tpu_estimator_embedding.ops.ordering import when
from tpu_estimator_embedding.ops.sparse_ids import check_weights_are_numbers, row_major
from tpu_estimator_embedding.types import Tensor

Formats = Mapping[str, CsrFormat]
Limits = Mapping[str, int]  # stack name -> maximum ids of a partition

# Stack name -> arrays, number of row pointers in use, number of elements for ids in use.
Partitioned = dict[str, tuple[PartitionedCsrFormatTensor, Tensor, Tensor]]


def csr_formats(stacks: Stacks, max_ids_per_sample: int = 64, *, max_minibatches: int = 64,
                allow_id_dropping: bool = False) -> dict[str, CsrFormat]:
    """Returns stack name -> sizes of its arrays."""
    cores = stacks.cores
    return {name: CsrFormat(
        name, cores.count, cores.num_sc_per_chip, stack.rows_per_shard,
        stacks.sample_count(name), max_ids_per_sample, max_minibatches, allow_id_dropping)
        for name, stack in stacks.stacks.items()}


def to_enqueue_datas(stacks: Stacks, features: Mapping[str, Ids],
                     weights: Mapping[str, Ids | None]) -> EnqueueDatas:
    """Returns path -> ids of the feature.

    Args:
        stacks: the tables and features.
        features: path -> input.
        weights: path -> weights or None.

    Raises:
        The errors of `feature_ids`.
    """
    return {path: feature_ids(path, place, features[path], weights[path])
            for path, place in stacks.features.items()}


def sorted_ids(stacks: Stacks, formats: Formats, features: Mapping[str, Ids],
               weights: Mapping[str, Ids | None]) -> dict[str, SortedIds]:
    """Returns stack name -> its checked ids, sorted.

    Raises:
        The errors of `to_enqueue_datas` and of the engine's `checked_ids`.
    """
    return sort_stacks(stacks, formats, stack_ids(
        stacks, to_enqueue_datas(stacks, features, weights)))


def partition_given(stacks: Stacks, features: Mapping[str, Ids], weights: Mapping[str, Ids | None],
                    max_ids_per_sample: int, max_minibatches: int) -> Partitioned:
    """Converts the ids of features to the arrays of stacks with a given layout."""
    formats = csr_formats(stacks, max_ids_per_sample, max_minibatches=max_minibatches)
    return to_partitioned(sorted_ids(stacks, formats, features, weights), formats, {}, {})


def most_ids(stacks: Stacks, formats: Formats,
             features: Mapping[str, Ids]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns stack name -> maximum ids of a partition, and -> maximum distinct ids."""
    ids = sorted_ids(stacks, formats, features, dict.fromkeys(features))
    sizes = {name: partition_sizes(ids[name], csr) for name, csr in formats.items()}
    return ({name: most for name, (most, _) in sizes.items()},
            {name: unique for name, (_, unique) in sizes.items()})


def sort_stacks(stacks: Stacks, formats: Formats,
                ids: Mapping[str, StackIds]) -> dict[str, SortedIds]:
    """Sorts the ids of every stack, which are in the order of features."""
    return {name: sort_ids(by_core(stacks, name, of_stack), formats[name])
            for name, of_stack in ids.items()}


def to_partitioned(ids: Mapping[str, SortedIds], formats: Formats, max_ids: Limits,
                   max_unique_ids: Limits) -> Partitioned:
    """Copies sorted ids to the arrays of every stack.

    Raises:
        tf.errors.InvalidArgumentError: when run, if ids exceed the arrays or a limit.
    """
    partitioned = {}
    for name, csr in formats.items():
        assertions = []
        if name in max_ids or name in max_unique_ids:
            most, most_unique = partition_sizes(ids[name], csr)
            assertions = [
                *_check_limit(name, "max_ids_per_table", max_ids.get(name), most),
                *_check_limit(name, "max_unique_ids_per_table", max_unique_ids.get(name),
                              most_unique)]
        with tf.control_dependencies(assertions):
            partitioned[name] = to_csr(ids[name], csr)
    return partitioned


def partition_checked(stacks: Stacks, formats: Formats, config: SparseCoreEmbeddingConfig,
                      datas: EnqueueDatas
                      ) -> tuple[dict[str, PartitionedCsrFormatTensor], list[Tensor]]:
    """Returns the arrays of checked ids, and tensors to wait for.

    A graph that does not use the arrays does not sort the ids, unless the config limits the
    number of ids.

    Raises:
        The errors of `check_room` and `to_partitioned`.
    """
    has_room = check_room(datas, stacks, formats)
    with_room = {name: dataclasses.replace(csr, allow_id_dropping=True)
                 for name, csr in formats.items()}
    ids = sort_stacks(stacks, formats, {
        name: unchecked_stack_ids(stacks, name, datas) for name in formats})
    partitioned = to_partitioned(ids, with_room, *limits(config))
    return {name: partition for name, (partition, _, _) in partitioned.items()}, has_room


def limits(config: SparseCoreEmbeddingConfig) -> tuple[Limits, Limits]:
    """Returns the limits of ids, and of distinct ids, of the stacks that have limits."""
    return config.max_ids_per_table or {}, config.max_unique_ids_per_table or {}


def check_room(datas: EnqueueDatas, stacks: Stacks, formats: Formats) -> list[Tensor]:
    """Fails if ids exceed the arrays; sorts the ids only if their number alone does not decide.

    Returns:
        Tensors to wait for.

    Raises:
        tf.errors.InvalidArgumentError: when run, if ids exceed the arrays.
    """
    def sort_and_check(name: str, csr: CsrFormat) -> Tensor:
        ids = unchecked_stack_ids(stacks, name, datas)
        _, _, used = to_csr(sort_ids(by_core(stacks, name, ids), csr), csr)
        return used

    return [when(_num_ids(datas, stacks, name) + csr.padding > csr.capacity,
                 functools.partial(sort_and_check, name, csr))
            for name, csr in formats.items()]


def _num_ids(datas: EnqueueDatas, stacks: Stacks, name: str) -> Tensor:
    return tf.add_n([tf.size(datas[path].embedding_indices)
                     for path, place in stacks.features.items() if place.stack == name])


def check_device(device: str | None, workers: Sequence[str]) -> None:
    """Raises an error unless a device is a TPU, a device of the workers, or None.

    Raises:
        TypeError: if it is no string.
        ValueError: if it is another device.
    """
    if device is None:
        return
    rule = f"None, a TPU, or a device of the strategy, {list(workers)}"
    spec = parse_device(device, rule)
    known = [tf.DeviceSpec.from_string(worker) for worker in workers]
    if spec.device_type != "TPU" and (spec.device_type, spec.device_index) not in [
            (worker.device_type, worker.device_index) for worker in known]:
        raise ValueError(refusal(device, rule))


def check_limits(config: SparseCoreEmbeddingConfig, stacks: Stacks) -> None:
    """Raises ValueError unless limits are keyed by the names of stacks."""
    for argument in ("max_ids_per_table", "max_unique_ids_per_table"):
        names = sorted(getattr(config, argument) or {})
        checks.check(set(names) <= set(stacks.stacks), argument,
                     f"have names of stacks as keys, among {sorted(stacks.stacks)}", names)


def _check_limit(stack: str, argument: str, limit: int | None,
                 found: Tensor) -> list[tf.Operation]:
    if limit is None:
        return []
    sentence = (f"Ids of stack {stack!r} from one SparseCore to one partition must be at most "
                f"{limit}, got <value>. Raise {argument} of the SparseCoreEmbeddingConfig.")
    return assert_that(found <= limit, sentence, found)


def feature_ids(path: str, place: FeaturePlace, value: Ids,
                weights: Ids | None) -> AnyEnqueueData:
    """Returns the ids of a feature and the rows of activations that they contribute to.

    Args:
        path: path of the feature.
        place: the shape of its activations.
        value: Tensor, SparseTensor or RaggedTensor of integers.
        weights: floats of the same tensor type with the same indices, or None.

    Raises:
        ValueError: if the input has another type, weights and ids differ in tensor type, or the
            input does not fill output_shape.
    """
    kind = next((kind for kind in (tf.RaggedTensor, tf.SparseTensor)
                 if isinstance(value, kind)), tf.Tensor)
    checks.check(isinstance(value, kind), f"input of feature {path!r}",
                 "a Tensor, SparseTensor or RaggedTensor", type(value).__name__, sentence=
                 f"Input of unknown type {type(value)}. Please only pass Tensor, SparseTensor or "
                 "RaggedTensor as input to embedding lookup.")
    checks.check(weights is None or isinstance(weights, kind), f"weights of feature {path!r}",
                 "of the tensor type of the ids, or None", type(weights).__name__, sentence=
                 f"Expect weight to be {kind.__name__} type but got {type(weights)}.")
    check_weights_are_numbers(weights, path)
    return _CONVERSIONS[kind](path, place, value, weights)


def _from_dense(path: str, place: FeaturePlace, value: Tensor,
                weights: Tensor | None) -> AnyEnqueueData:
    for what, tensor in (("ids", value), ("weights", weights)):
        count = None if tensor is None else tensor.shape.num_elements()
        checks.check(count in (None, place.sample_count), f"{what} of feature {path!r}",
                     f"{place.sample_count} values, the size of output_shape "
                     f"{list(place.output_shape)}", count)
    return to_enqueue_data(value, weights)


def _from_sparse(path: str, place: FeaturePlace, value: tf.SparseTensor,
                 weights: tf.SparseTensor | None) -> AnyEnqueueData:
    checks.check((value.shape.rank or 0) >= 2, f"rank of the sparse input of feature {path!r}",
                 "at least 2", value.shape.rank)
    sizes = value.dense_shape[:-1]
    _check_batch(path, place, value.shape[:-1])
    with tf.control_dependencies(require(
            tf.equal(tf.reduce_prod(sizes), place.sample_count),
            f"Batch of feature {path!r} must fill output_shape {list(place.output_shape)}.",
            ValueError)):
        rows = tf.identity(row_major(value.indices, sizes, value.shape.rank - 1))
    return to_enqueue_data(value, weights, places=rows)


def _from_ragged(path: str, place: FeaturePlace, value: tf.RaggedTensor,
                 weights: tf.RaggedTensor | None) -> AnyEnqueueData:
    checks.check(value.shape.rank == 2, f"rank of the ragged input of feature {path!r}", "2",
                 value.shape.rank)
    _check_batch(path, place, value.shape[:1])
    return to_enqueue_data(value, weights)


def _check_batch(path: str, place: FeaturePlace, shape: tf.TensorShape) -> None:
    if shape.is_fully_defined():
        checks.check(math.prod(shape.as_list()) == place.sample_count,
                     f"batch of feature {path!r}",
                     f"{place.sample_count}, which fills output_shape "
                     f"{list(place.output_shape)}", shape.as_list())


_CONVERSIONS: dict[type, Callable[..., AnyEnqueueData]] = {
    tf.Tensor: _from_dense, tf.SparseTensor: _from_sparse, tf.RaggedTensor: _from_ragged}
