# SPDX-License-Identifier: Apache-2.0
"""The tables of a layer: looked up in its call, updated when its gradient is taken.

A variable of one zero, the trap, is part of every lookup. When a tape computes its
gradient, it meets the gradients of the activations, which update the tables; the trap's
own gradient is 0. So the tables train in any loop that takes the gradient of the layer's
trainable variables, once for every time it does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    shard_replicas,
    split_activations,
)
from tpu_estimator_embedding.mid_level.config.structure import (
    check_structure,
    named_features,
    named_tables,
    named_values,
)
from tpu_estimator_embedding.mid_level.config.to_plan import (
    slot_functions,
    to_plan,
    with_sequence_lengths,
)
from tpu_estimator_embedding.mid_level.keras_layers.layer_input import LayerInput, read_input
from tpu_estimator_embedding.mid_level.runtime_checks import require
from tpu_estimator_embedding.mid_level.step.delayed_update import DelayedUpdate
from tpu_estimator_embedding.mid_level.step.replica_calls import ReplicaCalls
from tpu_estimator_embedding.mid_level.step.table_variables import (
    children,
    create_tables,
    outside_strategies,
)
from tpu_estimator_embedding.types import Tensor

Inputs = Mapping[str, LayerInput]


class LayerTables(tf.__internal__.tracking.Trackable):
    """Tables, their slots and the engine on them.

    Attributes:
        variables: name of a table, or `table/slot` -> variable.
    """

    def __init__(self, feature_config: Any, optimizer: Any, *, pipelined: bool = False,
                 batch_size: int | None = None):
        """Creates the tables.

        Args:
            feature_config: a nested structure of FeatureConfigs.
            optimizer: that of the tables without one of their own; None leaves them so.
            pipelined: whether a lookup misses the update of the batch before.
            batch_size: samples of all replicas together, if they are known.
        """
        self._feature_config = feature_config
        self._features = named_features(feature_config)
        self.tables = named_tables(feature_config)
        self._plan = to_plan(feature_config, optimizer, pipelined=pipelined)
        self._can_train = all(table.optimizer for table in self._plan.tables)
        self._replicas, self._batch_size = ReplicaCalls(), batch_size
        if batch_size is not None:
            checks.check_positive_int("batch_size", batch_size)
            checks.check(batch_size % self._replicas.count == 0, "batch_size",
                         f"a multiple of the {self._replicas.count} replicas", batch_size)
        self._parts = create_tables(self._plan, slot_functions(self.tables, optimizer))
        self.variables = children(self._parts)
        for name, variable in self.variables.items():
            self._track_trackable(variable, name)
        self._delayed: dict[Any, DelayedUpdate] = {}  # by the form of the ids

    @tf.autograph.experimental.do_not_convert  # there is nothing to convert, slowly
    def lookup(self, features: Any, weights: Any, trap: Tensor, training: bool | None) -> Any:
        """Returns activations in the structure of the FeatureConfigs, tied to the trap.

        Args:
            features: inputs in that structure.
            weights: weights in that structure, or None.
            trap: `[1]` float32.
            training: False ties nothing to the trap. Only True may use compiled ops, which
                an export could not take along.

        Raises:
            ValueError, TypeError: if a structure or an input is refused.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary, or features
                have unequal batch sizes.
        """
        inputs = self._read(features, weights)
        batch_size = self._check_batch(inputs)
        plan = with_sequence_lengths(self._plan, {
            path: given.rows_per_sample for path, given in inputs.items()})
        engine = PartitionedEmbedding(plan, self._parts)
        datas = ({path: given.data for path, given in inputs.items()}, batch_size)
        trains, portable = self._can_train and training is not False, training is not True
        ids = shard_replicas(plan, [datas], training=trains, portable=portable)
        by_path = split_activations(plan, engine.lookup(ids), batch_size)
        flat = [_reshape(by_path[path], inputs[path]) for path in self._features]
        if trains:
            flat = _trapped(trap, flat, lambda gradients: self._update(
                engine, datas, ids, dict(zip(self._features, gradients, strict=True)), portable))
        return tf.nest.pack_sequence_as(self._feature_config, flat)

    def complete(self) -> None:
        """Applies what pipelining has left to apply."""
        with tf.init_scope():
            for delayed in self._delayed.values():
                delayed.apply()

    def _read(self, features: Any, weights: Any) -> Inputs:
        check_structure("features", self._feature_config, features)
        given: list[Any] = [None] * len(self._features)
        if weights is not None:
            check_structure("weights", self._feature_config, weights)
            given = tf.nest.flatten(weights)
        return {path: read_input(path, self._features[path], value, weight)
                for (path, value), weight in zip(named_values(features), given, strict=True)}

    def _check_batch(self, inputs: Inputs) -> int | Tensor:
        """Returns the batch size, which all features must have."""
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

    def _update(self, engine: PartitionedEmbedding, datas: Any, ids: Any,
                gradients: Mapping[str, Tensor], portable: bool) -> None:
        if self._replicas.count > 1 and save_context.in_save_context():
            return  # an export has one replica, which alone makes no update
        mine = (datas, gradients)
        leaves = tf.nest.flatten(mine)

        def update(shares: Sequence[Any]) -> list[None]:
            replicas = [tf.nest.pack_sequence_as(mine, share) for share in shares]
            # Of one replica the ids are sorted already, for its lookup.
            all_ids = ids if len(replicas) == 1 else shard_replicas(
                engine.plan, [given for given, _ in replicas], training=True, portable=portable)
            self._apply(engine, replicas, all_ids, portable)
            return [None] * len(replicas)

        self._replicas.together("tape.gradient", update, leaves)

    def _apply(self, engine: PartitionedEmbedding, replicas: Sequence[Any], ids: Any,
               portable: bool) -> None:
        gradients = _stack(engine.plan, [of for _, of in replicas])
        if not self._plan.pipelined:
            engine.apply_gradients(ids, gradients, tf.constant(0, tf.int64))
            return
        kind = tuple(type(data).__name__ for data in replicas[0][0][0].values())
        key = (engine.plan.features, kind, portable)
        if key not in self._delayed:
            with outside_strategies():
                self._delayed[key] = DelayedUpdate(
                    engine, _example(engine.plan, [given for given, _ in replicas], portable))
        for delayed in self._delayed.values():
            delayed.apply()
        self._delayed[key].delay(ids, gradients)


def _trapped(trap: Tensor, activations: Sequence[Tensor],
             update: Callable[[Sequence[Tensor]], None]) -> list[Tensor]:
    @tf.custom_gradient
    def tie(trap: Tensor, *activations: Tensor) -> Any:
        def gradient(*upstream: Tensor) -> Any:
            update([tf.cast(tf.convert_to_tensor(part), tf.float32) for part in upstream])
            return tf.zeros_like(trap), *(tf.zeros_like(part) for part in upstream)
        return [tf.identity(part) for part in activations], gradient
    return tie(trap, *activations)


def _stack(plan: Any, replicas: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns table name -> gradients of all replicas' activations concatenated along axis 0."""
    return {table.name: tf.concat([
        tf.reshape(gradients[feature.name], [-1, table.dimension])
        for gradients in replicas for feature in plan.features_of(table.name)], 0)
        for table in plan.tables}


def _example(plan: Any, datas: Sequence[Any], portable: bool) -> Any:
    """Returns ids like those of `datas` in a graph of its own, with all sizes open."""
    with tf.Graph().as_default():
        def example(leaf: Any) -> Any:
            if not tf.is_tensor(leaf):
                return leaf
            shape = leaf.shape.as_list()
            return tf.compat.v1.placeholder(leaf.dtype, [None, *shape[1:]] if shape else [])
        return shard_replicas(plan, [
            (tf.nest.map_structure(example, data), tf.compat.v1.placeholder(tf.int64, []))
            for data, _ in datas], training=True, portable=portable)


def _reshape(activations: Tensor, given: LayerInput) -> Tensor:
    if len(given.inner_shape) < 2:
        return activations
    batch = given.batch_size if isinstance(given.batch_size, int) else -1
    return tf.reshape(activations, [batch, *given.inner_shape, activations.shape[-1]])
