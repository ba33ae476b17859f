# SPDX-License-Identifier: Apache-2.0
"""A step in compiled ops whose tables are in other tasks: what it exchanges with them.

    this task                                       the server of host h
    prepared ids ─ drop empty rows ── ids ────────▶ look up, sort
    activations ◀─ add up hosts ◀─ partial sums ─── of all tables, one tensor
    gradients ── gather rows ─────── gradients ───▶ update

Only rows of activations that have an id on a host are exchanged with it. Sums over hosts are in
the order of the hosts, as in one process, so that results are the same, bit for bit.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, Exchange, Replicas, StepGradients
from tpu_estimator_embedding.engine.by_table import concat_by_table
from tpu_estimator_embedding.engine.measures import (
    Marks,
    StepMeasures,
    stack_values,
    tables_of_host,
)
from tpu_estimator_embedding.engine.native.backend import (
    IDS,
    ROWS,
    SCALES,
    WEIGHTS,
    Factors,
    Variables,
    step_measures,
    update_and_measure,
    update_inputs,
)
from tpu_estimator_embedding.engine.native.prepared_ids import (
    PreparedHostIds,
    PreparedIds,
    to_prepared_ids,
)
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.ordering import unordered
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

for _op in ("CompactIds", "FlatLookUp", "SortIds", "Combine", "GatherGradients"):
    with contextlib.suppress(KeyError):  # this module was imported before
        tf.no_gradient(f"TpuEmbedding{_op}")


class ExchangedHostIds(NamedTuple):
    """The ids of all tables of a host, concatenated, without rows that have no id there.

    Attributes:
        sizes: `[tables, 6]` int64, as in `PreparedHostIds`; the number of runs is 0.
        ids: `[n]`, rows of the host's parts.
        row_ends: `[rows]` int32.
        weights: `[weighted n]` float32; None where no feature has weights.
        scales: `[scaled rows]` float32; None where every combiner is a sum.
        replica_ends: `[tables, replicas]` int64, where the rows of each replica end; None where
            no table is updated core by core.
        rows: `[rows]` int32, the row of its table's activations that each row is. The host
            does not need it.
    """

    sizes: Tensor
    ids: Tensor
    row_ends: Tensor
    weights: Tensor | None
    scales: Tensor | None
    replica_ends: Tensor | None
    rows: Tensor


class HostStep(NamedTuple):
    """What the update of a host needs.

    Attributes:
        ids: of its tables; `rows` is not needed.
        gradients: of the rows of all tables, flat, float32.
        factors: `[2 tables + 1]` float32: learning rates, multipliers, and the step.
    """

    ids: ExchangedHostIds
    gradients: Tensor
    factors: Tensor


class ExchangedIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        row_counts: `[tables, replicas]` int64, rows of activations of each replica.
        hosts: what each host looks up and updates.
        given_counts: `[tables]` int64, ids before any were dropped.
        training: 1 if gradients may follow, else 0.
    """

    row_counts: Tensor
    hosts: tuple[ExchangedHostIds, ...]
    given_counts: Tensor
    training: int


def to_exchanged_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                     uniform: bool) -> ExchangedIds:
    """Checks the ids of a step and prepares them for the hosts; as `to_prepared_ids`."""
    prepared = to_prepared_ids(plan, replicas, False, uniform)
    has_weights = uniform or any(data.aggregation_weights is not None
                                 for datas, _ in replicas for data in datas.values())
    has_scales = any(plan.combiner(feature) != "sum" for feature in plan.features)
    by_core = len(replicas) > 1 and any(_updates_core_by_core(plan))
    hosts = []
    for host, host_ids in enumerate(prepared.hosts):
        compact = load.native_ops().tpu_embedding_compact_ids(
            sizes=host_ids.sizes, row_ends=host_ids.row_ends, scales=host_ids.scales,
            row_counts=_of_host(plan, host, prepared))
        hosts.append(ExchangedHostIds(
            compact.compact_sizes, host_ids.ids, compact.compact_row_ends,
            host_ids.weights if has_weights else None,
            compact.compact_scales if has_scales else None,
            compact.replica_ends if by_core else None, compact.rows))
    return ExchangedIds(prepared.row_counts, tuple(hosts), prepared.given_counts, int(training))


