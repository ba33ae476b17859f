# SPDX-License-Identifier: Apache-2.0
"""The ids of one step by table and host; TensorFlow's own ops look up and update tables by them.

`prepare_sharded_ids` converts enqueued features to `ShardedIds`. It runs before the step that uses
them, checks all ids before any table is touched, and is pure: the values can be stored in a queue
or passed to a `tf.function`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from tpu_estimator_embedding.engine.checked_ids import checked_ids, to_stack_rows
from tpu_estimator_embedding.engine.enqueue_data import check_features
from tpu_estimator_embedding.engine.measures import HostMeasures, Marks, StepMeasures, stack_values
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.step import Replicas, StepGradients, Variables
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.lookup import (
    RowGradients,
    gather_rows,
    lookup,
    sum_duplicates,
)
from tpu_estimator_embedding.ops.sparse_ids import SparseIds
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer, clip
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.partition_strategy import ids_of_rows, part_sizes, shard_of_id
from tpu_estimator_embedding.types import Tensor


class HostIds(NamedTuple):
    """The ids of one table that one host holds.

    Attributes:
        ids: `[n]` int64, rows of this host's part of the table.
        rows: `[n]` int64, rows of the activations, not decreasing.
        weights: `[n]` float32, or None for 1 everywhere.
        unique_ids: `[u]` int64, the distinct `ids`; None unless training.
        positions: `[n]` int32, index of each id in `unique_ids`; None unless training.
    """

    ids: Tensor
    rows: Tensor
    weights: Tensor | None
    unique_ids: Tensor | None
    positions: Tensor | None


class ShardedIds(NamedTuple):
    """The ids of one table in one step.

    Attributes:
        hosts: the ids that each host looks up.
        row_scales: `[num_rows]` float32, the combiner's factor for each row of
            activations; None for 1 everywhere.
        row_counts: `[replicas]` int64, rows of activations of each replica. The rows of a
            replica are those of its features, in the order of the plan.
        given_count: scalar int64, ids before any were dropped.
    """

    hosts: tuple[HostIds, ...]
    row_scales: Tensor | None
    row_counts: Tensor
    given_count: Tensor

    @property
    def num_rows(self) -> Tensor:
        """Rows of activations of the table, a scalar."""
        return tf.reduce_sum(self.row_counts)


class ShardedStepIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        tables: table name -> its ids.
    """

    tables: Mapping[str, ShardedIds]

    @property
    def is_native(self) -> bool:
        """Whether compiled ops prepared the ids. Never true here."""
        return False

    @property
    def can_join(self) -> bool:
        """Whether several tables can be looked up as one tensor: each is looked up alone."""
        return False

    @property
    def are_for_training(self) -> bool:
        """Whether the ids were prepared for training."""
        return all(host.unique_ids is not None for table in self.tables.values()
                   for host in table.hosts)

    def rows_of_replicas(self, plan: EmbeddingPlan) -> dict[str, Tensor]:
        """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
        return {table.name: self.tables[table.name].row_counts for table in plan.tables}

    def lookup(self, plan: EmbeddingPlan, variables: Variables) -> dict[str, Tensor]:
        """Returns table name -> `[num_rows, dim]` float32."""
        return {table.name: _lookup_table(table, variables[table.name], self.tables[table.name])
                for table in plan.tables if table.name in variables}

    def update(self, plan: EmbeddingPlan, variables: Variables,
               step_gradients: StepGradients) -> list[tf.Operation]:
        """Returns the writes to all tables and slots."""
        return [write for table in plan.tables for host in range(len(variables[table.name].parts))
                for write in update_part(
                    plan, table, variables[table.name], host, self.tables[table.name].hosts[host],
                    self.tables[table.name].row_counts,
                    scaled_gradient(table, self.tables[table.name].row_scales, step_gradients),
                    step_gradients.learning_rates[table.name], step_gradients.step)[0]]

    def measured_update(self, plan: EmbeddingPlan, variables: Variables,
                        step_gradients: StepGradients, marks: Marks,
                        measures: Tensor) -> StepMeasures:
        """Updates all tables, marks the rows, and measures them if `measures` is true."""
        hosts: list[list[HostMeasures]] = []
        for table in plan.tables:
            of_table = self.tables[table.name]
            gradient = scaled_gradient(table, of_table.row_scales, step_gradients)
            for host, host_ids in enumerate(of_table.hosts):
                hosts += [[]] if host == len(hosts) else []
                hosts[host].append(measured_update_of_part(
                    plan, table, variables[table.name], host, host_ids, of_table.row_counts,
                    gradient, step_gradients.learning_rates[table.name], step_gradients.step,
                    marks[table.name][host], measures))
        return StepMeasures(
            tuple(concatenated(of_host) for of_host in hosts),
            tf.stack([self.tables[table.name].given_count for table in plan.tables]),
            stack_values(step_gradients.multipliers, list(plan.tables)),
            stack_values(step_gradients.learning_rates, list(plan.tables)))


def prepare_sharded_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                        uniform: bool) -> ShardedStepIds:
    """Checks the ids of a step and distributes them to tables and hosts.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size.
        training: whether gradients will follow; if so, duplicates are found here.
        uniform: whether ids without weights get weights of 1, as others of the plan may have.

    Returns:
        The ids of every table. The activations of the replicas are concatenated along axis 0.

    Raises:
        ValueError: if the enqueued data of a replica has other features than the plan.
        Others: those of `checked_ids`.
    """
    for enqueue_datas, _ in replicas:
        check_features(plan, enqueue_datas)
    batch_sizes = [tf.cast(batch_size, tf.int64) for _, batch_size in replicas]
    ids = [checked_ids(plan, enqueue_datas, batch_size)
           for (enqueue_datas, _), batch_size in zip(replicas, batch_sizes, strict=True)]
    for replica, batch_size in zip(ids, batch_sizes, strict=True):
        replica.update({feature.name: to_stack_rows(
            feature.stacked, replica[feature.name], batch_size * feature.rows_per_sample)
            for feature in plan.features if feature.stacked})
    if uniform:
        ids = [{name: part._replace(weights=sparse_ids.weights_or_ones(part))
                for name, part in replica.items()} for replica in ids]
    return ShardedStepIds({
        table.name: _shard_table(plan, table, ids, batch_sizes, training,
                                 _count_given(plan, table, replicas)) for table in plan.tables})


def _count_given(plan: EmbeddingPlan, table: TablePlan, replicas: Replicas) -> Tensor:
    return tf.add_n([tf.size(enqueue_datas[feature.name].embedding_indices, tf.int64)
                     for enqueue_datas, _ in replicas
                     for feature in plan.features_of(table.name)])


def _shard_table(plan: EmbeddingPlan, table: TablePlan, ids: Sequence[Mapping[str, SparseIds]],
                 batch_sizes: Sequence[Tensor], training: bool,
                 given_count: Tensor) -> ShardedIds:
    features = plan.features_of(table.name)
    parts = [replica[feature.name] for replica in ids for feature in features]
    part_rows = [batch_size * feature.rows_per_sample
                 for batch_size in batch_sizes for feature in features]
    stacked = sparse_ids.without_negative(sparse_ids.stack(parts, part_rows))
    row_counts = tf.stack(batch_sizes) * sum(feature.rows_per_sample for feature in features)
    scales = row_scales(table.combiner, stacked, tf.reduce_sum(row_counts))
    hosts = _split_over_hosts(plan, table, stacked)
    if training:
        hosts = [with_unique_ids(host) for host in hosts]
    return ShardedIds(tuple(hosts), scales, row_counts, given_count)


def _split_over_hosts(plan: EmbeddingPlan, table: TablePlan, stacked: SparseIds) -> list[HostIds]:
    num_parts = len(part_sizes(table.vocabulary_size, plan.num_hosts))
    if num_parts == 1:
        return [HostIds(*stacked, None, None)]
    part, row_in_part = shard_of_id(stacked.ids, table.vocabulary_size, plan.num_hosts,
                                    plan.partition_strategy)
    return [_take(stacked._replace(ids=row_in_part), tf.where(tf.equal(part, host))[:, 0])
            for host in range(num_parts)]


def _take(ids: SparseIds, kept: Tensor) -> HostIds:
    taken = SparseIds._make(None if tensor is None else tf.gather(tensor, kept) for tensor in ids)
    return HostIds(*taken, None, None)


def with_unique_ids(host: HostIds) -> HostIds:
    """Adds unique_ids and positions to the ids of a host."""
    unique_ids, positions = tf.unique(host.ids)
    return host._replace(unique_ids=unique_ids, positions=positions)


def _lookup_table(table: TablePlan, variables: TableVariables, ids: ShardedIds) -> Tensor:
    num_rows = ids.num_rows
    sums = []
    for part, host in zip(variables.parts, ids.hosts, strict=True):
        with beside(part):
            sums.append(lookup(part, host.ids, host.rows, host.weights, num_rows,
                               table.quantization))
    total = sums[0] if len(sums) == 1 else tf.add_n(sums)
    return total if ids.row_scales is None else total * ids.row_scales[:, tf.newaxis]


def scaled_gradient(table: TablePlan, row_scales: Tensor | None,
                    step_gradients: StepGradients) -> Tensor:
    """Returns the gradient `[num_rows, dim]` of the sums of a table's rows."""
    gradient = step_gradients.gradients[table.name]
    if table.name in step_gradients.multipliers:
        gradient *= step_gradients.multipliers[table.name]
    return gradient if row_scales is None else gradient * row_scales[:, tf.newaxis]


