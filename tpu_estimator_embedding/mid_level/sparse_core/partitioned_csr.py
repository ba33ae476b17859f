# SPDX-License-Identifier: Apache-2.0
"""The ids of one stack in the format of SparseCores: sorted by the core that holds the row.

Every local core has one partition for each of the N cores: the ids that it requests from that
core. An id consists of a row of the core's shard, a sample of the local core, and a gain.
`row_pointers` holds the end of each partition; the next partition begins at the next multiple
of 8.
"""

import dataclasses
from typing import NamedTuple, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.types import Tensor

_LANES = 8  # partitions begin at multiples of 8
_PADDING = tf.int32.max


class PartitionedCsrFormatTensor(tf.experimental.ExtensionType):
    """Ids in CSR format, one row for each pair of cores, in arrays of fixed size.

    Attributes:
        row_pointers: int32, end of the partition of each local core and each of the N cores;
            the number of pointers per local core is rounded up to a multiple of 8.
        sorted_sample_ids: `[capacity]` int32, sample of the local core.
        sorted_token_ids: `[capacity]` int32, row of the other core's shard.
        sorted_gains: `[capacity]` float32, weight times the factor of the combiner.
        sample_count: samples of all local cores.
        num_minibatches_per_physical_sparse_core: scalar int32, always 1 here.

    Unused elements of the arrays hold the largest int32.
    """

    __name__ = "tpu_estimator_embedding.PartitionedCsrFormatTensor"

    row_pointers: tf.Tensor
    sorted_sample_ids: tf.Tensor
    sorted_token_ids: tf.Tensor
    sorted_gains: tf.Tensor
    sample_count: int
    num_minibatches_per_physical_sparse_core: tf.Tensor


class StackIds(NamedTuple):
    """The ids of a stack in coordinate (COO) format.

    Attributes:
        shards: `[n]` int64, the core that holds the row.
        tokens: `[n]` int64, row of that core's shard.
        rows: `[n]` int64, rows of the activations of the stack.
        gains: `[n]` float32.
    """

    shards: Tensor
    tokens: Tensor
    rows: Tensor
    gains: Tensor


@dataclasses.dataclass(frozen=True)
class CsrFormat:
    """The sizes of the arrays of a stack.

    Attributes:
        stack: name of the stack.
        num_shards: N, the number of cores on all chips.
        num_cores: number of local cores, those of one chip.
        rows_per_shard: rows of the stack on each core.
        sample_count: rows of activations on one chip.
        max_ids_per_sample: capacity for ids per sample.
        max_minibatches: capacity for row pointers, in minibatches.
        allow_id_dropping: whether ids beyond the capacity are dropped instead of refused.
    """

    stack: str
    num_shards: int
    num_cores: int
    rows_per_shard: int
    sample_count: int
    max_ids_per_sample: int = 64
    max_minibatches: int = 64
    allow_id_dropping: bool = False

    @property
    def samples_per_core(self) -> int:
        """Samples of each local core."""
        return self.sample_count // self.num_cores

    @property
    def capacity(self) -> int:
        """Length of the arrays of ids, including the padding of partitions."""
        return _round_up(self.max_ids_per_sample * self.sample_count)

    @property
    def padding(self) -> int:
        """Maximum number of elements that pad partitions to multiples of 8."""
        return (_LANES - 1) * self.num_cores * self.num_shards

    @property
    def pointers_per_core(self) -> int:
        """Number of row pointers of each local core."""
        return _round_up(self.num_shards)


class SortedIds(NamedTuple):
    """The ids of a stack in the order of the arrays, without duplicates and without padding.

    Attributes:
        partitions: `[u]` int64, local core · N + core.
        tokens, samples: `[u]` int64.
        gains: `[u]` float32, summed over duplicates.
        counts: `[num_cores · N]` int64, number of ids in every partition.
    """

    partitions: Tensor
    tokens: Tensor
    samples: Tensor
    gains: Tensor
    counts: Tensor


def sort_ids(ids: StackIds, csr: CsrFormat) -> SortedIds:
    """Sorts ids by local core, core, token and sample; sums the gains of duplicates."""
    core, sample = ids.rows // csr.samples_per_core, ids.rows % csr.samples_per_core
    partition = core * csr.num_shards + ids.shards
    keys = ((partition * csr.rows_per_shard) + ids.tokens) * csr.samples_per_core + sample
    keys, positions = tf.unique(keys)
    gains = tf.math.unsorted_segment_sum(ids.gains, positions, tf.size(keys))
    order = tf.argsort(keys)
    rest, samples = _divide(tf.gather(keys, order), csr.samples_per_core)
    partitions, tokens = _divide(rest, csr.rows_per_shard)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(partitions), partitions, csr.num_cores * csr.num_shards)
    return SortedIds(partitions, tokens, samples, tf.gather(gains, order), counts)


