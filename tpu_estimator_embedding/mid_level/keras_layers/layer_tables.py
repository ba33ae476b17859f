# SPDX-License-Identifier: Apache-2.0
"""The tables of a layer: calls look them up, steps of an optimizer update them.

Every lookup depends on the carrier, a trainable variable of zeros. Its gradient says which backward
passes it is made of, and `apply_gradients`, which optimizers call with it, makes one update of
what they have stored. `pending_updates` has the form of that gradient.
"""

import contextlib
import functools
import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.saved_model import save_context
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.exportable_embedding import ExportableEmbedding
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.stacked_activations import split_activations, stack_gradients
from tpu_estimator_embedding.engine.step import Replicas, StepGradients, StepIds
from tpu_estimator_embedding.engine.step_ids import can_be_native, prepare_replicas
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.structure import (
    Ids,
    check_structure,
    named_features,
    named_tables,
    named_values,
    own_configs,
)
from tpu_estimator_embedding.mid_level.config.to_plan import (
    slot_functions,
    to_plan,
    with_sequence_lengths,
)
from tpu_estimator_embedding.mid_level.execution.replica_calls import Leaves, ReplicaCalls
from tpu_estimator_embedding.mid_level.execution.servers import check_no_cluster
from tpu_estimator_embedding.mid_level.execution.table_variables import (
    UpdateCount,
    children,
    create_tables,
    outside_strategies,
)
from tpu_estimator_embedding.mid_level.keras_layers.joined_lookups import Batch
from tpu_estimator_embedding.mid_level.keras_layers.layer_input import LayerInput, read_input
from tpu_estimator_embedding.mid_level.keras_layers.optimizer_steps import saved_carrier
from tpu_estimator_embedding.mid_level.keras_layers.pending_updates import (
    CHANGED,
    GONE,
    OTHER_SHAPES,
    SLOTS,
    Asked,
    Kind,
    Pending,
    PendingUpdates,
    kind_of,
)
from tpu_estimator_embedding.mid_level.keras_layers.table_variable import creator
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.ops.ordering import after, when
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Structure, Tensor

Inputs = Mapping[str, LayerInput]
_LOG = logging.getLogger("tpu_estimator_embedding")
_STEPS_FOR_INFERENCE = ("test_step", "predict_step")  # methods of a Keras model
_CONVERTED = "tf__"  # before the names of functions that AutoGraph has converted