def update_part(plan: EmbeddingPlan, table: TablePlan, variables: TableVariables, host: int,
                ids: HostIds, row_counts: Tensor, gradient: Tensor,
                learning_rate: Tensor | float, step: Tensor
                ) -> tuple[list[tf.Operation], list[RowGradients]]:
    """Updates a part of a table and its slots.

    Args:
        plan, table, variables, host: identify the part.
        ids: the ids of the part.
        row_counts: `[replicas]` int64, rows of activations of each replica.
        gradient: the scaled gradient of these rows.
        learning_rate, step: scalars.

    Returns:
        The writes, and the gradients of each round of updates.
    """
    slots = {name: parts[host] for name, parts in variables.slots.items()}
    updates: list[tf.Operation] = []
    gradients = []
    for round_ids in _rounds(plan, table, ids, row_counts, host):
        assert round_ids.unique_ids is not None and round_ids.positions is not None, "not training"
        with tf.control_dependencies(updates), beside(variables.parts[host]):
            gradients.append(sum_duplicates(
                gradient, round_ids.rows, round_ids.weights, round_ids.unique_ids,
                round_ids.positions))
            updates = update_rows(table.training_optimizer, variables.parts[host], slots,
                                  gradients[-1], cast(Tensor, learning_rate), step)
    return updates, gradients