def look_up(plan: EmbeddingPlan, variables: Variables, ids: ExchangedIds) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32; looks up all tables of the plan."""
    partial = []
    for host, host_ids in enumerate(ids.hosts):
        tables = tables_of_host(plan, host)
        parts = [variables[table.name].parts[host] for table in tables]
        with beside(parts[0]):
            partial.append(load.native_ops().tpu_embedding_flat_look_up(
                tables=[part.handle for part in parts], **_look_up_inputs(host_ids),
                positions=list(range(len(tables))), dims=[table.dimension for table in tables]))
    activations = load.native_ops().tpu_embedding_combine(
        row_counts=ids.row_counts, sizes=[host.sizes for host in ids.hosts],
        rows=[host.rows for host in ids.hosts], partial_activations=partial,
        num_tables=len(plan.tables),
        num_parts=[len(plan.rows_per_host(table)) for table in plan.tables],
        dims=[table.dimension for table in plan.tables])
    return {table.name: values for table, values in zip(plan.tables, activations, strict=True)}


def update(plan: EmbeddingPlan, variables: Variables, ids: ExchangedIds,
           step_gradients: StepGradients) -> list[tf.Operation]:
    """Returns the updates of all hosts."""
    return [write for host in range(len(ids.hosts)) for write in update_host(
        plan, variables, host, host_step(plan, ids, step_gradients, host))]


def host_step(plan: EmbeddingPlan, ids: ExchangedIds, step_gradients: StepGradients,
              host: int) -> HostStep:
    """Returns what this task sends to a host for its update."""
    tables = tables_of_host(plan, host)
    gradients = load.native_ops().tpu_embedding_gather_gradients(
        gradients=[tf.convert_to_tensor(step_gradients.gradients[table.name], tf.float32)
                   for table in tables],
        sizes=ids.hosts[host].sizes, rows=ids.hosts[host].rows)
    factors = tf.concat([
        stack_values(step_gradients.learning_rates, tables),
        stack_values(step_gradients.multipliers, tables),
        tf.cast(step_gradients.step, tf.float32)[tf.newaxis]], 0)
    return HostStep(ids.hosts[host], gradients, factors)


def merged(plan: EmbeddingPlan, host: int, steps: Sequence[HostStep]) -> HostStep:
    """Returns the host steps of several tasks as that of one task."""
    tables, ids = tables_of_host(plan, host), [step.ids for step in steps]
    sizes = tf.stack([of_task.sizes for of_task in ids])
    ends = tf.cumsum(sizes)  # of each task, in every column
    part_rows = sizes[0, :, :1]
    dims = tf.constant([table.dimension for table in tables], tf.int64)

    def by_table(column: int, name: str) -> Tensor | None:
        return concat_by_table([getattr(of_task, name) for of_task in ids],
                               [of_task.sizes[:, column] for of_task in ids], len(tables))

    row_ends = [of_task.row_ends + tf.repeat(
        tf.cast(ends[task, :, IDS] - sizes[task, :, IDS], tf.int32), of_task.sizes[:, ROWS])
        for task, of_task in enumerate(ids)]
    gradients = concat_by_table([step.gradients for step in steps],
                                [of_task.sizes[:, ROWS] * dims for of_task in ids], len(tables))
    return HostStep(ExchangedHostIds(
        tf.concat([part_rows, tf.reduce_sum(sizes, 0)[:, 1:]], 1), by_table(IDS, "ids"),
        concat_by_table(row_ends, [of_task.sizes[:, ROWS] for of_task in ids], len(tables)),
        by_table(WEIGHTS, "weights"), by_table(SCALES, "scales"),
        _replica_ends(ids, ends[:, :, ROWS]) if any(_updates_core_by_core(plan)) else None,
        ids[0].rows), gradients, steps[0].factors)


def update_host(plan: EmbeddingPlan, variables: Variables, host: int,
                step: HostStep) -> list[tf.Operation]:
    """Returns the update of the tables of a host."""
    with _on_server(plan, variables, host):
        return [load.native_ops().tpu_embedding_update(**update_inputs(
            plan, variables, host, _sorted(plan, step.ids, host), [step.gradients],
            _taken_apart(step.factors)))]


def measured_update(plan: EmbeddingPlan, variables: Variables, ids: ExchangedIds,
                    step_gradients: StepGradients, marks: Marks,
                    measures: Tensor) -> StepMeasures:
    """Updates all hosts, marks the rows, and measures them if `measures` says so."""
    hosts = []
    for host in range(len(ids.hosts)):
        step = host_step(plan, ids, step_gradients, host)
        with _on_server(plan, variables, host):
            host_ids = _sorted(plan, step.ids, host)
            inputs = update_inputs(plan, variables, host, host_ids, [step.gradients],
                                   _taken_apart(step.factors))
            hosts.append(update_and_measure(inputs, host_ids, [
                marks[table.name][host] for table in tables_of_host(plan, host)], measures))
    return step_measures(plan, hosts, ids.given_counts, step_gradients)


def row_counts(plan: EmbeddingPlan, ids: ExchangedIds) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids.row_counts[position] for position, table in enumerate(plan.tables)}


def are_for_training(ids: ExchangedIds) -> bool:
    """Whether gradients may follow."""
    return bool(ids.training)


NATIVE_EXCHANGE = Backend(to_exchanged_ids, look_up, update, measured_update, row_counts,
                          are_for_training, Exchange(host_step, merged, update_host))


def _of_host(plan: EmbeddingPlan, host: int, prepared: PreparedIds) -> Tensor:
    """The row counts of the tables of a host."""
    positions = [position for position, table in enumerate(plan.tables)
                 if host < len(plan.rows_per_host(table))]
    return (prepared.row_counts if len(positions) == len(plan.tables)
            else tf.gather(prepared.row_counts, positions))


def _updates_core_by_core(plan: EmbeddingPlan) -> list[bool]:
    return [table.optimizer is not None and not table.optimizer.use_gradient_accumulation
            for table in plan.tables]


def _look_up_inputs(ids: ExchangedHostIds) -> Mapping[str, Tensor]:
    """Returns what a host was sent; what it was not sent is empty, made where this is called."""
    return {"sizes": ids.sizes, "ids": ids.ids, "row_ends": ids.row_ends,
            "weights": tf.zeros([0]) if ids.weights is None else ids.weights,
            "scales": tf.zeros([0]) if ids.scales is None else ids.scales}


def _replica_ends(ids: Sequence[ExchangedHostIds], ends: Tensor) -> Tensor:
    """Returns the ends of the rows of all replicas, from those of all tasks `[tasks, tables]`."""
    if ids[0].replica_ends is None:
        return tf.transpose(ends)
    return tf.concat([of_task.replica_ends + (ends[task] - of_task.sizes[:, ROWS])[:, tf.newaxis]
                      for task, of_task in enumerate(ids)], 1)


def _taken_apart(factors: Tensor) -> Factors:
    count = (tf.size(factors) - 1) // 2
    return Factors(factors[:count], factors[count:-1], factors[-1])


@contextlib.contextmanager
def _on_server(plan: EmbeddingPlan, variables: Variables, host: int) -> Iterator[None]:
    """Places ops beside the tables of a host. They wait for nothing but their inputs."""
    part = variables[tables_of_host(plan, host)[0].name].parts[host]
    with unordered(), beside(part):
        yield


def _sorted(plan: EmbeddingPlan, host_ids: ExchangedHostIds, host: int) -> PreparedHostIds:
    """Returns the ids that a host was sent, with the runs of an update."""
    tables = tables_of_host(plan, host)
    inputs = _look_up_inputs(host_ids)
    runs = load.native_ops().tpu_embedding_sort_ids(
        **inputs, replica_ends=(tf.zeros([len(tables), 0], tf.int64)
                                if host_ids.replica_ends is None else host_ids.replica_ends),
        vocabulary_sizes=[table.vocabulary_size for table in tables],
        updates_core_by_core=[by_core for table, by_core in
                              zip(plan.tables, _updates_core_by_core(plan), strict=True)
                              if table in tables],
        partition_strategy=plan.partition_strategy, num_hosts=plan.num_hosts, host=host)
    return PreparedHostIds(runs.run_sizes, **{name: inputs[name] for name in (
        "ids", "row_ends", "weights", "scales")}, run_ids=runs.run_ids, run_ends=runs.run_ends,
        run_rows=runs.run_rows, run_weights=runs.run_weights)
