# SPDX-License-Identifier: Apache-2.0
"""The ids of one step in compiled ops whose tables are in other tasks.

A host gets each table in one of two forms, whichever takes fewer bytes in this step:

* sums: the ids of the rows of activations that have one on the host. It returns their sums,
* rows: each distinct id once, as if it were one row of activations. It returns the rows of the
  table, which this task combines; their gradients are summed in this task too.

What a host does is the same for both. Tables that are updated core by core are always sums.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from tpu_estimator_embedding.engine.measures import Marks, StepMeasures, stack_values
from tpu_estimator_embedding.engine.native.prepared_ids import (
    IDS,
    ROWS,
    SCALES,
    WEIGHTS,
    Factors,
    PreparedHostIds,
    PreparedIds,
    prepare_native_ids,
    step_measures,
    update_and_measure,
    update_inputs,
    updates_core_by_core,
)
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.step import Replicas, StepGradients, Variables
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.ordering import unordered
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

for _op in ("CompactIds", "FlatLookUp", "SortIds", "Combine", "GatherGradients"):
    with contextlib.suppress(KeyError):  # this module was imported before
        tf.no_gradient(f"TpuEmbedding{_op}")


def concat_by_table(values: Sequence[Tensor | None], sizes: Sequence[Tensor],
                    num_tables: int) -> Tensor | None:
    """Concatenates such vectors of several tasks to one, in the order of the tasks in each table.

    Args:
        values: the vector of each task; a task without values has None.
        sizes: of each task, the number of its values of each table, `[tables]`.
        num_tables: number of tables.

    Returns:
        A vector; None if no task has values.

    >>> tasks = [tf.constant([1, 2, 3]), tf.constant([4, 5])]
    >>> sizes = [tf.constant([2, 1]), tf.constant([1, 1])]
    >>> concat_by_table(tasks, sizes, num_tables=2).numpy().tolist()
    [1, 2, 4, 3, 5]
    """
    parts = [tf.split(value, of_task, num=num_tables)
             for value, of_task in zip(values, sizes, strict=True) if value is not None]
    return tf.concat([of_task[table] for table in range(num_tables) for of_task in parts],
                     0) if parts else None


class SentIds(NamedTuple):
    """The ids of all tables of a host, concatenated, as they are sent to it.

    Attributes:
        sizes: `[tables, 6]` int64, as in `PreparedHostIds`; the number of runs is 0 for tables in
            the form of sums.
        ids: `[n]`, rows of the host's parts.
        row_ends: `[rows]` int32.
        weights: `[weighted n]` float32; None where no feature has weights.
        scales: `[scaled rows]` float32; None where every combiner is a sum.
        replica_ends: `[tables, replicas]` int64, where the rows of each replica end; None where
            no table is updated core by core.
    """

    sizes: Tensor
    ids: Tensor
    row_ends: Tensor
    weights: Tensor | None
    scales: Tensor | None
    replica_ends: Tensor | None


class KeptIds(NamedTuple):
    """What this task needs in order to combine what a host returns, and to make its gradients.

    Attributes:
        places: `[sums, or ids of tables in the form of rows]` int32: the row of its table's
            activations that each sum is, or the position of each id among the distinct ids.
        prepared: the ids of the host.
    """

    places: Tensor
    prepared: PreparedHostIds


class HostStep(NamedTuple):
    """What the update of a host needs.

    Attributes:
        ids: of its tables.
        gradients: of the sums or rows of all tables, flat, float32.
        factors: `[2 tables + 1]` float32: learning rates, multipliers, and the step.
    """

    ids: SentIds
    gradients: Tensor
    factors: Tensor


class ExchangedIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        row_counts: `[tables, replicas]` int64, rows of activations of each replica.
        sent: what each host looks up and updates.
        kept: for each host, what stays in this task.
        given_counts: `[tables]` int64, ids before any were dropped.
        training: 1 if gradients may follow, else 0.
    """

    row_counts: Tensor
    sent: tuple[SentIds, ...]
    kept: tuple[KeptIds, ...]
    given_counts: Tensor
    training: int

    @property
    def is_native(self) -> bool:
        """Whether compiled ops prepared the ids. Always true here."""
        return True

    @property
    def can_join(self) -> bool:
        """Whether several tables can be looked up as one tensor: not on servers."""
        return False

    @property
    def are_for_training(self) -> bool:
        """Whether gradients may follow."""
        return bool(self.training)

    def rows_of_replicas(self, plan: EmbeddingPlan) -> dict[str, Tensor]:
        """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
        return {table.name: self.row_counts[position]
                for position, table in enumerate(plan.tables)}

    def lookup(self, plan: EmbeddingPlan, variables: Variables) -> dict[str, Tensor]:
        """Returns table name -> `[num_rows, dim]` float32; looks up all tables of the plan."""
        values = []
        for host, sent in enumerate(self.sent):
            tables = plan.tables_of_host(host)
            parts = [variables[table.name].parts[host] for table in tables]
            with beside(parts[0]):
                values.append(load.native_ops().tpu_embedding_flat_look_up(
                    tables=[part.handle for part in parts], **_lookup_inputs(sent),
                    positions=list(range(len(tables))), dims=[table.dimension for table in tables]))
        prepared = [kept.prepared for kept in self.kept]
        activations = load.native_ops().tpu_embedding_combine(
            sent_sizes=[sent.sizes for sent in self.sent],
            places=[kept.places for kept in self.kept],
            values=values, sizes=[of_host.sizes for of_host in prepared],
            row_ends=[of_host.row_ends for of_host in prepared],
            weights=[of_host.weights for of_host in prepared],
            scales=[of_host.scales for of_host in prepared], num_tables=len(plan.tables),
            num_parts=[len(plan.rows_per_host(table)) for table in plan.tables],
            dims=[table.dimension for table in plan.tables])
        return {table.name: of_table
                for table, of_table in zip(plan.tables, activations, strict=True)}

    def update(self, plan: EmbeddingPlan, variables: Variables,
               step_gradients: StepGradients) -> list[tf.Operation]:
        """Returns the updates of all hosts."""
        return [write for host in range(len(self.sent)) for write in self.update_host(
            plan, variables, host, self.host_step(plan, step_gradients, host))]

    def host_step(self, plan: EmbeddingPlan, step_gradients: StepGradients,
                  host: int) -> HostStep:
        """Returns what this task sends to a host for its update."""
        tables, (places, prepared) = plan.tables_of_host(host), self.kept[host]
        gradients = load.native_ops().tpu_embedding_gather_gradients(
            gradients=[tf.convert_to_tensor(step_gradients.gradients[table.name], tf.float32)
                       for table in tables],
            sent_sizes=self.sent[host].sizes, places=places, sizes=prepared.sizes,
            run_ends=prepared.run_ends, run_rows=prepared.run_rows,
            run_weights=prepared.run_weights, scales=prepared.scales)
        factors = tf.concat([
            stack_values(step_gradients.learning_rates, tables),
            stack_values(step_gradients.multipliers, tables),
            tf.cast(step_gradients.step, tf.float32)[tf.newaxis]], 0)
        return HostStep(self.sent[host], gradients, factors)

    def measured_update(self, plan: EmbeddingPlan, variables: Variables,
                        step_gradients: StepGradients, marks: Marks,
                        measures: Tensor) -> StepMeasures:
        """Updates all hosts, marks the rows, and measures them if `measures` says so."""
        hosts = []
        for host in range(len(self.sent)):
            step = self.host_step(plan, step_gradients, host)
            with _on_server(plan, variables, host):
                inputs = update_inputs(plan, variables, host, _sorted(plan, step.ids, host),
                                       [step.gradients], _taken_apart(step.factors))
                # The runs are those of the host, and count the ids that it was not sent.
                hosts.append(update_and_measure(inputs, self.kept[host].prepared, [
                    marks[table.name][host] for table in plan.tables_of_host(host)], measures))
        return step_measures(plan, hosts, self.given_counts, step_gradients)

    def merged(self, plan: EmbeddingPlan, host: int, steps: Sequence[HostStep]) -> HostStep:
        """Returns the host steps of several tasks as that of one task."""
        tables, ids = plan.tables_of_host(host), [step.ids for step in steps]
        dims = tf.constant([table.dimension for table in tables], tf.int64)
        return HostStep(
            merged_ids(plan, len(tables), ids),
            cast(Tensor, concat_by_table(
                [step.gradients for step in steps],
                [of_task.sizes[:, ROWS] * dims for of_task in ids], len(tables))),
            steps[0].factors)

    def update_host(self, plan: EmbeddingPlan, variables: Variables, host: int,
                    step: HostStep) -> list[tf.Operation]:
        """Returns the update of the tables of a host."""
        with _on_server(plan, variables, host):
            return [load.native_ops().tpu_embedding_update(**update_inputs(
                plan, variables, host, _sorted(plan, step.ids, host), [step.gradients],
                _taken_apart(step.factors)))]


def prepare_exchanged_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool, uniform: bool,
                          sums_only: bool = False) -> ExchangedIds:
    """Checks the ids of a step and prepares them for the hosts; as `prepare_native_ids`.

    Args:
        plan, replicas, training, uniform: see `prepare_native_ids`.
        sums_only: see `prepare_replicas`; otherwise tables may be in the form of rows.
    """
    prepared = prepare_native_ids(plan, replicas, True, uniform)  # sorted, to count distinct ids
    has_weights = uniform or any(data.aggregation_weights is not None
                                 for datas, _ in replicas for data in datas.values())
    has_scales = any(plan.combiner(feature) != "sum" for feature in plan.features)
    by_core = len(replicas) > 1 and any(map(updates_core_by_core, plan.tables))
    sent, kept = [], []
    for host, host_ids in enumerate(prepared.hosts):
        tables = plan.tables_of_host(host)
        of_host = load.native_ops().tpu_embedding_compact_ids(
            sizes=host_ids.sizes, ids=host_ids.ids, row_ends=host_ids.row_ends,
            weights=host_ids.weights, scales=host_ids.scales, run_ids=host_ids.run_ids,
            row_counts=_counts_of_host(plan, host, prepared),
            may_send_rows=[not (sums_only or updates_core_by_core(table)) for table in tables],
            dims=[table.dimension for table in tables])
        sent.append(SentIds(
            of_host.sent_sizes, of_host.sent_ids, of_host.sent_row_ends,
            of_host.sent_weights if has_weights else None,
            of_host.sent_scales if has_scales else None,
            of_host.replica_ends if by_core else None))
        kept.append(KeptIds(of_host.places, host_ids))
    return ExchangedIds(prepared.row_counts, tuple(sent), tuple(kept), prepared.given_counts,
                        int(training))


def merged_ids(plan: EmbeddingPlan, num_tables: int, tasks: Sequence[SentIds]) -> SentIds:
    """Returns what several tasks sent to a host as the ids of one task.

    Args:
        plan: the tables.
        num_tables: how many of them the host has.
        tasks: of each task, what it sent.
    """
    sizes = tf.stack([ids.sizes for ids in tasks])
    ends = tf.cumsum(sizes)  # of each task, in every column

    def by_table(column: int, values: Sequence[Tensor | None]) -> Tensor | None:
        return concat_by_table(values, [ids.sizes[:, column] for ids in tasks], num_tables)

    row_ends = [ids.row_ends + tf.repeat(
        tf.cast(ends[task, :, IDS] - sizes[task, :, IDS], tf.int32), ids.sizes[:, ROWS])
        for task, ids in enumerate(tasks)]
    return SentIds(
        tf.concat([sizes[0, :, :1], tf.reduce_sum(sizes, 0)[:, 1:]], 1),
        cast(Tensor, by_table(IDS, [ids.ids for ids in tasks])),
        cast(Tensor, by_table(ROWS, row_ends)),
        by_table(WEIGHTS, [ids.weights for ids in tasks]),
        by_table(SCALES, [ids.scales for ids in tasks]),
        _replica_ends(tasks, ends[:, :, ROWS])
        if any(map(updates_core_by_core, plan.tables)) else None)


def _counts_of_host(plan: EmbeddingPlan, host: int, prepared: PreparedIds) -> Tensor:
    """Returns the row counts of the tables of a host."""
    positions = [position for position, table in enumerate(plan.tables)
                 if host < len(plan.rows_per_host(table))]
    return (prepared.row_counts if len(positions) == len(plan.tables)
            else tf.gather(prepared.row_counts, positions))


def _replica_ends(tasks: Sequence[SentIds], ends: Tensor) -> Tensor:
    """Returns the ends of the rows of all replicas, from those of all tasks `[tasks, tables]`."""
    if tasks[0].replica_ends is None:
        return tf.transpose(ends)
    return tf.concat([ids.replica_ends + (ends[task] - ids.sizes[:, ROWS])[:, tf.newaxis]
                      for task, ids in enumerate(tasks)], 1)


def _lookup_inputs(ids: SentIds) -> Mapping[str, Tensor]:
    """Returns what a host was sent; what it was not sent is empty, made where this is called."""
    return {"sizes": ids.sizes, "ids": ids.ids, "row_ends": ids.row_ends,
            "weights": tf.zeros([0]) if ids.weights is None else ids.weights,
            "scales": tf.zeros([0]) if ids.scales is None else ids.scales}


def _taken_apart(factors: Tensor) -> Factors:
    count = (tf.size(factors) - 1) // 2
    return Factors(factors[:count], factors[count:-1], factors[-1])


@contextlib.contextmanager
def _on_server(plan: EmbeddingPlan, variables: Variables, host: int) -> Iterator[None]:
    """Places ops beside the tables of a host. They wait for nothing but their inputs."""
    part = variables[plan.tables_of_host(host)[0].name].parts[host]
    with unordered(), beside(part):
        yield


def _sorted(plan: EmbeddingPlan, host_ids: SentIds, host: int) -> PreparedHostIds:
    """Returns the ids that a host was sent, with the runs of an update."""
    tables = plan.tables_of_host(host)
    inputs = _lookup_inputs(host_ids)
    runs = load.native_ops().tpu_embedding_sort_ids(
        **inputs, replica_ends=(tf.zeros([len(tables), 0], tf.int64)
                                if host_ids.replica_ends is None else host_ids.replica_ends),
        vocabulary_sizes=[table.vocabulary_size for table in tables],
        updates_core_by_core=[updates_core_by_core(table) for table in tables],
        partition_strategy=plan.partition_strategy, num_hosts=plan.num_hosts, host=host)
    return PreparedHostIds(runs.run_sizes, **{name: inputs[name] for name in (
        "ids", "row_ends", "weights", "scales")}, run_ids=runs.run_ids, run_ends=runs.run_ends,
        run_rows=runs.run_rows, run_weights=runs.run_weights)
