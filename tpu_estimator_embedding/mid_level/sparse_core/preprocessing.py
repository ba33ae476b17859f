# SPDX-License-Identifier: Apache-2.0
"""What the host does before SparseCores look up: features to ids sorted by core."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.sparse_core_embedding_config import (
    SparseCoreEmbeddingConfig,
)
from tpu_estimator_embedding.mid_level.sparse_core.feature_ids import feature_ids
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    SortedIds,
    partition_sizes,
    sort_ids,
    to_csr,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_ids import stack_ids
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.types import Tensor

Formats = Mapping[str, CsrFormat]
Limits = Mapping[str, int]  # stack name -> most ids of a partition

# Stack name -> arrays, row pointers in use, places for ids in use.
Partitioned = dict[str, tuple[PartitionedCsrFormatTensor, Tensor, Tensor]]


def csr_formats(stacks: Stacks, max_ids_per_sample: int = 64, *, max_minibatches: int = 64,
                allow_id_dropping: bool = False) -> dict[str, CsrFormat]:
    """Returns stack name -> sizes of its arrays."""
    cores = stacks.cores
    return {name: CsrFormat(
        name, cores.count, cores.num_sc_per_chip, stack.rows_per_shard,
        stacks.sample_count(name), max_ids_per_sample, max_minibatches, allow_id_dropping)
        for name, stack in stacks.stacks.items()}


def sorted_ids(stacks: Stacks, formats: Formats, features: Mapping[str, Any],
               weights: Mapping[str, Any]) -> dict[str, SortedIds]:
    """Returns stack name -> its ids, sorted.

    Args:
        stacks: the tables and features.
        formats: stack name -> format.
        features: path -> input.
        weights: path -> weights or None.

    Raises:
        Those of `feature_ids` and of the engine's `checked_ids`.
    """
    datas = {path: feature_ids(path, place, features[path], weights[path])
             for path, place in stacks.features.items()}
    return {name: sort_ids(ids, formats[name])
            for name, ids in stack_ids(stacks, datas).items()}


def to_partitioned(ids: Mapping[str, SortedIds], formats: Formats, max_ids: Limits,
                   max_unique_ids: Limits) -> Partitioned:
    """Puts sorted ids into their arrays.

    Raises:
        tf.errors.InvalidArgumentError: when run, if ids exceed the arrays or a limit.
    """
    partitioned = {}
    for name, form in formats.items():
        most, most_unique = partition_sizes(ids[name], form)
        assertions = [
            *_check_limit(name, "max_ids_per_table", max_ids.get(name), most),
            *_check_limit(name, "max_unique_ids_per_table", max_unique_ids.get(name),
                          most_unique)]
        with tf.control_dependencies(assertions):
            partitioned[name] = to_csr(ids[name], form)
    return partitioned


def check_limits(config: SparseCoreEmbeddingConfig, stacks: Stacks) -> None:
    """Raises ValueError unless limits are those of stacks."""
    for argument in ("max_ids_per_table", "max_unique_ids_per_table"):
        names = sorted(getattr(config, argument) or {})
        checks.check(set(names) <= set(stacks.stacks), argument,
                     f"keyed by the names of stacks, {sorted(stacks.stacks)}", names)


def _check_limit(stack: str, argument: str, limit: int | None,
                 found: Tensor) -> list[tf.Operation]:
    if limit is None:
        return []
    sentence = (f"`ids of stack {stack!r}` from one SparseCore to one partition must be at most "
                f"{limit}, got <value>. Raise {argument} of the SparseCoreEmbeddingConfig.")
    return assert_that(found <= limit, sentence, found)
