# SPDX-License-Identifier: Apache-2.0
"""The engine on stacks: looks up and updates what partitioned ids ask for."""

import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.backend import Replicas, StepIds
from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.exportable_embedding import ExportableEmbedding
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.step_ids import is_native, shard_replicas
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    StackIds,
    from_csr,
)
from tpu_estimator_embedding.mid_level.sparse_core.preprocessing import Formats
from tpu_estimator_embedding.mid_level.sparse_core.sequential_context import is_sequential
from tpu_estimator_embedding.mid_level.sparse_core.stack_ids import (
    CORES,
    FEATURES,
    engine_ids,
    join_gradients,
    split_stack,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_variable import PARAMETERS, StackVariable
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.mid_level.step.table_variables import outside_strategies
from tpu_estimator_embedding.mid_level.step.update_count import UpdateCount
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor

Inputs = tuple[Tensor, ...]  # ids, rows and gains of one replica
Partitions = Mapping[str, PartitionedCsrFormatTensor]  # stack name -> ids


class PreservedIds(PartitionedCsrFormatTensor):
    """Ids that were looked up, with what an update needs of them.

    Attributes:
        order: the order of the rows of activations, `CORES` or `FEATURES`.
        inputs: ids, rows and gains as the engine takes them.
        prepared: the tensors of the ids of the step as the engine has them; none where the
            ids of several replicas make a step.
    """

    __name__ = "tpu_estimator_embedding.PreservedIds"

    order: str
    inputs: typing.Tuple[tf.Tensor, ...]  # noqa: UP006 - ExtensionType knows no other
    prepared: typing.Tuple[tf.Tensor, ...]  # noqa: UP006


class StackEngine:
    """One engine for each stack, because stacks have different numbers of samples."""

    def __init__(self, stacks: Stacks, formats: Formats,
                 variables: Mapping[str, Mapping[str, StackVariable]],
                 functions: ExportableFunctions, *, pipelined: bool, num_replicas: int,
                 update_count: UpdateCount):
        self._stacks, self._formats, self._num_replicas = stacks, formats, num_replicas
        self._update_count = update_count
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

    def lookup(self, partitions: Partitions,
               ids: Mapping[str, StackIds] | None = None) -> tuple[dict[str, Tensor], Partitions]:
        """Looks up the ids of one replica.

        Args:
            partitions: the ids, sorted for the cores.
            ids: the same in the order of features, where they are known; else they are read
                from the partitions.

        Returns:
            Path -> activations `output_shape + [dim]`, and the ids for `apply_gradients`.
        """
        order = CORES if ids is None else FEATURES
        activations: dict[str, Tensor] = {}
        preserved = {}
        for name, stack in self._stack_engines.items():
            inputs = self._inputs(name, from_csr(partitions[name], self._formats[name])
                                  if ids is None else ids[name])
            with tf.control_dependencies(self._applied(name) if is_sequential() else []):
                stacked, step_ids = stack.look_up([inputs], training=self._prepares)
            activations |= split_stack(self._stacks, name, stacked[name], order)
            preserved[name] = PreservedIds(
                **_fields(partitions[name]), order=order, inputs=inputs,
                prepared=self._prepared(name, step_ids))
        return {path: activations[path] for path in self._stacks.features}, preserved

    def apply_gradients(self, replicas: Sequence[tuple[Partitions, Mapping[str, Tensor]]]
                        ) -> list[None]:
        """Updates every row that any replica looked up, once.

        Args:
            replicas: of each replica its ids, and path -> gradient of its activations.

        Returns:
            Nothing for each replica.
        """
        step = self._update_count.next()
        for name, stack in self._stack_engines.items():
            preserved = [self._preserved(name, partitions[name]) for partitions, _ in replicas]
            stacked = tf.concat([
                join_gradients(self._stacks, name, gradients, ids.order)
                for ids, (_, gradients) in zip(preserved, replicas, strict=True)], 0)
            update = stack.engine.step_gradients({name: stacked}, step)
            inputs = [ids.inputs for ids in preserved]
            prepared = preserved[0].prepared if len(preserved) == 1 else ()
            ids = with_tensors(self._ids[name], prepared) if prepared else None
            if self._delayed and not is_sequential():
                self._delayed[name].delay(stack.engine, ids or self._shard(name, inputs), update)
            else:
                with tf.control_dependencies(self._applied(name)):
                    stack.update(inputs, ids, update)
        return [None] * len(replicas)

    def complete(self) -> None:
        """Applies what pipelining has left to apply."""
        with tf.init_scope():
            for name in self._delayed:
                self._applied(name)

    def forget(self) -> None:
        """Drops what pipelining has left to apply, where the tables are restored."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.drop()

    def _applied(self, name: str) -> list[Tensor]:
        """Applies what pipelining has left to apply to a stack; returns what to wait for."""
        if name not in self._delayed:
            return []
        return [self._delayed[name].apply(self._stack_engines[name].engine)]

    def _prepared(self, name: str, ids: StepIds) -> tuple[Tensor, ...]:
        if not self._prepares or not is_native(ids):
            return ()
        self._ids[name] = tf.nest.map_structure(
            lambda leaf: None if leaf is None else tf.constant(0), ids)
        return tuple(tensors_of(ids))

    def _preserved(self, name: str, partition: PartitionedCsrFormatTensor) -> PreservedIds:
        """Returns ids as `lookup` preserved them, also those that it did not look up."""
        if isinstance(partition, PreservedIds):
            return partition
        ids = from_csr(partition, self._formats[name])
        return PreservedIds(**_fields(partition), order=CORES, inputs=self._inputs(name, ids),
                            prepared=())

    def _inputs(self, name: str, ids: StackIds) -> Inputs:
        return tuple(engine_ids(ids, self._formats[name].rows_per_shard))

    def _shard(self, name: str, inputs: Sequence[Inputs]) -> StepIds:
        return shard_replicas(
            self._stack_engines[name].engine.plan,
            _to_replicas(name, self._formats[name], inputs), training=True, uniform=True)

    def _example(self, name: str) -> StepIds:
        """Returns ids in a graph of its own, which show dtypes and shapes."""
        with tf.Graph().as_default():
            inputs = tuple(tf.compat.v1.placeholder(dtype, [None])
                           for dtype in (tf.int64, tf.int64, tf.float32))
            return self._shard(name, [inputs] * self._num_replicas)


def check_partitions(argument: str, partitions: Mapping[str, Any], stacks: Stacks) -> Partitions:
    """Raises ValueError unless there are ids for every stack; returns them in order."""
    names = list(stacks.stacks)
    checks.check(sorted(partitions) == sorted(names), argument, f"keyed by the stacks {names}",
                 sorted(partitions))
    for name in names:
        checks.check(isinstance(partitions[name], PartitionedCsrFormatTensor),
                     f"{argument}[{name!r}]", "a PartitionedCsrFormatTensor",
                     type(partitions[name]).__name__, sentence=
                     f"Expect PartitionedCsrFormatTensor but get {type(partitions[name])}.")
    return {name: partitions[name] for name in names}


def _to_replicas(name: str, form: CsrFormat, inputs: Sequence[Inputs]) -> Replicas:
    return [({name: EnqueueData(*of_replica)}, tf.constant(form.sample_count, tf.int64))
            for of_replica in inputs]


def _fields(partition: PartitionedCsrFormatTensor) -> dict[str, Any]:
    return {name: getattr(partition, name)
            for name in PartitionedCsrFormatTensor.__annotations__}


def _table_variables(variables: Mapping[str, StackVariable]) -> TableVariables:
    return TableVariables(
        list(variables[PARAMETERS].variables),
        {slot: list(variable.variables) for slot, variable in variables.items()
         if slot != PARAMETERS})
