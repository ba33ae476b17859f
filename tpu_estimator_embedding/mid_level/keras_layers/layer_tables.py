# SPDX-License-Identifier: Apache-2.0
"""The tables of a layer: calls look them up, the backward pass updates them.

Every lookup depends on the trap, a trainable variable that holds one zero. When a tape computes
its gradient, it computes the gradients of the activations on the way, which update the tables;
the gradient of the trap itself is 0. So the tables are trained in any loop that computes the
gradients of the layer's trainable variables, with one update per computation.
"""

import contextlib
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
from tpu_estimator_embedding.engine.stacked_activations import split_activations, stack_gradients
from tpu_estimator_embedding.engine.step import EnqueueDatas, Replicas, StepIds
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
from tpu_estimator_embedding.mid_level.keras_layers.layer_input import LayerInput, read_input
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.ops.gradient_tap import tap_gradients
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
        self._can_train = all(table.optimizer for table in self._plan.tables)
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
                                    self._replicas.scoped_strategy)
        self._update_count = UpdateCount(self._plan)
        self.variables = children(self._parts) | self._update_count.children
        for name, variable in self.variables.items():
            self._track_trackable(variable, name)
        self._functions = ExportableFunctions()
        self._recorder: MeasureRecorder | None = None

    @not_converted
    def lookup(self, features: Structure, weights: Structure, trap: Tensor,
               training: bool | None) -> Structure:
        """Returns activations in the structure of the FeatureConfigs, tied to the trap.

        Args:
            features: inputs in that structure.
            weights: weights in that structure, or None.
            trap: `[1]` float32.
            training: False does not tie activations to the trap. In the graph of a session, only
                True uses compiled ops, because an exported graph cannot contain them.

        Raises:
            ValueError, TypeError: if a structure or an input is invalid.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary, or features
                have different batch sizes.
        """
        inputs = self._read(features, weights)
        batch_size = self._check_batch(inputs)
        plan = with_sequence_lengths(self._plan, {
            path: given.rows_per_sample for path, given in inputs.items()})
        trains = self._can_train and not _is_inference(training)
        call = _LayerCall(
            ExportableEmbedding(plan, self._parts, self._functions, lambda replicas: replicas,
                                self._recorder),
            ({path: given.data for path, given in inputs.items()}, batch_size),
            is_for_export=training is not True)
        with tf.control_dependencies([] if trains else self._complete_before(call)):
            stacked, ids = call.embedding.lookup([call.datas], training=trains,
                                                 is_for_export=call.is_for_export)
        by_path = split_activations(plan, stacked, batch_size)
        flat = [_reshape(by_path[path], inputs[path]) for path in self._features]
        if trains:
            flat = tap_gradients(trap, flat, lambda gradients: self._update(call, ids, {
                path: tf.cast(gradient, tf.float32)
                for path, gradient in zip(self._features, gradients, strict=True)}))
        return tf.nest.pack_sequence_as(self._feature_config, flat)

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
                   for number, (delayed, _) in enumerate(self._delayed.values())}}

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

    def _update(self, call: "_LayerCall", ids: StepIds, gradients: Mapping[str, Tensor]) -> None:
        if self._replicas.count > 1 and save_context.in_save_context():
            return  # an exported graph has one replica, which cannot update for all
        mine = (call.datas, gradients)
        leaves = tf.nest.flatten(mine)

        def update(shares: Sequence[Leaves]) -> list[None]:
            replicas = [tf.nest.pack_sequence_as(mine, share) for share in shares]
            # With one replica, the lookup has prepared the ids.
            self._apply(call, replicas, ids if len(replicas) == 1 else None)
            return [None] * len(replicas)

        self._replicas.together("tape.gradient", update, leaves)

    def _apply(self, call: "_LayerCall", replicas: Sequence[Any], ids: StepIds | None) -> None:
        engine, datas = call.embedding.engine, [given for given, _ in replicas]
        update = engine.step_gradients(
            stack_gradients(engine.plan, [of for _, of in replicas]), self._update_count.next())
        # A loaded model has no pipeline.
        if not self._plan.pipelined or save_context.in_save_context():
            call.embedding.update(datas, ids, update, is_for_export=call.is_for_export)
            return
        if ids is None:
            ids = prepare_replicas(engine.plan, datas, training=True, uniform=True)
        delayed = self._delayed_update(call, ids.is_native, trains=True)
        self._apply_delayed()
        delayed.delay(engine, ids, update)

    def _delayed_update(self, call: "_LayerCall", is_native: bool, *,
                        trains: bool) -> DelayedUpdate:
        """Returns what delays the updates of calls with these features."""
        plan = call.embedding.engine.plan
        key = (plan.features, is_native)
        if key not in self._delayed:
            if self._has_graphs_for_inference and trains:
                _LOG.warning(
                    "A pipelined layer is trained with features of other shapes than a function "
                    "that was traced for inference before: that function does not see the last of "
                    "these updates. Read `embedding_tables` before it runs, or trace it later.")
            with outside_strategies():
                example = _example(plan, [call.datas] * self._replicas.count,
                                   portable=not is_native)
                self._delayed[key] = (DelayedUpdate(plan, example), call.embedding)
        delayed, _ = self._delayed[key]
        self._delayed[key] = (delayed, call.embedding)  # which may measure by now
        return delayed

    def _complete_before(self, call: "_LayerCall") -> list[Tensor]:
        """Applies delayed updates before a lookup for inference; returns tensors to wait for."""
        if not (self._plan.pipelined and self._can_train) or save_context.in_save_context():
            return []
        # Now, because a function of Keras that is traced now also runs after trainings.
        self._delayed_update(call, can_be_native(call.embedding.engine.plan), trains=False)
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
    """One lookup of a layer, with the values that its update needs.

    Attributes:
        embedding: the tables, with the rows per sample of this call.
        datas: the ids of every feature, and the batch size.
        is_for_export: whether this is the graph of a session that must not use compiled ops.
    """

    embedding: ExportableEmbedding
    datas: tuple[EnqueueDatas, Tensor | int]
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
