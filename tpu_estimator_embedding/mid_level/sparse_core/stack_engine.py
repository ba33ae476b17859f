# SPDX-License-Identifier: Apache-2.0
"""The engine on stacks: looks up and updates what partitioned ids ask for."""

import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Replicas, StepIds
from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.exportable_embedding import ExportableEmbedding
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.step_ids import is_native, shard_replicas
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    StackIds,
    from_csr,
    sort_ids,
    to_csr,
)
from tpu_estimator_embedding.mid_level.sparse_core.preprocessing import Formats
from tpu_estimator_embedding.mid_level.sparse_core.stack_ids import (
    engine_ids,
    join_gradients,
    split_stacks,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_variable import PARAMETERS, StackVariable
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.mid_level.step.table_variables import outside_strategies
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor

Partitions = Mapping[str, PartitionedCsrFormatTensor]  # stack name -> ids


class PreservedIds(PartitionedCsrFormatTensor):
    """Ids that were looked up, with what an update needs of them.

    Attributes:
        prepared: the tensors of the ids of the step as the engine has them; none where the
            ids of several replicas make a step.
    """

    __name__ = "tpu_estimator_embedding.PreservedIds"

    prepared: typing.Tuple[tf.Tensor, ...]  # noqa: UP006 - ExtensionType knows no other


class StackEngine:
    """One engine for each stack, because stacks have different numbers of samples."""

    def __init__(self, stacks: Stacks, formats: Formats,
                 variables: Mapping[str, Mapping[str, StackVariable]],
                 functions: ExportableFunctions, *, pipelined: bool, num_replicas: int):
        self._stacks, self._formats, self._num_replicas = stacks, formats, num_replicas
        self._stack_engines = {name: ExportableEmbedding(
            stacks.plan.restricted_to([name]), {name: _table_variables(variables[name])},
            functions, functools.partial(_to_replicas, name, formats[name]))
            for name in stacks.stacks}
        # Ids of several replicas become those of one step when all have their gradients.
        self._prepares = num_replicas == 1 and all(
            table.optimizer for table in stacks.plan.tables)
        self._ids: dict[str, StepIds] = {}  # of any batch, whose structure all have
        self._delayed: dict[str, DelayedUpdate] = {}
        if pipelined:
            with outside_strategies():
                self._delayed = {
                    name: DelayedUpdate(stack.engine.plan, self._example(name))
                    for name, stack in self._stack_engines.items()}

    def lookup(self, partitions: Partitions) -> tuple[dict[str, Tensor], Partitions]:
        """Looks up the ids of one replica.

        Returns:
            Path -> activations `output_shape + [dim]`, and the ids for `apply_gradients`.
        """
        stacked, preserved = {}, {}
        for name, stack in self._stack_engines.items():
            partition = _without_prepared(partitions[name])
            activations, ids = stack.look_up([partition], training=self._prepares)
            stacked[name] = activations[name]
            preserved[name] = self._preserve(name, partition, ids)
        return split_stacks(self._stacks, stacked), preserved

    def apply_gradients(self, replicas: Sequence[tuple[Partitions, Mapping[str, Tensor]]]
                        ) -> list[None]:
        """Updates every row that any replica looked up, once.

        Args:
            replicas: of each replica its ids, and path -> gradient of its activations.

        Returns:
            Nothing for each replica.
        """
        gradients = [join_gradients(self._stacks, of_replica) for _, of_replica in replicas]
        for name, stack in self._stack_engines.items():
            partitions = [of_replica[name] for of_replica, _ in replicas]
            stacked = {name: tf.concat([of_replica[name] for of_replica in gradients], 0)}
            update = stack.engine.step_gradients(stacked, tf.constant(0, tf.int64))
            ids = self._restore(name, partitions)
            inputs = list(map(_without_prepared, partitions))
            if self._delayed:
                self._delayed[name].delay(stack.engine, ids or self._shard(name, inputs), update)
            else:
                stack.update(inputs, ids, update)
        return [None] * len(replicas)

    def complete(self) -> None:
        """Applies what pipelining has left to apply."""
        with tf.init_scope():
            for name, delayed in self._delayed.items():
                delayed.apply(self._stack_engines[name].engine)

    def forget(self) -> None:
        """Drops what pipelining has left to apply, where the tables are restored."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.drop()

    def _preserve(self, name: str, partition: PartitionedCsrFormatTensor,
                  ids: StepIds) -> PartitionedCsrFormatTensor:
        if not self._prepares or not is_native(ids):
            return partition
        self._ids[name] = tf.nest.map_structure(
            lambda leaf: None if leaf is None else tf.constant(0), ids)
        return PreservedIds(**_fields(partition), prepared=tuple(tensors_of(ids)))

    def _restore(self, name: str,
                 partitions: Sequence[PartitionedCsrFormatTensor]) -> StepIds | None:
        """Returns the ids of a step as they were looked up, None if they were not."""
        first = partitions[0]
        if len(partitions) > 1 or not isinstance(first, PreservedIds):
            return None
        return with_tensors(self._ids[name], first.prepared)

    def _shard(self, name: str, partitions: Sequence[PartitionedCsrFormatTensor]) -> StepIds:
        return shard_replicas(
            self._stack_engines[name].engine.plan,
            _to_replicas(name, self._formats[name], partitions), training=True, uniform=True)

    def _example(self, name: str) -> StepIds:
        """Returns ids in a graph of its own, which show dtypes and shapes."""
        form = self._formats[name]
        with tf.Graph().as_default():
            ids = [tf.compat.v1.placeholder(dtype, [None]) for dtype in
                   (tf.int64, tf.int64, tf.int64, tf.float32)]
            tensor, *_ = to_csr(sort_ids(StackIds(*ids), form), form)
            return self._shard(name, [tensor] * self._num_replicas)


def _to_replicas(name: str, form: CsrFormat,
                 partitions: Sequence[PartitionedCsrFormatTensor]) -> Replicas:
    return [({name: engine_ids(from_csr(partition, form), form.rows_per_shard)},
             tf.constant(form.sample_count, tf.int64)) for partition in partitions]


def _without_prepared(partition: PartitionedCsrFormatTensor) -> PartitionedCsrFormatTensor:
    if not isinstance(partition, PreservedIds):
        return partition
    fields = _fields(partition)
    return PartitionedCsrFormatTensor(**fields)


def _fields(partition: PartitionedCsrFormatTensor) -> dict[str, Any]:
    return {name: getattr(partition, name)
            for name in PartitionedCsrFormatTensor.__annotations__}


def _table_variables(variables: Mapping[str, StackVariable]) -> TableVariables:
    return TableVariables(
        list(variables[PARAMETERS].variables),
        {slot: list(variable.variables) for slot, variable in variables.items()
         if slot != PARAMETERS})