def measured_update_of_part(plan: EmbeddingPlan, table: TablePlan, variables: TableVariables,
                            host: int, ids: HostIds, row_counts: Tensor, gradient: Tensor,
                            learning_rate: Tensor | float, step: Tensor, marks: tf.Variable,
                            measures: Tensor) -> HostMeasures:
    """Updates like `update_part`, marks the rows, and measures them if `measures` is true."""
    assert ids.unique_ids is not None, "not training"
    part = variables.parts[host]
    with beside(part):
        before = rows_if(measures, part, ids.unique_ids)
    with tf.control_dependencies([before]):
        writes, gradients = update_part(plan, table, variables, host, ids, row_counts, gradient,
                                        learning_rate, step)
    with tf.control_dependencies(writes), beside(part):
        return measure(measures, part, marks, ids, before, gradients,
                       table.training_optimizer.gradient_limits)


def _rounds(plan: EmbeddingPlan, table: TablePlan, ids: HostIds, row_counts: Tensor,
            host: int) -> list[HostIds]:
    """Returns the rounds of the update: all ids, or without accumulation one core per row."""
    num_cores = tf.compat.dimension_value(row_counts.shape[0])
    if table.training_optimizer.use_gradient_accumulation or num_cores == 1:
        return [ids]
    row_ids = ids_of_rows(ids.unique_ids, host, table.vocabulary_size, plan.num_hosts,
                          plan.partition_strategy)
    return core_by_core(ids, row_ids % num_cores, row_counts)


