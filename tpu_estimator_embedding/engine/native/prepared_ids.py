# SPDX-License-Identifier: Apache-2.0
"""The ids of one step in the format of the compiled ops, which look up and update tables by them.

They are flat tensors, one set per host. One op creates them from the ids of all features. It checks
all ids before it outputs any, runs before the step that uses them, and is pure: the tensors can be
stored in a queue or passed to a `tf.function`.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import (
    EnqueueData,
    RaggedEnqueueData,
    check_features,
    feature_tensors,
)
from tpu_estimator_embedding.engine.measures import HostMeasures, Marks, StepMeasures, stack_values
from tpu_estimator_embedding.engine.native.rule_attributes import rule_attributes
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.step import Replicas, StepGradients, Variables
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.types import Tensor

OpInputs = dict[str, object]  # keyword -> input or attribute of an op

IDS, ROWS, RUNS, WEIGHTS, SCALES = range(1, 6)  # columns of `sizes`

for _op in ("PrepareIds", "LookUp", "JoinedLookUp", "Update", "MeasuredUpdate"):
    with contextlib.suppress(KeyError):  # this module was imported before
        tf.no_gradient(f"TpuEmbedding{_op}")


class PreparedHostIds(NamedTuple):
    """The ids of all tables of a host, concatenated.

    Row r of a table's activations sums `ids[row_ends[r - 1]:row_ends[r]]`. Sorted by id they
    are runs: run u updates row `run_ids[u]` with the gradients of the activations
    `run_rows[run_ends[u - 1]:run_ends[u]]`. Ends count from the first id of the table.

    Attributes:
        sizes: `[tables, 6]` int64: rows of this host's part, ids, rows of activations, runs,
            weights and scales of each table.
        ids: `[n]`, rows of this host's parts.
        row_ends: `[rows]` int32.
        weights: `[weighted n]` float32, of tables with a weighted feature.
        scales: `[scaled rows]` float32, the combiner's factors, of tables that have them.
        run_ids: `[runs]`; this and the following are None unless training.
        run_ends: `[runs]` int32.
        run_rows: `[n]` int32.
        run_weights: `[weighted n]` float32.
    """

    sizes: Tensor
    ids: Tensor
    row_ends: Tensor
    weights: Tensor
    scales: Tensor
    run_ids: Tensor | None
    run_ends: Tensor | None
    run_rows: Tensor | None
    run_weights: Tensor | None


class PreparedIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        row_counts: `[tables, replicas]` int64, rows of activations of each replica.
        hosts: the ids that each host looks up and updates.
        given_counts: `[tables]` int64, ids before any were dropped.
    """

    row_counts: Tensor
    hosts: tuple[PreparedHostIds, ...]
    given_counts: Tensor

    @property
    def is_native(self) -> bool:
        """Whether compiled ops prepared the ids. Always true here."""
        return True

    @property
    def are_for_training(self) -> bool:
        """Whether the ids were sorted."""
        return all(host.run_ids is not None for host in self.hosts)

    @property
    def can_join(self) -> bool:
        """Whether there is a single host."""
        return len(self.hosts) == 1

    def rows_of_replicas(self, plan: EmbeddingPlan) -> dict[str, Tensor]:
        """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
        return {table.name: self.row_counts[position]
                for position, table in enumerate(plan.tables)}

    def lookup(self, plan: EmbeddingPlan, variables: Variables) -> dict[str, Tensor]:
        """Returns table name -> `[num_rows, dim]` float32."""
        sums: dict[str, list[Tensor]] = {name: [] for name in variables}
        for host, host_ids in enumerate(self.hosts):
            tables_of_ids = plan.tables_of_host(host)
            tables = [table for table in tables_of_ids if table.name in variables]
            if not tables:
                continue
            parts = [variables[table.name].parts[host] for table in tables]
            with beside(parts[0]):
                activations = load.native_ops().tpu_embedding_look_up(
                    **_lookup_inputs(variables, host_ids, tables_of_ids, tables, host))
            for table, values in zip(tables, activations, strict=True):
                sums[table.name].append(values)
        return {name: parts[0] if len(parts) == 1 else tf.add_n(parts)
                for name, parts in sums.items()}

    def lookup_joined(self, plan: EmbeddingPlan, variables: Variables,
                      names: Sequence[str]) -> Tensor:
        """Returns the activations of tables of one host, `[num_rows, sum of dims]` float32."""
        [host_ids] = self.hosts
        tables = [plan.table_by_name[name] for name in names]
        with beside(variables[names[0]].parts[0]):
            return load.native_ops().tpu_embedding_joined_look_up(
                **_lookup_inputs(variables, host_ids, plan.tables_of_host(0), tables, 0))

    def update(self, plan: EmbeddingPlan, variables: Variables,
               step_gradients: StepGradients) -> list[tf.Operation]:
        """Returns the updates of all hosts."""
        updates = []
        for host in range(len(self.hosts)):
            inputs = _inputs_from_step(plan, variables, self, step_gradients, host)
            with beside(variables[plan.tables_of_host(host)[0].name].parts[host]):
                updates.append(load.native_ops().tpu_embedding_update(**inputs))
        return updates

    def measured_update(self, plan: EmbeddingPlan, variables: Variables,
                        step_gradients: StepGradients, marks: Marks,
                        measures: Tensor) -> StepMeasures:
        """Updates all hosts, marks the rows, and measures them if `measures` says so."""
        hosts = []
        for host, host_ids in enumerate(self.hosts):
            tables = plan.tables_of_host(host)
            inputs = _inputs_from_step(plan, variables, self, step_gradients, host)
            with beside(variables[tables[0].name].parts[host]):
                hosts.append(update_and_measure(inputs, host_ids, [
                    marks[table.name][host] for table in tables], measures))
        return step_measures(plan, hosts, self.given_counts, step_gradients)


def training_ids_of(tensors: Sequence[Tensor]) -> PreparedIds:
    """Returns ids for training from their tensors, in the order of `tensors_of`."""
    row_counts, *of_hosts, given_counts = tensors
    width = len(PreparedHostIds._fields)
    return PreparedIds(row_counts, tuple(
        PreparedHostIds(*of_hosts[first:first + width])
        for first in range(0, len(of_hosts), width)), given_counts)


def prepare_native_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                       uniform: bool) -> PreparedIds:
    """Checks the ids of a step and prepares them for every host.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size.
        training: whether gradients will follow; if so, the ids are sorted here.
        uniform: has no effect, because all batches of a plan have the same structure here.

    Raises:
        TypeError, ValueError: see `prepare_ids`.
        tf.errors.InvalidArgumentError: when run, see `prepare_ids`.
    """
    del uniform
    for enqueue_datas, _ in replicas:
        check_features(plan, enqueue_datas)
    datas = [feature_tensors(feature, enqueue_datas[feature.name])
             for enqueue_datas, _ in replicas for feature in plan.features]
    ids, places, weights = zip(*datas, strict=True)
    outputs = load.native_ops().tpu_embedding_prepare_ids(
        ids=ids,
        places=[tensor for tensor in places if tensor is not None],
        weights=[tensor for tensor in weights if tensor is not None],
        batch_sizes=tf.stack([tf.cast(batch_size, tf.int64) for _, batch_size in replicas]),
        placements=[_placement(data) for data in datas],
        has_weights=[tensor is not None for tensor in weights],
        training=training, **_plan_attributes(plan))
    hosts = [PreparedHostIds(*parts) if training else PreparedHostIds(*parts[:5], *[None] * 4)
             for parts in zip(*outputs[1:-1], strict=True)]
    return PreparedIds(outputs.row_counts, tuple(hosts), outputs.given_counts)


def updates_core_by_core(table: TablePlan) -> bool:
    """Whether a row gets an update from every core that looked it up."""
    return table.optimizer is not None and not table.optimizer.use_gradient_accumulation


def _placement(data: EnqueueData | RaggedEnqueueData) -> str:
    _, places, _ = data
    if places is None:
        return "one_id_each"
    return "row_splits" if isinstance(data, RaggedEnqueueData) else "coordinates"


def _plan_attributes(plan: EmbeddingPlan) -> OpInputs:
    position = {table.name: number for number, table in enumerate(plan.tables)}
    most_rows = max(max(plan.rows_per_host(table)) for table in plan.tables)
    return {
        "feature_names": [feature.name for feature in plan.features],
        "table_of_feature": [position[feature.table] for feature in plan.features],
        "sequence_lengths": [feature.max_sequence_length for feature in plan.features],
        "vocabulary_sizes": [table.vocabulary_size for table in plan.tables],
        "combiners": [plan.combiner(feature) for feature in plan.features],
        "samples_per_unit": [feature.samples_per_unit for feature in plan.features],
        "feature_vocabulary_sizes": [plan.vocabulary_size(feature) for feature in plan.features],
        **_row_maps(plan),
        "updates_core_by_core": [updates_core_by_core(table) for table in plan.tables],
        "partition_strategy": plan.partition_strategy,
        "num_hosts": min(plan.num_hosts, max(table.vocabulary_size for table in plan.tables)),
        "Tid": tf.int32 if most_rows <= tf.int32.max else tf.int64,
    }


def _row_maps(plan: EmbeddingPlan) -> dict[str, list[int]]:
    """Returns parameter of the mapping from ids to rows of tables -> its value per feature."""
    maps = [_row_map(plan, feature) for feature in plan.features]
    names = ("log2_shards", "rotations", "row_offsets", "rows_per_shard")
    return {name: list(values) for name, values in zip(names, zip(*maps, strict=True),
                                                       strict=True)}


def _row_map(plan: EmbeddingPlan, feature: FeaturePlan) -> tuple[int, int, int, int]:
    if feature.stacked is None:
        return 0, 0, 0, plan.table_by_name[feature.table].vocabulary_size
    layout, stack = feature.stacked.layout, feature.stacked.stack
    return (layout.cores.count.bit_length() - 1, layout.rotation, layout.row_offset,
            stack.rows_per_shard)


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


def update_and_measure(inputs: OpInputs, host_ids: PreparedHostIds,
                       marks: list[tf.Variable], measures: Tensor) -> HostMeasures:
    """Updates a host and measures it.

    Args:
        inputs: what `update_inputs` returned.
        host_ids: of the host, sorted.
        marks: of the rows of each table of the host.
        measures: scalar bool, whether to measure.
    """
    assert host_ids.run_ids is not None and host_ids.run_ends is not None, "not training"
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
                  gradients: list[Tensor], factors: Factors) -> OpInputs:
    """Returns inputs and attributes of the update of a host.

    Args:
        plan, variables, host: which tables to update.
        host_ids: of the host, sorted.
        gradients: `[num_rows, dim]` of the activations of each table, or all of them as one
            vector.
        factors: of the tables of the host.
    """
    tables = plan.tables_of_host(host)
    return {
        **_resources(tables, variables, host), "gradients": gradients, **factors._asdict(),
        "sizes": host_ids.sizes, "run_ids": host_ids.run_ids, "run_ends": host_ids.run_ends,
        "run_rows": host_ids.run_rows, "run_weights": host_ids.run_weights,
        "scales": host_ids.scales, "dims": [table.dimension for table in tables],
        **rule_attributes([table.training_optimizer for table in tables])}


def _lookup_inputs(variables: Variables, host_ids: PreparedHostIds,
                   tables_of_ids: list[TablePlan], tables: list[TablePlan],
                   host: int) -> OpInputs:
    return {
        "tables": [variables[table.name].parts[host].handle for table in tables],
        "sizes": host_ids.sizes, "ids": host_ids.ids, "row_ends": host_ids.row_ends,
        "weights": host_ids.weights, "scales": host_ids.scales,
        "positions": [tables_of_ids.index(table) for table in tables],
        "dims": [table.dimension for table in tables]}


def _inputs_from_step(plan: EmbeddingPlan, variables: Variables, ids: PreparedIds,
                      step_gradients: StepGradients, host: int) -> OpInputs:
    tables = plan.tables_of_host(host)
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


def _resources(tables: list[TablePlan], variables: Variables, host: int) -> OpInputs:
    of_tables = [variables[table.name] for table in tables]
    return {"tables": [table.parts[host].handle for table in of_tables],
            "slots": [parts[host].handle for table in of_tables
                      for parts in table.slots.values()]}
