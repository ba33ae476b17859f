# SPDX-License-Identifier: Apache-2.0
"""Looks up and updates stacks, by the ids of features or by given arrays of ids.

`PreservedIds` keeps, between a lookup and its update, what the update needs.
"""

import dataclasses
import functools
import importlib
import typing
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.exportable_embedding import ExportableEmbedding
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.engine.stacked_activations import split_activations, stack_gradients
from tpu_estimator_embedding.engine.step import EnqueueDatas, Replicas, StepIds
from tpu_estimator_embedding.engine.step_ids import from_native_tensors, native_tensors
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.execution.table_variables import (
    UpdateCount,
    outside_strategies,
)
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    from_csr,
)
from tpu_estimator_embedding.mid_level.sparse_core.preprocessing import Formats
from tpu_estimator_embedding.mid_level.sparse_core.stack_ids import (
    engine_ids,
    join_cores,
    padded,
    split_cores,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_variable import PARAMETERS, StackVariable
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Structure, Tensor

_STATE = "tensorflow.python.tpu.embedding_context_utils"

Inputs = tuple[Tensor, ...]  # ids, rows and gains of one replica
Partitions = Mapping[str, PartitionedCsrFormatTensor]  # stack name -> ids
Gradients = Mapping[str, Tensor]  # path of a feature -> gradient of its activations
Fields = Mapping[str, object]  # fields of a PartitionedCsrFormatTensor

# Maps the checked ids of features to their arrays and tensors to wait for.
ToPartitions = Callable[[EnqueueDatas], tuple[Partitions, Sequence[Tensor]]]

_CLASSES: dict[str, type] = {kind.__name__: kind for kind in (EnqueueData, RaggedEnqueueData)}


def is_sequential() -> bool:
    """Whether pipelining is off at this point of the program.

    It is off inside TensorFlow's `SequentialEmbeddingContext`, in releases that have it, and
    while summaries are recorded: `tf.summary.record_if(True)` around a writer. A condition that
    is a tensor or a function is ignored. In a `tf.function`, the context at tracing time decides.
    """
    return _is_recording_summaries() or not _is_enabled()


def _is_recording_summaries() -> bool:
    state = summary_ops_v2._summary_state
    return state.writer is not None and state.is_recording is True


def _is_enabled() -> bool:
    try:
        state = importlib.import_module(_STATE)
    except ImportError:
        return True
    return state.embedding_pipelining_state.enabled


class PreservedIds(PartitionedCsrFormatTensor):
    """Ids of one stack that were looked up, with the tensors that their update needs.

    Attributes:
        features: class name and field names of the EnqueueData of each feature, in the order of
            the plan; empty if the ids were looked up from the arrays.
        inputs: the tensors of these EnqueueDatas; if features is empty, ids, rows and gains.
        prepared: the `native_tensors` of the prepared ids of the step; empty with several
            replicas, whose ids are prepared together.
        tables: the tables of the plan that the ids were prepared for.
    """

    __name__ = "tpu_estimator_embedding.PreservedIds"

    features: typing.Tuple[typing.Tuple[str, ...], ...]  # noqa: UP006 - ExtensionType needs it
    inputs: typing.Tuple[tf.Tensor, ...]  # noqa: UP006
    prepared: typing.Tuple[tf.Tensor, ...]  # noqa: UP006
    tables: typing.Tuple[str, ...]  # noqa: UP006


class StackEngine:
    """Two views of each stack: looked up by the ids of features, or by given arrays.

    In the first view, rows of activations are in the order of features; in the second view, they
    are in the order of cores.
    """

    def __init__(self, stacks: Stacks, formats: Formats,
                 variables: Mapping[str, Mapping[str, StackVariable]],
                 functions: ExportableFunctions, *, pipelined: bool, num_replicas: int,
                 update_count: UpdateCount):
        self._stacks, self._formats, self._num_replicas = stacks, formats, num_replicas
        self._update_count = update_count
        tables = {name: _table_variables(variables[name]) for name in stacks.stacks}
        self._of_arrays = {name: ExportableEmbedding(
            stacks.plan.restricted_to([name]), {name: tables[name]}, functions,
            functools.partial(_to_replicas, name, formats[name])) for name in stacks.stacks}

        def of_features(name: str, plan: EmbeddingPlan) -> ExportableEmbedding:
            return ExportableEmbedding(
                plan, variables_of_tables(plan, tables[name]), functions,
                lambda inputs: [(datas, tf.constant(1, tf.int64)) for datas in inputs])

        # Delayed and measured updates know whole stacks only.
        self._of_stack_features = {name: of_features(name, stacks.feature_plan_of(name))
                                   for name in stacks.stacks}
        self._of_features = self._of_stack_features if pipelined else {
            name: of_features(name, plan_of_tables(stacks, name)) for name in stacks.stacks}
        # The ids of several replicas are prepared together, when all gradients are known.
        self._prepares = num_replicas == 1 and not stacks.plan.tables_without_optimizer
        self._delayed: dict[str, DelayedUpdate] = {}
        if pipelined:
            with outside_strategies():
                self._delayed = {
                    name: DelayedUpdate(stack.engine.plan, self._example(name))
                    for name, stack in self._of_arrays.items()}

    def lookup_features(self, datas: EnqueueDatas,
                        to_partitions: ToPartitions) -> tuple[dict[str, Tensor], Partitions]:
        """Looks up the ids of the features of one replica.

        Args:
            datas: path -> ids.
            to_partitions: converts the checked ids to arrays.

        Returns:
            Path -> activations `output_shape + [dim]`, and the ids for `apply_gradients`.
        """
        stacked: dict[str, Tensor] = {}
        prepared: dict[str, tuple[Tensor, ...]] = {}
        for name, stack in self._of_features.items():
            with tf.control_dependencies(self._applied(name) if is_sequential() else []):
                found, ids = stack.lookup([{feature.name: datas[feature.name]
                                            for feature in stack.engine.plan.features}],
                                          training=self._prepares)
            stacked |= found
            prepared[name] = native_tensors(ids) if self._prepares else ()
        with tf.control_dependencies(list(stacked.values())):
            partitions, assertions = to_partitions(_identity(datas))
        with tf.control_dependencies(assertions):
            stacked, prepared = _identity((stacked, prepared))
        preserved = {name: preserve_features(
            partitions[name], {path: datas[path] for path in self._paths(name)}, prepared[name],
            _tables_of(stack)) for name, stack in self._of_features.items()}
        return self._split(stacked), preserved

    def lookup(self, partitions: Partitions) -> tuple[dict[str, Tensor], Partitions]:
        """Looks up the ids of given arrays; see `lookup_features` for the result."""
        activations: dict[str, Tensor] = {}
        preserved = {}
        for name, stack in self._of_arrays.items():
            ids = self._read(name, partitions[name])
            with tf.control_dependencies(self._applied(name) if is_sequential() else []):
                stacked, step_ids = stack.lookup([ids.inputs], training=self._prepares)
            activations |= split_cores(self._stacks, name, stacked[name])
            preserved[name] = PreservedIds(
                **fields_of(ids), features=(), inputs=ids.inputs, tables=_tables_of(stack),
                prepared=native_tensors(step_ids) if self._prepares else ())
        return {path: activations[path] for path in self._stacks.features}, preserved

    def apply_gradients(self, replicas: Sequence[tuple[Partitions, Gradients]]) -> list[None]:
        """Updates every row that any replica looked up, once.

        Args:
            replicas: for each replica its ids, and path -> gradient of its activations.

        Returns:
            None for each replica.
        """
        step = self._update_count.next()
        for name in self._stacks.stacks:
            preserved = [self._preserved(name, partitions[name]) for partitions, _ in replicas]
            stack, inputs, stacked = self._to_update(
                name, preserved, [gradients for _, gradients in replicas])
            update = stack.engine.step_gradients(stacked, step)
            # Measuring may have begun after the lookup, with another plan.
            is_prepared = len(preserved) == 1 and preserved[0].tables == _tables_of(stack)
            ids = from_native_tensors(preserved[0].prepared) if is_prepared else None
            if self._delayed and not is_sequential():
                if ids is None:
                    ids = stack.prepare_for_update(inputs)
                self._delayed[name].delay(stack.engine, ids, update)
            else:
                with tf.control_dependencies(self._applied(name)):
                    stack.update(inputs, ids, update)
        return [None] * len(replicas)

    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of each stack's updates in functions traced after this call."""
        for name, stack in self._of_arrays.items():
            engine = stack.engine
            if engine.recorder is None:
                with outside_strategies():
                    engine.recorder = MeasureRecorder(engine.plan, engine.variables)
            self._of_stack_features[name].engine.recorder = engine.recorder
        self._of_features = self._of_stack_features
        return self.recorders

    @property
    def recorders(self) -> dict[str, MeasureRecorder]:
        """Stack name -> what records its measures, if they were requested."""
        return {name: stack.engine.recorder for name, stack in self._of_arrays.items()
                if stack.engine.recorder is not None}

    def complete(self) -> None:
        """Applies delayed updates."""
        with tf.init_scope():
            for name in self._delayed:
                self._applied(name)

    def forget(self) -> None:
        """Drops delayed updates, because the tables are restored."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.drop()

    def _to_update(self, name: str, preserved: Sequence[PreservedIds],
                   gradients: Sequence[Gradients]
                   ) -> tuple[ExportableEmbedding, list[object], Mapping[str, Tensor]]:
        """Returns the view that looked up the ids, its inputs, and the gradients of its tables."""
        if not preserved[0].features:
            return self._of_arrays[name], [ids.inputs for ids in preserved], {name: tf.concat(
                [join_cores(self._stacks, name, of_replica) for of_replica in gradients], 0)}
        stack, width = self._of_features[name], self._stacks.stacks[name].shape[1]
        paths = self._paths(name)
        stacked = stack_gradients(stack.engine.plan, [
            {path: padded(of_replica[path], width) for path in paths} for of_replica in gradients])
        return stack, [preserved_features(ids, paths) for ids in preserved], stacked

    def _paths(self, name: str) -> list[str]:
        """Returns the features of a stack, in the order of their preserved ids."""
        return [feature.name for feature in self._stacks.feature_plan.features_of(name)]

    def _split(self, stacked: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the activations of every feature, from those of the stacks."""
        by_path: dict[str, Tensor] = {}
        for stack in self._of_features.values():
            by_path |= split_activations(stack.engine.plan, stacked, 1)
        shapes = self._stacks.activation_shapes
        return {path: tf.reshape(_columns(by_path[path], shape[-1]), shape)
                for path, shape in shapes.items()}

    def _applied(self, name: str) -> list[Tensor]:
        """Applies the delayed update of a stack; returns tensors to wait for."""
        if name not in self._delayed:
            return []
        return [self._delayed[name].apply(self._of_arrays[name].engine)]

    def _preserved(self, name: str, partition: PartitionedCsrFormatTensor) -> PreservedIds:
        """Returns ids as a lookup would return them."""
        return partition if isinstance(partition, PreservedIds) else self._read(name, partition)

    def _read(self, name: str, partition: PartitionedCsrFormatTensor) -> PreservedIds:
        ids = from_csr(partition, self._formats[name])
        return PreservedIds(**fields_of(partition), features=(), prepared=(), tables=(),
                            inputs=tuple(engine_ids(ids, self._formats[name].rows_per_shard)))

    def _example(self, name: str) -> StepIds:
        """Returns placeholders with the dtypes and shapes of all batches, in a separate graph."""
        with tf.Graph().as_default():
            inputs = tuple(tf.compat.v1.placeholder(dtype, [None])
                           for dtype in (tf.int64, tf.int64, tf.float32))
            return self._of_arrays[name].prepare_for_update([inputs] * self._num_replicas)


def check_partitions(argument: str, partitions: object, stacks: Stacks) -> Partitions:
    """Raises ValueError unless there are ids for every stack; returns them in order.

    Raises TypeError unless they are a mapping.
    """
    names = list(stacks.stacks)
    if not isinstance(partitions, Mapping):
        raise TypeError(checks.complaint(
            argument, "the ids that the lookup returned, by stack", partitions))
    checks.check(set(partitions) == set(names), argument, f"have the stacks {names} as keys",
                 list(partitions))
    checked = {}
    for name in names:
        partition = partitions[name]
        if not isinstance(partition, PartitionedCsrFormatTensor):
            raise ValueError(checks.complaint(
                f"{argument}[{name!r}]", "a PartitionedCsrFormatTensor",
                type(partition).__name__, sentence=
                f"Expect PartitionedCsrFormatTensor but get {type(partition)}."))
        checked[name] = partition
    return checked


def _to_replicas(name: str, csr: CsrFormat, inputs: Sequence[Inputs]) -> Replicas:
    return [({name: EnqueueData(*of_replica)}, tf.constant(csr.sample_count, tf.int64))
            for of_replica in inputs]


def _tables_of(stack: ExportableEmbedding) -> tuple[str, ...]:
    return tuple(table.name for table in stack.engine.plan.tables)


def _identity(nest: Structure) -> Structure:
    return with_tensors(nest, [tf.identity(tensor) for tensor in tensors_of(nest)])


def _columns(activations: Tensor, dimension: int) -> Tensor:
    return activations if activations.shape[-1] == dimension else activations[:, :dimension]


def _table_variables(variables: Mapping[str, StackVariable]) -> TableVariables:
    return TableVariables(
        list(variables[PARAMETERS].variables),
        {slot: list(variable.variables) for slot, variable in variables.items()
         if slot != PARAMETERS})


def fields_of(partition: PartitionedCsrFormatTensor) -> Fields:
    """Returns the arrays of a stack by name."""
    return {name: getattr(partition, name) for name in PartitionedCsrFormatTensor.__annotations__}


def preserve_features(partition: PartitionedCsrFormatTensor, datas: EnqueueDatas,
                      prepared: Sequence[Tensor], tables: tuple[str, ...]) -> PreservedIds:
    """Returns the preserved ids of features; `datas` are in the order of the plan."""
    given = [{name: tensor for name, tensor in data._asdict().items() if tensor is not None}
             for data in datas.values()]
    return PreservedIds(
        **fields_of(partition), prepared=tuple(prepared), tables=tables,
        features=tuple((type(data).__name__, *fields)
                       for data, fields in zip(datas.values(), given, strict=True)),
        inputs=tuple(tensor for fields in given for tensor in fields.values()))


def preserved_features(preserved: PreservedIds, names: Sequence[str]) -> EnqueueDatas:
    """Returns feature name -> ids, as passed to `preserve_features`."""
    tensors = iter(preserved.inputs)
    return {name: _CLASSES[kind](**{field: next(tensors) for field in fields})
            for name, (kind, *fields) in zip(names, preserved.features, strict=True)}


def plan_of_tables(stacks: Stacks, name: str) -> EmbeddingPlan:
    """Returns the plan of a stack's features, with a table for each table of the stack.

    Every table of the plan has all rows of the stack, of which its features use some. A stack
    remains one table if its optimizer also moves rows without ids.

    Args:
        stacks: the tables and features.
        name: name of the stack.
    """
    plan = stacks.feature_plan_of(name)
    [stack] = plan.tables
    if stack.optimizer is None or stack.optimizer.rule.updates_untouched_rows:
        return plan
    names = {feature.name: f"{name}/{stacks.features[feature.name].table}"
             for feature in plan.features}
    features = [dataclasses.replace(feature, table=names[feature.name])
                for feature in plan.features]
    return EmbeddingPlan.build(
        [dataclasses.replace(stack, name=table) for table in dict.fromkeys(names.values())],
        features, num_hosts=plan.num_hosts)


def variables_of_tables(plan: EmbeddingPlan, variables: TableVariables
                        ) -> dict[str, TableVariables]:
    """Returns table of the plan -> variables of the stack, which all of them share."""
    return {table.name: variables for table in plan.tables}