def partition_sizes(ids: SortedIds, csr: CsrFormat) -> tuple[Tensor, Tensor]:
    """Returns the maximum over partitions of the ids and of the distinct ids: scalar int32."""
    tokens, _ = tf.unique(ids.partitions * csr.rows_per_shard + ids.tokens)
    distinct = tf.math.unsorted_segment_sum(
        tf.ones_like(tokens), tokens // csr.rows_per_shard, tf.size(ids.counts))
    return (tf.cast(tf.reduce_max(ids.counts), tf.int32),
            tf.cast(tf.reduce_max(distinct), tf.int32))


def to_csr(ids: SortedIds, csr: CsrFormat) -> tuple[PartitionedCsrFormatTensor, Tensor, Tensor]:
    """Copies sorted ids to arrays of fixed size.

    Returns:
        The arrays, the number of row pointers in use, and the number of elements for ids in use.

    Raises:
        tf.errors.InvalidArgumentError: when run, if the ids exceed the arrays.
    """
    sizes = _round_up(ids.counts)
    starts, firsts = tf.cumsum(sizes, exclusive=True), tf.cumsum(ids.counts, exclusive=True)
    ends, used = starts + ids.counts, tf.reduce_sum(sizes)
    places = (tf.range(tf.size(ids.tokens, out_type=tf.int64))
              + tf.gather(starts - firsts, ids.partitions))
    with tf.control_dependencies([] if csr.allow_id_dropping else _check_room(used, csr)):
        used = tf.cast(tf.minimum(used, csr.capacity), tf.int32)
    kept = tf.where(places < csr.capacity)
    tensor = PartitionedCsrFormatTensor(
        row_pointers=_row_pointers(tf.minimum(ends, csr.capacity), csr),
        sorted_sample_ids=_fill(csr, tf.int32, places, kept, ids.samples, used),
        sorted_token_ids=_fill(csr, tf.int32, places, kept, ids.tokens, used),
        sorted_gains=_fill(csr, tf.float32, places, kept, ids.gains, used),
        sample_count=csr.sample_count,
        num_minibatches_per_physical_sparse_core=tf.constant(1))
    return tensor, tf.constant(csr.num_cores * csr.pointers_per_core), used


def from_csr(tensor: PartitionedCsrFormatTensor, csr: CsrFormat) -> StackIds:
    """Converts the arrays back to ids, in the order of the rows of activations."""
    pointers = tensor.row_pointers[:csr.num_cores * csr.pointers_per_core]
    ends = tf.reshape(tf.reshape(pointers, [csr.num_cores, -1])[:, :csr.num_shards], [-1])
    starts = tf.concat([[0], _round_up(ends[:-1])], 0)
    counts = ends - starts
    lasts = tf.cumsum(counts)
    count = tf.range(lasts[-1])
    partitions = tf.searchsorted(lasts, count, side="right")
    places = count + tf.gather(starts - (lasts - counts), partitions)
    cores, shards = _divide(partitions, csr.num_shards)
    rows = cores * csr.samples_per_core + tf.gather(tensor.sorted_sample_ids, places)
    order = tf.argsort(rows, stable=True)
    places = tf.gather(places, order)
    return StackIds(
        tf.cast(tf.gather(shards, order), tf.int64),
        tf.cast(tf.gather(tensor.sorted_token_ids, places), tf.int64),
        tf.cast(tf.gather(rows, order), tf.int64), tf.gather(tensor.sorted_gains, places))


def _row_pointers(ends: Tensor, csr: CsrFormat) -> Tensor:
    """Returns the ends of partitions, padded with the last end of each core and then zeros."""
    ends = tf.reshape(ends, [csr.num_cores, csr.num_shards])
    missing = csr.pointers_per_core - csr.num_shards
    ends = tf.concat([ends, tf.repeat(_round_up(ends[:, -1:]), missing, axis=1)], 1)
    used = csr.num_cores * csr.pointers_per_core
    return tf.pad(tf.cast(tf.reshape(ends, [used]), tf.int32),
                  [[0, used * (csr.max_minibatches - 1)]])


def _fill(csr: CsrFormat, dtype: tf.DType, places: Tensor, kept: Tensor, values: Tensor,
          used: Tensor) -> Tensor:
    """Returns `[capacity]`: the values at their places, and padding elsewhere."""
    padding = tf.cast(_PADDING, dtype)
    part = tf.tensor_scatter_nd_update(
        tf.fill([used], padding), tf.gather_nd(places, kept)[:, tf.newaxis],
        tf.cast(tf.gather_nd(values, kept), dtype))
    whole = tf.pad(part, [[0, csr.capacity - used]], constant_values=padding)
    return tf.ensure_shape(whole, [csr.capacity])


def _check_room(used: Tensor, csr: CsrFormat) -> list[tf.Operation]:
    sentence = (f"Ids of stack {csr.stack!r} must fit into <value> places, got <value>. Raise "
                "max_ids_per_chip_per_sample of the SparseCoreEmbeddingConfig.")
    return assert_that(used <= csr.capacity, sentence, tf.constant(csr.capacity), used)


def _divide(value: Tensor, divisor: int) -> tuple[Tensor, Tensor]:
    return value // divisor, value % divisor


Number = TypeVar("Number", int, Tensor)


def _round_up(value: Number) -> Number:
    return (value + _LANES - 1) // _LANES * _LANES