def core_by_core(ids: HostIds, home_cores: Tensor, row_counts: Tensor) -> list[HostIds]:
    """Splits the ids of a step into rounds, in each of which a row has one core's ids.

    Args:
        ids: the ids of all cores.
        home_cores: `[u]` int64, the core that each of `ids.unique_ids` lives on.
        row_counts: `[cores]` int64, rows of activations of each core.

    Returns:
        One part of the ids for each core's distance from home, to be applied in order.

    >>> ids = with_unique_ids(HostIds(tf.constant([4, 5, 4]), tf.constant([0, 1, 2]), None,
    ...                               None, None))
    >>> rounds = core_by_core(ids, home_cores=tf.constant([0, 1], tf.int64),
    ...                       row_counts=tf.constant([2, 2], tf.int64))
    >>> [part.ids.numpy().tolist() for part in rounds]  # core 0 has [4, 5], core 1 has [4]
    [[4], [5, 4]]
    """
    num_cores = tf.compat.dimension_value(row_counts.shape[0])
    ends = tf.cumsum(row_counts)
    cores = tf.searchsorted(ends, tf.cast(ids.rows, ends.dtype), side="right",
                            out_type=tf.int64)
    distances = (cores - tf.gather(home_cores, ids.positions)) % num_cores
    return [_at(ids, tf.where(tf.equal(distances, distance))[:, 0])
            for distance in range(num_cores)]


def _at(ids: HostIds, kept: Tensor) -> HostIds:
    weights = None if ids.weights is None else tf.gather(ids.weights, kept)
    return with_unique_ids(HostIds(tf.gather(ids.ids, kept), tf.gather(ids.rows, kept),
                                   weights, None, None))


def update_rows(optimizer: RowOptimizer, table: tf.Variable, slots: Mapping[str, tf.Variable],
                row_gradients: RowGradients, learning_rate: Tensor,
                step: Tensor) -> list[tf.Operation]:
    """Updates the touched rows of one part of a table, and its slots, in place.

    Args:
        optimizer: the update.
        table: resource variable `[rows of this part, dim]`.
        slots: slot name -> resource variable of the same shape.
        row_gradients: the summed gradients of distinct rows.
        learning_rate: scalar float32.
        step: scalar, the global step before it is incremented.

    Returns:
        The writes; all of them run after all reads.
    """
    ids, gradients = row_gradients
    row = gather_rows(table, ids)
    slot_rows = {name: gather_rows(slot, ids) for name, slot in slots.items()}
    new_row, new_slots = optimizer.update(gradients, row, slot_rows, learning_rate, step)
    new_values = [(table, new_row), *((slots[name], new_slots[name]) for name in slots)]
    reads = [row, *slot_rows.values()]
    if not optimizer.rule.updates_untouched_rows:
        with tf.control_dependencies(reads):
            return [tf.raw_ops.ResourceScatterUpdate(
                resource=variable.handle, indices=ids, updates=values)
                for variable, values in new_values]
    return _update_all_rows(optimizer, table, slots, ids, new_values, learning_rate, step)


