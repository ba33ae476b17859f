# SPDX-License-Identifier: Apache-2.0
"""The step in compiled ops: one op prepares; for each host one looks up and one updates."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, StepGradients
from tpu_estimator_embedding.engine.measures import (
    HostMeasures,
    Marks,
    StepMeasures,
    stack_values,
    tables_of_host,
)
from tpu_estimator_embedding.engine.native.prepared_ids import (
    PreparedHostIds,
    PreparedIds,
    to_prepared_ids,
)
from tpu_estimator_embedding.engine.native.rule_attributes import rule_attributes
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor

Variables = Mapping[str, TableVariables]

IDS, ROWS, RUNS, WEIGHTS, SCALES = range(1, 6)  # columns of `sizes`

for _op in ("PrepareIds", "LookUp", "JoinedLookUp", "Update", "MeasuredUpdate"):
    with contextlib.suppress(KeyError):  # this module was imported before
        tf.no_gradient(f"TpuEmbedding{_op}")


class Factors(NamedTuple):
    """What scales the updates of the tables of a host.

    Attributes:
        learning_rates: `[tables]` float32.
        multipliers: `[tables]` float32.
        step: scalar float32.
    """

    learning_rates: Tensor
    multipliers: Tensor
    step: Tensor


def look_up(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32."""
    sums: dict[str, list[Tensor]] = {name: [] for name in variables}
    for host, host_ids in enumerate(ids.hosts):
        prepared = tables_of_host(plan, host)
        tables = [table for table in prepared if table.name in variables]
        if not tables:
            continue
        parts = [variables[table.name].parts[host] for table in tables]
        with beside(parts[0]):
            activations = load.native_ops().tpu_embedding_look_up(
                **_look_up_inputs(variables, host_ids, prepared, tables, host))
        for table, values in zip(tables, activations, strict=True):
            sums[table.name].append(values)
    return {name: parts[0] if len(parts) == 1 else tf.add_n(parts)
            for name, parts in sums.items()}


def look_up_joined(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds,
                   names: Sequence[str]) -> Tensor:
    """Returns the activations of tables of one host, `[num_rows, sum of dims]` float32."""
    [host_ids] = ids.hosts
    tables = [plan.table_by_name[name] for name in names]
    with beside(variables[names[0]].parts[0]):
        return load.native_ops().tpu_embedding_joined_look_up(
            **_look_up_inputs(variables, host_ids, tables_of_host(plan, 0), tables, 0))


def update(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds,
           step_gradients: StepGradients) -> list[tf.Operation]:
    """Returns the updates of all hosts."""
    updates = []
    for host in range(len(ids.hosts)):
        inputs = _inputs_from_step(plan, variables, ids, step_gradients, host)
        with beside(variables[tables_of_host(plan, host)[0].name].parts[host]):
            updates.append(load.native_ops().tpu_embedding_update(**inputs))
    return updates


def measured_update(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds,
                    step_gradients: StepGradients, marks: Marks,
                    measures: Tensor) -> StepMeasures:
    """Updates all hosts, marks the rows, and measures them if `measures` says so."""
    hosts = []
    for host, host_ids in enumerate(ids.hosts):
        tables = tables_of_host(plan, host)
        inputs = _inputs_from_step(plan, variables, ids, step_gradients, host)
        with beside(variables[tables[0].name].parts[host]):
            hosts.append(update_and_measure(inputs, host_ids, [
                marks[table.name][host] for table in tables], measures))
    return step_measures(plan, hosts, ids.given_counts, step_gradients)


def row_counts(plan: EmbeddingPlan, ids: PreparedIds) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids.row_counts[position] for position, table in enumerate(plan.tables)}


def are_for_training(ids: PreparedIds) -> bool:
    """Whether the ids were sorted."""
    return all(host.run_ids is not None for host in ids.hosts)


NATIVE = Backend(to_prepared_ids, look_up, update, measured_update, row_counts, are_for_training,
                 look_up_joined=look_up_joined)


def update_and_measure(inputs: dict[str, Any], host_ids: PreparedHostIds,
                       marks: list[tf.Variable], measures: Tensor) -> HostMeasures:
    """Updates a host and measures it.

    Args:
        inputs: what `update_inputs` returned.
        host_ids: of the host, sorted.
        marks: of the rows of each table of the host.
        measures: scalar bool, whether to measure.
    """
    sums, covered, row_norms = load.native_ops().tpu_embedding_measured_update(
        **inputs, marks=[mark.handle for mark in marks], measures=measures)
    return HostMeasures(sums, covered, row_norms, host_ids.run_ids, host_ids.run_ends,
                        tf.gather(host_ids.sizes, [IDS, RUNS, RUNS], axis=1))


def step_measures(plan: EmbeddingPlan, hosts: list[HostMeasures], given_counts: Tensor,
                  step_gradients: StepGradients) -> StepMeasures:
    """Returns the measures of all hosts, with what the tables have in common."""
    return StepMeasures(
        tuple(hosts), given_counts,
        stack_values(step_gradients.multipliers, list(plan.tables)),
        stack_values(step_gradients.learning_rates, list(plan.tables)))


def update_inputs(plan: EmbeddingPlan, variables: Variables, host: int, host_ids: PreparedHostIds,
                  gradients: list[Tensor], factors: Factors) -> dict[str, Any]:
    """Returns inputs and attributes of the update of a host.

    Args:
        plan, variables, host: which tables to update.
        host_ids: of the host, sorted.
        gradients: `[num_rows, dim]` of the activations of each table, or all of them as one
            vector.
        factors: of the tables of the host.
    """
    tables = tables_of_host(plan, host)
    return {
        **_resources(tables, variables, host), "gradients": gradients, **factors._asdict(),
        "sizes": host_ids.sizes, "run_ids": host_ids.run_ids, "run_ends": host_ids.run_ends,
        "run_rows": host_ids.run_rows, "run_weights": host_ids.run_weights,
        "scales": host_ids.scales, "dims": [table.dimension for table in tables],
        **rule_attributes([table.training_optimizer for table in tables])}


def _look_up_inputs(variables: Variables, host_ids: PreparedHostIds, prepared: list[TablePlan],
                    tables: list[TablePlan], host: int) -> dict[str, Any]:
    return {
        "tables": [variables[table.name].parts[host].handle for table in tables],
        "sizes": host_ids.sizes, "ids": host_ids.ids, "row_ends": host_ids.row_ends,
        "weights": host_ids.weights, "scales": host_ids.scales,
        "positions": [prepared.index(table) for table in tables],
        "dims": [table.dimension for table in tables]}


def _inputs_from_step(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds,
                      step_gradients: StepGradients, host: int) -> dict[str, Any]:
    tables = tables_of_host(plan, host)
    factors = Factors(stack_values(step_gradients.learning_rates, tables),
                      stack_values(step_gradients.multipliers, tables),
                      tf.cast(step_gradients.step, tf.float32))
    joined = step_gradients.joined
    if joined is not None:
        return {**update_inputs(plan, variables, host, ids.hosts[host], [joined.gradient], factors),
                "gradient_columns": [joined.columns[table.name] for table in tables]}
    gradients = [tf.convert_to_tensor(step_gradients.gradients[table.name], tf.float32)
                 for table in tables]
    return update_inputs(plan, variables, host, ids.hosts[host], gradients, factors)


def _resources(tables: list[TablePlan], variables: Variables, host: int) -> dict[str, Any]:
    of_tables = [variables[table.name] for table in tables]
    return {"tables": [table.parts[host].handle for table in of_tables],
            "slots": [parts[host].handle for table in of_tables
                      for parts in table.slots.values()]}