class LayerTables(tf.__internal__.tracking.Trackable):
    """Tables, their slots and the engine that uses them.

    Attributes:
        variables: `table`, `table/slot` or the name of an update count -> variable.
        saved_carrier: what stands for the carrier in checkpoints.
    """

    def __init__(self, feature_config: Structure, optimizer: TableOptimizer | None, *,
                 pipelined: bool = False, batch_size: int | None = None,
                 table_multipliers: Multipliers = None):
        """Creates the tables.

        Args:
            feature_config: a nested structure of FeatureConfigs.
            optimizer: the optimizer of the tables that do not set their own. If it is None,
                these tables cannot be trained.
            pipelined: whether activations lack the update of the previous batch.
            batch_size: samples of all replicas, or None if it varies.
            table_multipliers: a mapping for `TableMultipliers.of`.
        """
        self._feature_config = own_configs(feature_config)
        self._features = named_features(self._feature_config)
        self.tables = named_tables(feature_config)
        self._plan = to_plan(feature_config, optimizer, pipelined=pipelined,
                             table_multipliers=table_multipliers)
        self._can_train = not self._plan.tables_without_optimizer
        self._replicas, self._batch_size = ReplicaCalls(), batch_size
        check_no_cluster(self._replicas.strategy, "Embedding layers")
        if batch_size is not None:
            checks.check_positive_int("batch_size", batch_size)
            checks.check(batch_size % self._replicas.count == 0, "batch_size",
                         f"a multiple of the {self._replicas.count} replicas", batch_size)
        # Keys: rows per sample of the features, and whether native kernels are used.
        self._delayed: dict[tuple[object, ...], tuple[DelayedUpdate, ExportableEmbedding]] = {}
        self._has_graphs_for_inference = False
        self._parts = create_tables(self._plan, slot_functions(self.tables, optimizer),
                                    self._replicas.scoped_strategy, creator(self.complete))
        self._update_count = UpdateCount(self._plan)
        self.variables = children(self._parts) | self._update_count.children
        for name, variable in self.variables.items():
            self._track_trackable(variable, name)
        self._functions = ExportableFunctions()
        self._recorder: MeasureRecorder | None = None
        # A SavedModel has the carrier itself in this place, which is longer.
        self.saved_carrier = saved_carrier("tpu_embedding_trap")
        count = self._replicas.count
        self._pending = [PendingUpdates(replica, count) for replica in range(count)]
        self._kinds: dict[Kind, _LayerCall] = {}  # their last calls, without ids

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy under which the tables were created."""
        return self._replicas.strategy

    @property
    def has_trained(self) -> bool:
        """Whether activations were looked up for a training."""
        return bool(self._kinds)

    @property
    def carrier_size(self) -> int:
        """The number of elements of the carrier."""
        return 2 * SLOTS

    @not_converted
    def lookup(self, features: Structure, weights: Structure, carrier: Tensor,
               training: bool | None, *, is_trainable: bool = True,
               checks: bool = False) -> Structure:
        """Returns activations in the structure of the FeatureConfigs, tied to the carrier.

        Args:
            features: inputs in that structure.
            weights: weights in that structure, or None.
            carrier: `[carrier_size]` float32 zeros.
            training: False does not tie activations to the carrier. In the graph of a session, only
                True uses compiled ops, because an exported graph cannot contain them.
            is_trainable: False does not tie them either: the layer is frozen.
            checks: whether gradients of activations may overflow, see `PendingUpdates.tie`.

        Raises:
            ValueError, TypeError: if a structure or an input is invalid.
            RuntimeError: if the carrier has changed.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary, or features
                have different batch sizes.
        """
        inputs = self._read(features, weights)
        batch_size = self._check_batch(inputs)
        plan = with_sequence_lengths(self._plan, {
            path: given.rows_per_sample for path, given in inputs.items()})
        trains = self._can_train and is_trainable and not _is_inference(training)
        call = _LayerCall(
            ExportableEmbedding(plan, self._parts, self._functions, lambda replicas: replicas,
                                self._recorder), is_for_export=training is not True)
        batch = Batch({path: given.data for path, given in inputs.items()}, batch_size)
        with tf.control_dependencies([] if trains else self._complete_before(call, batch)):
            stacked, ids = call.embedding.lookup([batch], training=trains,
                                                 is_for_export=call.is_for_export)
        by_path = split_activations(plan, stacked, batch_size)
        activations = {path: _reshape(by_path[path], inputs[path]) for path in self._features}
        if trains and (record.could_possibly_record() or not save_context.in_save_context()):
            activations = self._tie(call, batch, ids, activations, carrier, checks)
        return tf.nest.pack_sequence_as(self._feature_config, list(activations.values()))

    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of updates in functions that are traced after this call."""
        if self._recorder is None:
            with outside_strategies():
                self._recorder = MeasureRecorder(self._plan, self._parts)
        return {"": self._recorder}

    def complete(self) -> None:
        """Applies the update that pipelining has delayed."""
        with tf.init_scope():
            self._apply_delayed()

    @contextlib.contextmanager
    def completed(self) -> Iterator[None]:
        """Applies the update that pipelining has delayed within the context only."""
        with contextlib.ExitStack() as stack:
            for delayed, embedding in self._delayed.values():
                stack.enter_context(delayed.applied(embedding.engine))
            yield

    # Saving applies pending updates; restoring drops them.

    def _trackable_children(self, save_type: str = "checkpoint",
                            **options: Any) -> dict[str, Trackable]:
        self.complete()
        children = super()._trackable_children(save_type, **options)
        if save_type != "savedmodel":
            return children
        return {**children, **(self._recorder.children if self._recorder else {}),
                **{f"delayed_update_{number}": delayed.exported
                   for number, (delayed, _) in enumerate(self._delayed.values())},
                **{f"pending_{replica}_{name}": child
                   for replica, pending in enumerate(self._pending)
                   for name, child in pending.exported.items()}}

    def _lookup_dependency(self, *args: Any, **kwargs: Any) -> Trackable | None:
        with tf.init_scope():
            for delayed, _ in self._delayed.values():
                delayed.drop()
        return super()._lookup_dependency(*args, **kwargs)

    def _export_to_saved_model_graph(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        self._functions.replace_in(tf.compat.v1.get_default_graph())
        return super()._export_to_saved_model_graph(*args, **kwargs)

    def _read(self, features: Structure, weights: Structure) -> Inputs:
        check_structure("features", self._feature_config, features)
        given: list[Ids | None] = [None] * len(self._features)
        if weights is not None:
            check_structure("weights", self._feature_config, weights)
            given = tf.nest.flatten(weights)
        return {path: read_input(path, self._features[path], value, weight)
                for (path, value), weight in zip(named_values(features), given, strict=True)}

    def _check_batch(self, inputs: Inputs) -> int | Tensor:
        """Returns the batch size; checks that all features have the same."""
        expected: Any = self._batch_size and self._batch_size // self._replicas.count
        sizes = {path: given.batch_size for path, given in inputs.items()}
        known = next((size for size in sizes.values() if isinstance(size, int)), None)
        expected = expected or known or next(iter(sizes.values()))
        assertions = []
        for path, size in sizes.items():
            what, rule = f"batch of feature {path!r}", "as large as batch_size or other features'"
            if isinstance(size, int) and isinstance(expected, int):
                checks.check(size == expected, what, f"{rule}, {expected}", size)
            elif size is not expected:
                assertions += require(tf.equal(tf.cast(size, tf.int64), tf.cast(
                    expected, tf.int64)), f"`{what}` must be {rule}.", ValueError)
        if isinstance(expected, int):
            with tf.control_dependencies(assertions):
                return expected
        with tf.control_dependencies(assertions):
            return tf.identity(expected)

    @not_converted
    def apply_gradients(self, coefficients: Tensor, is_due: Tensor | None = None,
                        steps: int = 1) -> None:
        """Updates the tables once, with the sum of what backward passes have stored.

        Args:
            coefficients: a gradient of the carrier, or a linear combination of several.
            is_due: scalar bool: False only adds the coefficients to those of earlier calls, True
                updates with the mean of all of these. None updates with the coefficients alone.
            steps: the calls that the mean is taken over.

        Raises:
            RuntimeError: if a backward pass that is asked for is not waiting.
        """
        coefficients = tf.stop_gradient(tf.cast(tf.convert_to_tensor(coefficients), tf.float32))
        leaves = [coefficients] + ([] if is_due is None else [tf.convert_to_tensor(is_due)])
        pending = self._pending

        def update(shares: Sequence[Leaves]) -> list[None]:
            given = [share[0] for share in shares]
            if is_due is None:
                self._update(given)
                return [None] * len(shares)
            for waiting, value in zip(pending, given, strict=True):
                waiting.accumulated.assign_add(value)

            def update_all() -> None:
                self._update([waiting.accumulated / steps for waiting in pending])
                for waiting in pending:
                    waiting.accumulated.assign(tf.zeros_like(waiting.accumulated))
            when(shares[0][1], update_all)
            return [None] * len(shares)

        self._replicas.together("apply_gradients", update, leaves)

    def _update(self, coefficients: Sequence[Tensor]) -> None:
        """Updates with the coefficients that each replica was given."""
        slots = SLOTS // self._replicas.count
        of_slots = [tf.reshape(value, [2, SLOTS])[:, replica * slots:(replica + 1) * slots]
                    for replica, value in enumerate(coefficients)]

        kinds = dict(self._kinds)  # those of now, also in a twin that is traced later
        calls = list(kinds.values())

        def run(of_slots: Sequence[Tensor], portable: bool) -> tuple[tuple[()], tuple[()]]:
            self._update_by(of_slots, kinds, portable)
            return (), ()

        if not calls or self._plan.pipelined:  # a delayed update is not exported
            run(of_slots, False)
            return
        calls[-1].embedding.call(
            run, of_slots, is_for_export=calls[-1].is_for_export,
            handles=[*(variable.handle for variable in self._update_count.children.values()),
                     *(handle for pending in self._pending for handle in pending.handles(kinds))],
            key=(*kinds, *(call.embedding.engine.recorder is None for call in calls)))

    def _update_by(self, of_slots: Sequence[Tensor], kinds: Mapping[Kind, "_LayerCall"],
                   portable: bool) -> None:
        def together() -> Tensor:
            if tf.executing_eagerly():
                return self._update_together(of_slots, kinds, portable)
            return tf.function(  # whose ops a step does not even skip one by one
                lambda of_slots: self._update_together(of_slots, kinds, portable), autograph=False,
                experimental_attributes={"_noinline": True})(of_slots)

        update = together
        for kind, call in kinds.items():
            is_alone = tf.reduce_all([
                pending.is_alone(kind, mine, others=kinds.keys() - {kind})
                for pending, mine in zip(self._pending, of_slots, strict=True)])
            update = functools.partial(tf.cond, is_alone, functools.partial(
                self._update_alone, kind, call, of_slots, portable), update)
        update()

    def _update_alone(self, kind: Kind, call: "_LayerCall", of_slots: Sequence[Tensor],
                      portable: bool) -> Tensor:
        """Updates with the only backward pass that waits, on every replica."""
        return after(self._apply(call, [
            pending.take_alone(kind, mine)
            for pending, mine in zip(self._pending, of_slots, strict=True)], portable))

    def _update_together(self, of_slots: Sequence[Tensor], kinds: Mapping[Kind, "_LayerCall"],
                         portable: bool) -> Tensor:
        """Updates with the sum of any number of backward passes."""
        by_plan: dict[object, list[Kind]] = {}
        for kind, call in kinds.items():
            by_plan.setdefault(call.embedding.engine.plan.features, []).append(kind)
        asked = [(kinds[alike[-1]], [pending.take(alike, mine) for pending, mine in zip(
            self._pending, of_slots, strict=True)]) for alike in by_plan.values()]
        counts = [tf.add_n([count for count, _ in replicas]) for _, replicas in asked]
        expected = tf.add_n([tf.math.count_nonzero(mine[0], dtype=tf.int32) for mine in of_slots])
        found = tf.add_n([tf.constant(0), *counts])
        plans = tf.math.count_nonzero([tf.constant(0), *counts])
        with tf.control_dependencies([*require(tf.equal(expected, found), GONE, RuntimeError),
                                      *require(plans <= 1, OTHER_SHAPES, RuntimeError)]):
            return after(*(when(count > 0, functools.partial(
                self._apply, call, [of for _, of in replicas], portable))
                for (call, replicas), count in zip(asked, counts, strict=True)))

    def _apply(self, call: "_LayerCall", replicas: Sequence[Asked],
               portable: bool) -> tf.Operation | Tensor | None:
        engine, ids = call.embedding.engine, replicas[0].ids
        batches = [of.batch for of in replicas]
        if ids is None or portable:
            ids = prepare_replicas(engine.plan, batches, training=True, portable=portable,
                                   uniform=True)
        if not self._plan.pipelined or save_context.in_save_context():  # which has no pipeline
            return engine.update(ids, self._step_gradients(engine, replicas))
        delayed = self._delayed_update(call, batches[0], ids.is_native, trains=True)
        self._apply_delayed()
        return delayed.delay(engine, ids, self._step_gradients(engine, replicas))

    def _step_gradients(self, engine: PartitionedEmbedding,
                        replicas: Sequence[Asked]) -> StepGradients:
        first, is_eager = replicas[0].factor, tf.executing_eagerly()
        has_factors = tf.is_tensor(first) and not (
            is_eager and all(float(of.factor) == 1 for of in replicas))
        # A factor as a multiplier needs no copies of the gradients.
        is_multiplier = len(replicas) == 1 and not self._plan.pipelined and not engine.recorder
        gradients = [of.gradients if is_multiplier or not has_factors else {
            name: of.factor * value for name, value in of.gradients.items()} for of in replicas]
        update = engine.step_gradients(stack_gradients(engine.plan, gradients),
                                       self._update_count.next())
        if not has_factors or not is_multiplier:
            return update
        factor = tf.convert_to_tensor(first)
        return update._replace(multipliers={
            table.name: factor * update.multipliers[table.name]
            if table.name in update.multipliers else factor for table in engine.plan.tables})

    def _tie(self, call: "_LayerCall", batch: Batch, ids: StepIds,
             activations: dict[str, Tensor], carrier: Tensor, checks: bool) -> dict[str, Tensor]:
        """Makes activations depend on the carrier."""
        context, replica = tf.distribute.get_replica_context(), 0
        if self._replicas.count > 1 and context is not None:
            replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        example = Pending(tf.constant(0, tf.int64), Batch(
            batch.datas, tf.cast(batch.size, tf.int64)), None if self._replicas.count > 1 else ids,
            activations)
        kind = kind_of(call.embedding.engine.plan, example)
        self._kinds[kind] = call
        for pending in self._pending:
            pending.add_kind(kind, example)
        with tf.control_dependencies(require(
                tf.reduce_all(tf.equal(carrier, 0.0)), CHANGED, RuntimeError)):
            return self._pending[replica].tie(tf.identity(carrier), kind, example, checks=checks)

    def _delayed_update(self, call: "_LayerCall", batch: Batch, is_native: bool, *,
                        trains: bool) -> DelayedUpdate:
        """Returns what delays the updates of calls with these features."""
        plan = call.embedding.engine.plan
        key = (plan.features, is_native)
        if key not in self._delayed:
            if self._has_graphs_for_inference and trains:
                _LOG.warning(
                    "A pipelined layer is trained with feature shapes that differ from those of a "
                    "function that was traced for inference: that function misses the last update. "
                    "Read `embedding_tables` before it runs, or trace it later.")
            with outside_strategies():
                example = _example(plan, [batch] * self._replicas.count,
                                   portable=not is_native)
                self._delayed[key] = (DelayedUpdate(plan, example), call.embedding)
        delayed, _ = self._delayed[key]
        self._delayed[key] = (delayed, call.embedding)  # which may measure by now
        return delayed

    def _complete_before(self, call: "_LayerCall", batch: Batch) -> list[Tensor]:
        """Applies delayed updates before a lookup for inference; returns tensors to wait for."""
        if not (self._plan.pipelined and self._can_train) or save_context.in_save_context():
            return []
        # Now, because a function of Keras that is traced now also runs after trainings.
        self._delayed_update(call, batch, can_be_native(call.embedding.engine.plan), trains=False)
        self._has_graphs_for_inference |= not tf.executing_eagerly()
        applied: list[Tensor] = []

        def apply(shares: Sequence[object]) -> list[None]:
            applied.extend(embedding.apply(delayed)
                           for delayed, embedding in self._delayed.values())
            return [None] * len(shares)

        self._replicas.together("call", apply, [], from_outside=True)
        return applied if self._replicas.count == 1 else []

    def _apply_delayed(self) -> None:
        for delayed, embedding in self._delayed.values():
            delayed.apply(embedding.engine)


class _LayerCall(NamedTuple):
    """How a layer looks features up and updates tables, in lookups of one kind.

    Attributes:
        embedding: the tables, with the rows per sample of these lookups.
        is_for_export: whether this is the graph of a session that must not use compiled ops.
    """

    embedding: ExportableEmbedding
    is_for_export: bool


def _is_inference(training: bool | None) -> bool:
    """Whether no gradient can follow a call."""
    if training is not None:
        return not tf.is_tensor(training) and not training
    if tf.executing_eagerly():
        return not record.could_possibly_record()
    return _is_in_step_for_inference()


def _is_in_step_for_inference() -> bool:
    """Whether a model's `test_step` or `predict_step` is being traced.

    Keras 3 says so to a model whose `call` takes `training`, and to no other one.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name.removeprefix(_CONVERTED) in _STEPS_FOR_INFERENCE:
            model = frame.f_locals.get("self")
            return all(hasattr(model, step) for step in _STEPS_FOR_INFERENCE)
        frame = frame.f_back
    return False


def _example(plan: EmbeddingPlan, replicas: Replicas, *, portable: bool) -> StepIds:
    """Returns placeholders for the ids of `replicas`, of unknown size, in a separate graph."""
    with tf.Graph().as_default():
        def example(leaf: Any) -> Any:
            if not tf.is_tensor(leaf):
                return leaf
            shape = leaf.shape.as_list()
            return tf.compat.v1.placeholder(leaf.dtype, [None, *shape[1:]] if shape else [])
        return prepare_replicas(plan, [
            (tf.nest.map_structure(example, data), tf.compat.v1.placeholder(tf.int64, []))
            for data, _ in replicas], training=True, portable=portable, uniform=True)


def _reshape(activations: Tensor, given: LayerInput) -> Tensor:
    if len(given.inner_shape) < 2:
        return activations
    batch = given.batch_size if isinstance(given.batch_size, int) else -1
    return tf.reshape(activations, [batch, *given.inner_shape, activations.shape[-1]])