def _update_all_rows(optimizer: RowOptimizer, table: tf.Variable,
                     slots: Mapping[str, tf.Variable], touched: Tensor,
                     touched_values: Sequence[tuple[tf.Variable, Tensor]],
                     learning_rate: Tensor, step: Tensor) -> list[tf.Operation]:
    """Updates all rows; untouched rows get a gradient of 0, without clipping and decay."""
    row, slot_rows = table.read_value(), {name: slot.read_value() for name, slot in slots.items()}
    new_row, new_slots = optimizer.rule.update(tf.zeros_like(row), row, slot_rows, learning_rate,
                                               step)
    everywhere = {id(table): new_row, **{id(slots[name]): new_slots[name] for name in slots}}
    with tf.control_dependencies([row, *slot_rows.values(),
                                  *(values for _, values in touched_values)]):
        return [variable.assign(tf.tensor_scatter_nd_update(
            everywhere[id(variable)], touched[:, tf.newaxis], values), read_value=False)
            for variable, values in touched_values]


def rows_if(measures: Tensor, part: tf.Variable, ids: Tensor) -> Tensor:
    """Returns the rows `[u, dim]` of a part; no rows if nothing is measured."""
    return tf.cond(measures, lambda: gather_rows(part, ids),
                   lambda: tf.zeros([0, part.shape[1]], part.dtype))


def measure(measures: Tensor, part: tf.Variable, marks: tf.Variable, ids: HostIds, before: Tensor,
            gradients: Sequence[RowGradients], limits: Limits) -> HostMeasures:
    """Marks the rows of an updated part, and measures them.

    Args:
        measures: scalar bool; if False, all results are empty or 0.
        part: the rows of the part.
        marks: the mark of each row.
        ids: the ids of the step.
        before: the rows of `ids.unique_ids` before the update.
        gradients: the gradients of the rows in each round of updates.
        limits: the limits of the gradients.

    Returns:
        The measures of one table, each field with one row.
    """
    unique_ids, positions = ids.unique_ids, ids.positions
    assert unique_ids is not None and positions is not None  # of ids for training
    mark = tf.raw_ops.ResourceScatterUpdate(
        resource=marks.handle, indices=unique_ids, updates=tf.ones_like(unique_ids, tf.bool))

    def measured() -> HostMeasures:
        after = gather_rows(part, unique_ids)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(positions), positions, tf.size(unique_ids))
        sums = [tf.add_n(of_rounds) for of_rounds in zip(
            *(_gradient_sums(of_round.gradients, limits) for of_round in gradients), strict=True)]
        sums += [_squares(tf.cast(after, tf.float64) - tf.cast(before, tf.float64)),
                 _squares(before)]
        covered = tf.math.count_nonzero(marks.read_value())
        norms = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(after, tf.float64)), 1))
        return HostMeasures(
            tf.stack(sums)[tf.newaxis], covered[tf.newaxis], tf.cast(norms, tf.float32),
            unique_ids, tf.cumsum(counts),
            tf.stack([tf.size(ids.ids, tf.int64), tf.size(unique_ids, tf.int64), tf.add_n([
                tf.size(of_round.ids, tf.int64) for of_round in gradients])])[tf.newaxis])

    with tf.control_dependencies([] if mark is None else [mark]):
        return HostMeasures(*tf.cond(measures, lambda: tuple(measured()), lambda: (
            tf.zeros([1, 5], tf.float64), tf.zeros([1], tf.int64), tf.zeros([0]),
            tf.zeros([0], unique_ids.dtype), tf.zeros([0], tf.int32),
            tf.zeros([1, 3], tf.int64))))


def concatenated(tables: Sequence[HostMeasures]) -> HostMeasures:
    """Returns the measures of all tables of a host."""
    return HostMeasures(*(tf.concat(parts, 0) for parts in zip(*tables, strict=True)))


def _gradient_sums(gradients: Tensor, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    clipped = clip(gradients, limits)
    is_clipped = tf.reduce_any(tf.not_equal(clipped, gradients), 1)
    return (_squares(gradients), _squares(clipped),
            tf.math.count_nonzero(is_clipped, dtype=tf.float64))


def _squares(values: Tensor) -> Tensor:
    return tf.reduce_sum(tf.square(tf.cast(values, tf.float64)))
