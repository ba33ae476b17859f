# SPDX-License-Identifier: Apache-2.0
"""A step in compiled ops whose tables are in other tasks: what it exchanges with them.

    this task                                       the server of host h
    prepared ids ─ compact ───────── ids ─────────▶ look up, sort
    activations ◀─ combine hosts ◀── sums, rows ─── of all tables, one tensor
    gradients ── gather, or sum ──── gradients ───▶ update

`exchanged_ids` says what is exchanged of each table. Sums over hosts are in the order of the hosts,
as in one process, and gradients are summed in the order of an update there, so that results are
the same, bit for bit. Only in merged steps of tasks that exchange rows are the gradients of a row
first summed in each task.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, Exchange, StepGradients
from tpu_estimator_embedding.engine.by_table import concat_by_table
from tpu_estimator_embedding.engine.measures import (
    Marks,
    StepMeasures,
    stack_values,
    tables_of_host,
)
from tpu_estimator_embedding.engine.native.backend import (
    ROWS,
    Factors,
    Variables,
    step_measures,
    update_and_measure,
    update_inputs,
)
from tpu_estimator_embedding.engine.native.exchanged_ids import (
    ExchangedIds,
    SentIds,
    merged_ids,
    to_exchanged_ids,
)
from tpu_estimator_embedding.engine.native.prepared_ids import (
    PreparedHostIds,
    updates_core_by_core,
)
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.ordering import unordered
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

for _op in ("CompactIds", "FlatLookUp", "SortIds", "Combine", "GatherGradients"):
    with contextlib.suppress(KeyError):  # this module was imported before
        tf.no_gradient(f"TpuEmbedding{_op}")


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


def look_up(plan: EmbeddingPlan, variables: Variables, ids: ExchangedIds) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32; looks up all tables of the plan."""
    values = []
    for host, sent in enumerate(ids.sent):
        tables = tables_of_host(plan, host)
        parts = [variables[table.name].parts[host] for table in tables]
        with beside(parts[0]):
            values.append(load.native_ops().tpu_embedding_flat_look_up(
                tables=[part.handle for part in parts], **_look_up_inputs(sent),
                positions=list(range(len(tables))), dims=[table.dimension for table in tables]))
    prepared = [kept.prepared for kept in ids.kept]
    activations = load.native_ops().tpu_embedding_combine(
        sent_sizes=[sent.sizes for sent in ids.sent], places=[kept.places for kept in ids.kept],
        values=values, sizes=[of_host.sizes for of_host in prepared],
        row_ends=[of_host.row_ends for of_host in prepared],
        weights=[of_host.weights for of_host in prepared],
        scales=[of_host.scales for of_host in prepared], num_tables=len(plan.tables),
        num_parts=[len(plan.rows_per_host(table)) for table in plan.tables],
        dims=[table.dimension for table in plan.tables])
    return {table.name: of_table for table, of_table in zip(plan.tables, activations, strict=True)}


def update(plan: EmbeddingPlan, variables: Variables, ids: ExchangedIds,
           step_gradients: StepGradients) -> list[tf.Operation]:
    """Returns the updates of all hosts."""
    return [write for host in range(len(ids.sent)) for write in update_host(
        plan, variables, host, host_step(plan, ids, step_gradients, host))]


def host_step(plan: EmbeddingPlan, ids: ExchangedIds, step_gradients: StepGradients,
              host: int) -> HostStep:
    """Returns what this task sends to a host for its update."""
    tables, (places, prepared) = tables_of_host(plan, host), ids.kept[host]
    gradients = load.native_ops().tpu_embedding_gather_gradients(
        gradients=[tf.convert_to_tensor(step_gradients.gradients[table.name], tf.float32)
                   for table in tables],
        sent_sizes=ids.sent[host].sizes, places=places, sizes=prepared.sizes,
        run_ends=prepared.run_ends, run_rows=prepared.run_rows,
        run_weights=prepared.run_weights, scales=prepared.scales)
    factors = tf.concat([
        stack_values(step_gradients.learning_rates, tables),
        stack_values(step_gradients.multipliers, tables),
        tf.cast(step_gradients.step, tf.float32)[tf.newaxis]], 0)
    return HostStep(ids.sent[host], gradients, factors)


def merged(plan: EmbeddingPlan, host: int, steps: Sequence[HostStep]) -> HostStep:
    """Returns the host steps of several tasks as that of one task."""
    tables, ids = tables_of_host(plan, host), [step.ids for step in steps]
    dims = tf.constant([table.dimension for table in tables], tf.int64)
    return HostStep(
        merged_ids(plan, len(tables), ids),
        concat_by_table([step.gradients for step in steps],
                        [of_task.sizes[:, ROWS] * dims for of_task in ids], len(tables)),
        steps[0].factors)


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
    for host in range(len(ids.sent)):
        step = host_step(plan, ids, step_gradients, host)
        with _on_server(plan, variables, host):
            inputs = update_inputs(plan, variables, host, _sorted(plan, step.ids, host),
                                   [step.gradients], _taken_apart(step.factors))
            # The runs are those of the host, and count the ids that it was not sent.
            hosts.append(update_and_measure(inputs, ids.kept[host].prepared, [
                marks[table.name][host] for table in tables_of_host(plan, host)], measures))
    return step_measures(plan, hosts, ids.given_counts, step_gradients)


def row_counts(plan: EmbeddingPlan, ids: ExchangedIds) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids.row_counts[position] for position, table in enumerate(plan.tables)}


def are_for_training(ids: ExchangedIds) -> bool:
    """Whether gradients may follow."""
    return bool(ids.training)


NATIVE_EXCHANGE = Backend(to_exchanged_ids, look_up, update, measured_update, row_counts,
                          are_for_training, Exchange(
                              functools.partial(to_exchanged_ids, may_send_rows=False),
                              host_step, merged, update_host))


def _look_up_inputs(ids: SentIds) -> Mapping[str, Tensor]:
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
    part = variables[tables_of_host(plan, host)[0].name].parts[host]
    with unordered(), beside(part):
        yield


def _sorted(plan: EmbeddingPlan, host_ids: SentIds, host: int) -> PreparedHostIds:
    """Returns the ids that a host was sent, with the runs of an update."""
    tables = tables_of_host(plan, host)
    inputs = _look_up_inputs(host_ids)
    runs = load.native_ops().tpu_embedding_sort_ids(
        **inputs, replica_ends=(tf.zeros([len(tables), 0], tf.int64)
                                if host_ids.replica_ends is None else host_ids.replica_ends),
        vocabulary_sizes=[table.vocabulary_size for table in tables],
        updates_core_by_core=[updates_core_by_core(table) for table in tables],
        partition_strategy=plan.partition_strategy, num_hosts=plan.num_hosts, host=host)
    return PreparedHostIds(runs.run_sizes, **{name: inputs[name] for name in (
        "ids", "row_ends", "weights", "scales")}, run_ids=runs.run_ids, run_ends=runs.run_ends,
        run_rows=runs.run_rows, run_weights=runs.run_weights)
