# SPDX-License-Identifier: Apache-2.0
"""The engine on stacks: looks up and updates what partitioned ids ask for."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import StepIds
from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    shard_replicas,
)
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
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
from tpu_estimator_embedding.mid_level.step.delayed_update import DelayedUpdate
from tpu_estimator_embedding.mid_level.step.table_variables import outside_strategies
from tpu_estimator_embedding.types import Tensor

Partitions = Mapping[str, PartitionedCsrFormatTensor]  # stack name -> ids


class StackEngine:
    """One engine for each stack, because stacks have different numbers of samples."""

    def __init__(self, stacks: Stacks, formats: Formats,
                 variables: Mapping[str, Mapping[str, StackVariable]], *, pipelined: bool,
                 num_replicas: int):
        self._stacks, self._formats = stacks, formats
        self._engines = {name: PartitionedEmbedding(
            stacks.plan.restricted_to([name]), {name: _table_variables(variables[name])})
            for name in stacks.stacks}
        self._delayed: dict[str, DelayedUpdate] = {}
        if pipelined:
            with outside_strategies():
                self._delayed = {name: DelayedUpdate(engine, self._example(name, num_replicas))
                                 for name, engine in self._engines.items()}

    def lookup(self, partitions: Partitions) -> dict[str, Tensor]:
        """Returns path -> activations `output_shape + [dim]` of one replica."""
        stacked = {name: engine.lookup(self._shard(name, [partitions], training=False))[name]
                   for name, engine in self._engines.items()}
        return split_stacks(self._stacks, stacked)

    def apply_gradients(self, replicas: Sequence[tuple[Partitions, Mapping[str, Tensor]]]
                        ) -> list[None]:
        """Updates every row that any replica looked up, once.

        Args:
            replicas: of each replica its ids, and path -> gradient of its activations.

        Returns:
            Nothing for each replica.
        """
        partitions = [ids for ids, _ in replicas]
        ids = {name: self._shard(name, partitions, training=True) for name in self._engines}
        gradients = [join_gradients(self._stacks, of_replica) for _, of_replica in replicas]
        for name, engine in self._engines.items():
            stacked = {name: tf.concat([of_replica[name] for of_replica in gradients], 0)}
            if self._delayed:
                self._delayed[name].apply()
                self._delayed[name].delay(ids[name], stacked)
            else:
                engine.apply_gradients(ids[name], stacked, tf.constant(0, tf.int64))
        return [None] * len(replicas)

    def complete(self) -> None:
        """Applies what pipelining has left to apply."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.apply()

    def forget(self) -> None:
        """Drops what pipelining has left to apply, where the tables are restored."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.drop()

    def _shard(self, name: str, replicas: Sequence[Partitions], *,
               training: bool) -> StepIds:
        form = self._formats[name]
        datas = [({name: engine_ids(from_csr(partitions[name], form), form.rows_per_shard)},
                  tf.constant(form.sample_count, tf.int64)) for partitions in replicas]
        # Lookups stand in functions that SavedModels keep, to be served without this package.
        return shard_replicas(self._engines[name].plan, datas, training=training,
                              portable=not training)

    def _example(self, name: str, num_replicas: int) -> StepIds:
        """Returns ids in a graph of its own, which show dtypes and shapes."""
        form = self._formats[name]
        with tf.Graph().as_default():
            ids = [tf.compat.v1.placeholder(dtype, [None]) for dtype in
                   (tf.int64, tf.int64, tf.int64, tf.float32)]
            tensor, *_ = to_csr(sort_ids(StackIds(*ids), form), form)
            return self._shard(name, [{name: tensor}] * num_replicas, training=True)


def _table_variables(variables: Mapping[str, StackVariable]) -> TableVariables:
    return TableVariables(
        list(variables[PARAMETERS].variables),
        {slot: list(variable.variables) for slot, variable in variables.items()
         if slot != PARAMETERS})
