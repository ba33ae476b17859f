# SPDX-License-Identifier: Apache-2.0
"""TPUEmbedding, with the signatures of TensorFlow 2.3 and of 2.4 and later.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.optimizers import SGD
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> words = TableConfig(1000, 2, tf.ones_initializer(), combiner="sum", name="words")
>>> embedding = TPUEmbedding({"title": FeatureConfig(words)}, SGD(0.5))
>>> embedding.enqueue({"title": tf.ragged.constant([[3, 4], [3]])})
>>> embedding.dequeue()["title"].numpy().tolist()
[[2.0, 2.0], [1.0, 1.0]]
>>> embedding.apply_gradients({"title": tf.ones([2, 2])})
>>> embedding.embedding_tables[words][3].numpy().tolist()
[0.0, 0.0]
"""

import contextlib
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import save_context

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.stacked_activations import split_activations
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.mid_level.config.structure import (
    Ids,
    check_structure,
    named_features,
    named_shapes,
    named_tables,
    named_values,
    own_configs,
)
from tpu_estimator_embedding.mid_level.config.to_plan import to_plan
from tpu_estimator_embedding.mid_level.constructor_call import read_call
from tpu_estimator_embedding.mid_level.execution.deep_copies import deep_copy
from tpu_estimator_embedding.mid_level.execution.engine_batches import EngineBatches
from tpu_estimator_embedding.mid_level.execution.replica_activations import (
    activation_shape,
    gradient_or_zeros,
)
from tpu_estimator_embedding.mid_level.execution.replica_calls import Leaves, ReplicaCalls
from tpu_estimator_embedding.mid_level.execution.servers import (
    check_no_cluster,
    check_not_pipelined,
    is_cluster,
    servers_of,
)
from tpu_estimator_embedding.mid_level.execution.table_variables import (
    TrackedTables,
    outside_strategies,
)
from tpu_estimator_embedding.mid_level.input import output_shapes, row_layout
from tpu_estimator_embedding.mid_level.input.feature_input import (
    DeviceShares,
    batch_data,
    batch_size_of,
    empty_data,
)
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.ops.sparse_ids import (
    check_ids_are_integers,
    check_weights_are_numbers,
)
from tpu_estimator_embedding.optimizers.setting_checks import check_flag
from tpu_estimator_embedding.types import Structure, Tensor

# The existing objects; in release 2.3 one of them had to initialize the TPU embedding engine.
_initialized: weakref.WeakSet["TPUEmbedding"] = weakref.WeakSet()


class TPUEmbedding(TrackedTables):
    """Embedding tables with the optimizers that update them.

    A training step calls `enqueue` with ids, `dequeue` for activations, and `apply_gradients`.
    For evaluation, call `enqueue(training=False)` and `dequeue`. Under a strategy, call `enqueue`
    inside or outside of `strategy.run`, and the other two inside. Each row is updated once per
    step, with the sum of the gradients of all replicas. Several objects may exist.

    Under a ParameterServerStrategy the tables are on its servers, and a function that a
    ClusterCoordinator schedules contains all three calls. Workers update independently.

    The signatures of release 2.3 and of release 2.4 and later::

        TPUEmbedding(feature_config, batch_size, optimizer,
                     pipeline_execution_with_tensor_core=False, initialize_tpu_embedding=True,
                     *, table_multipliers=None)
        TPUEmbedding(feature_config, optimizer, pipeline_execution_with_tensor_core=False,
                     *, table_multipliers=None)

    Args:
        feature_config: a nested structure of FeatureConfigs.
        batch_size: samples of all replicas.
        optimizer: the optimizer of the tables that do not set their own. None, in release 2.4
            and later, creates tables without slots, which cannot be trained.
        pipeline_execution_with_tensor_core: whether each batch is looked up before the update of
            the previous batch. That update is delayed until the lookup, or until the tables are
            read through `embedding_tables`, saved, or looked up without training.
        initialize_tpu_embedding: False requires that another object exists.
        table_multipliers: table -> gradient multiplier, see `TableMultipliers.of`. The step of
            a schedule is the number of updates of the tables, which checkpoints contain.

    Raises:
        ValueError: if a config or optimizer is of the wrong class, two tables have the same
            name, or batch_size is not a multiple of the number of replicas.
        RuntimeError: if initialize_tpu_embedding is False and there is no other object, the
            strategy has replicas in other processes and no parameter servers, or TensorFlow is
            building the graph of a session.

    Source: documentation of `tf.tpu.experimental.embedding.TPUEmbedding`, releases 2.3 and 2.4.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not tf.compat.v1.executing_eagerly_outside_functions():
            raise RuntimeError("TPUEmbedding must be created in eager execution, got the graph of "
                               "a session. Use TPUEstimator in programs that run sessions.")
        call = read_call(args, kwargs)
        # The program may change its own configs, which TensorFlow's functions read here.
        self._feature_config = call.feature_config
        self._own_config = own_configs(call.feature_config)
        self._features = named_features(self._own_config)
        self._replicas = ReplicaCalls()
        check_flag("pipeline_execution_with_tensor_core", call.pipeline_execution_with_tensor_core)
        is_pipelined = bool(call.pipeline_execution_with_tensor_core)
        check_not_pipelined(self._replicas.strategy, is_pipelined)
        self._plan = to_plan(call.feature_config, call.optimizer, pipelined=is_pipelined,
                             num_hosts=len(servers_of(self._replicas.strategy)) or 1,
                             table_multipliers=call.table_multipliers)
        self._batches: EngineBatches | None = None
        self._recorder: MeasureRecorder | None = None
        super().__init__(self._plan, named_tables(call.feature_config), call.optimizer,
                         self._replicas.scoped_strategy)
        self._device_shares = DeviceShares(self._replicas.devices)
        _check_initialized(call.initialize_tpu_embedding)
        if call.batch_size is not None:
            self._check_optimizers()
            checks.check(call.batch_size % self._replicas.count == 0, "batch_size",
                         f"a multiple of the {self._replicas.count} replicas", call.batch_size)
            self.build(per_replica_batch_size=call.batch_size // self._replicas.count)
        _initialized.add(self)

    @not_converted
    def build(self, per_replica_input_shapes: Structure = None,
              per_replica_batch_size: int | None = None) -> None:
        """Creates tables and slots, and sets the shapes of the features if they are given.

        Args:
            per_replica_input_shapes: the shapes of one replica's inputs, in the structure of
                feature_config; or the batch size of one replica.
            per_replica_batch_size: samples of one replica. Without either argument, the first
                `enqueue` sets the shapes.

        Raises:
            ValueError: if a shape differs from earlier calls or from an output_shape, has rank
                0, or has an unknown size other than the last.
        """
        if isinstance(per_replica_input_shapes, int):
            per_replica_input_shapes, per_replica_batch_size = None, per_replica_input_shapes
        self._build_tables()
        if per_replica_input_shapes is not None:
            shapes = named_shapes(self._own_config, per_replica_input_shapes)
            self._fix_shapes({path: output_shapes.of_build(path, config, shapes[path])
                              for path, config in self._features.items()})
        elif per_replica_batch_size is not None:
            checks.check_positive_int("per_replica_batch_size", per_replica_batch_size)
            self._fix_shapes({path: output_shapes.agreed(path, config, output_shapes.of_batch_size(
                config, per_replica_batch_size)) for path, config in self._features.items()})

    @not_converted
    def enqueue(self, features: Structure, weights: Structure = None, training: bool = True,
                name: str | None = None, device: str | None = None) -> None:
        """Enqueues the ids of a step.

        Up to 16 batches wait for `dequeue`, in their order. They may be enqueued ahead, also by
        another thread, and between the `dequeue` and the `apply_gradients` of other batches.

        Args:
            features: ids, in the structure of the FeatureConfigs: integer Tensors,
                SparseTensors or RaggedTensors, or distributed values of them. A Tensor
                `[batch]` or `[batch, 1]` has one id per sample; sparse and ragged samples have
                any number of ids, which are combined or form a sequence.
            weights: None, or floats in the same structure, of the same tensor types as the ids;
                a leaf may be None for weights of 1. Dense ids cannot have weights.
            training: whether `apply_gradients` will follow.
            name: name scope of the ops. As in TensorFlow, a named batch without a following
                `apply_gradients` is for inference.
            device: None enqueues the ids of all replicas. Outside of `strategy.run` it can also
                be the device of one replica, or "/TPU:r" for replica r; the batch is complete
                after one call per replica.

        Raises:
            ValueError: if the structure or the type of an input differs, weights and ids do not
                match, shapes differ from earlier calls, or no replica has the device.
            TypeError: if the type of a sequence in the structure differs, or device is no string.
            RuntimeError: if the batch size is unknown, training is True and a table has no
                optimizer, 16 batches were not dequeued, or only some devices have ids. The
                batches that wait stay.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary. In a graph, it
                also replaces errors that depend on values.
        """
        check_structure("features", self._own_config, features)
        check_flag("training", training, "Pass a bool of Python.")
        if training and self._plan.tables_without_optimizer:
            raise RuntimeError("Tables without an optimizer cannot be trained. Pass "
                               "training=False, or give TPUEmbedding an optimizer.")
        leaves = [*tf.nest.flatten(features), *[None] * len(self._features)]
        if weights is not None:
            check_structure("weights", self._own_config, weights)
            leaves[len(self._features):] = tf.nest.flatten(weights)
        with tf.name_scope(name or "enqueue"):
            if device is None:
                self._device_shares.check_complete()
                self._replicas.together(
                    "enqueue", lambda shares: self._enqueue(shares, training, name), leaves,
                    from_outside=True)
            elif shares := self._device_shares.add(device, leaves, training):
                self._enqueue(shares, training, name)

    @not_converted
    def dequeue(self, name: str | None = None) -> Structure:
        """Returns the activations of the batch that was enqueued first.

        Args:
            name: name scope of the ops.

        Returns:
            float32 Tensors in the structure of the FeatureConfigs: `[batch, dim]`,
            `[batch, max_sequence_length, dim]`, or output_shape followed by dim; the batch is
            that of one replica.

        Raises:
            RuntimeError: if nothing was enqueued, the gradients of the previous batch are
                missing, or it is called outside of `strategy.run` with several replicas. The
                batches that wait stay.
        """
        batches = self._built("dequeue")
        with tf.name_scope(name or "dequeue"):
            flat = self._replicas.together("dequeue", lambda shares: [
                [activations[path] for path in self._features]
                for activations in batches.dequeue()], [], traced_outside=True)
        return tf.nest.pack_sequence_as(self._own_config, flat)

    @not_converted
    def apply_gradients(self, gradients: Structure, name: str | None = None) -> None:
        """Updates the tables with the gradients of the last dequeued activations.

        Args:
            gradients: float Tensors in the structure and shapes of the activations. None means
                zeros, which still update the rows: moments decay, and weight decay and limits
                apply.
            name: name scope of the ops.

        Raises:
            RuntimeError: if no batch was dequeued for training.
            ValueError: if a gradient is not a Tensor or has another shape, or the structure
                differs.
            TypeError: if the type of a sequence in the structure differs.
        """
        batches = self._built("apply_gradients")
        check_structure("gradients", self._own_config, gradients)
        plans = {feature.name: feature for feature in batches.plan.features}
        shapes = {path: activation_shape(batches.plan, plans[path], batches.layout)
                  for path in self._features}
        with tf.name_scope(name or "apply_gradients"):
            leaves = [gradient_or_zeros(path, gradient, shapes[path])
                      for path, gradient in named_values(gradients)]
            self._replicas.together("apply_gradients", lambda shares: batches.apply_gradients(
                [dict(zip(self._features, share, strict=True)) for share in shares]), leaves)

    @not_converted
    def drop_batches(self) -> None:
        """Drops the batches that were enqueued or dequeued, and not trained on.

        A program that continues after an error between `enqueue` and `apply_gradients` starts its
        next step from here. Tables and delayed updates stay. TensorFlow's class has no such method.
        """
        self._device_shares.drop()
        if self._batches is not None:
            self._batches.drop()

    @not_converted
    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of updates; EmbeddingStatisticsCallback says which ones."""
        check_no_cluster(self._strategy, "EmbeddingStatisticsCallback")
        if self._recorder is None:
            variables = self._build_tables()
            with outside_strategies():
                self._recorder = MeasureRecorder(self._plan, variables)
            if self._batches is not None:
                self._batches.record_measures(self._recorder)
        return {"": self._recorder}

    def lookup_batch(self, ids: Mapping[str, Ids],
                     weights: Mapping[str, Ids | None]) -> dict[str, Tensor]:
        """Returns activations as `enqueue(training=False)` and `dequeue`, for any batch size.

        Needs no `build`, and no other batch is affected. A delayed update is not applied. What is
        traced while a SavedModel is written has TensorFlow's own ops only.

        Args:
            ids: path of a feature -> ids, as for `enqueue`. Features may be missing.
            weights: path -> weights; may be None or missing.

        Returns:
            Path of each given feature -> `[batch, dim]` or `[batch, max_sequence_length, dim]`.

        Raises:
            ValueError, TypeError: if an input is invalid.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary.
        """
        if not ids:
            return {}
        data = {path: batch_data(path, value, weights.get(path)) for path, value in ids.items()}
        batch_size = batch_size_of(next(iter(ids.values())))
        empty = {feature.name: empty_data(feature.max_sequence_length)
                 for feature in self._plan.features}
        engine = PartitionedEmbedding(self._plan, self._build_tables())
        prepared = prepare_replicas(self._plan, [({**empty, **data}, batch_size)], training=False,
                                    portable=save_context.in_save_context())
        activations = split_activations(self._plan, engine.lookup(prepared), batch_size)
        return {path: activations[path] for path in ids}

    def __deepcopy__(self, memo: dict[int, Any]) -> "TPUEmbedding":
        """Returns an object with its own tables and slots, and the same configs; eager.

        The copy has all updates, and no batch waits in it.

        Raises:
            RuntimeError: if the tables are on parameter servers.
        """
        if is_cluster(self._strategy):
            raise RuntimeError("copy.deepcopy cannot copy tables on parameter servers. Save a "
                               "tf.train.Checkpoint, and restore it into a new TPUEmbedding.")
        self._build_tables()
        self._complete_eagerly()
        copied = deep_copy(
            self, memo, self._saved.values(),
            shared=(self._plan, self._strategy, self._replicas, self._features,
                    self._own_config, *self._tables.values()),
            replaced=((self._deferred_dependencies, {}), (self._building, threading.RLock()),
                      (self._device_shares, DeviceShares(self._replicas.devices)),
                      (self._batches, None), (self._recorder, None)))
        if self._batches is not None:
            copied._batches = copied._new_batches(self._batches.layout)
        _initialized.add(copied)
        return copied

    def _enqueue(self, shares: list[Leaves], training: bool, name: str | None) -> list[None]:
        paths = list(self._features)
        replicas = [(dict(zip(paths, map(_to_tensor, share[:len(paths)]), strict=True)),
                     dict(zip(paths, share[len(paths):], strict=True))) for share in shares]
        shapes = [{path: output_shapes.of_input(path, self._features[path], value)
                   for path, value in ids.items()} for ids, _ in replicas]
        for ids, of_ids in replicas:  # before the first batch fixes the shapes of all later ones
            for path, value in ids.items():
                check_ids_are_integers(value, path)
                check_weights_are_numbers(of_ids[path], path)
        for one in shapes:
            self._fix_shapes(one)
        return self._built("enqueue").enqueue(replicas, training, is_optional=name is not None)

    def _fix_shapes(self, shapes: dict[str, output_shapes.OutputShape]) -> None:
        shapes = {path: output_shapes.stated(path, config) or shapes[path]
                  for path, config in self._features.items()}
        with self._building:
            if self._batches is not None:
                row_layout.check_unchanged(self._batches.layout, shapes)
            else:
                self._batches = self._new_batches(row_layout.resolve(shapes))

    def _new_batches(self, layout: row_layout.RowLayout) -> EngineBatches:
        with outside_strategies():
            batches = EngineBatches(self._plan, self._build_tables(), layout, self._replicas.count,
                                    self._update_count, self._strategy)
        if self._recorder is not None:
            batches.record_measures(self._recorder)
        return batches

    def _built(self, method: str) -> EngineBatches:
        if self._batches is None:
            raise RuntimeError(f"{method} called on unbuilt TPUEmbedding object. Please either "
                               "call enqueue first or manually call the build method. A build "
                               "without shapes creates the tables only.")
        return self._batches

    def _check_optimizers(self) -> None:
        without = self._plan.tables_without_optimizer
        checks.check_with_sentence(
            not without, f"Tables {without} have no optimizer.",
            "Pass `optimizer`, or TableConfig(optimizer=...) for each of them.")

    def _complete(self) -> None:
        if self._batches is not None:
            self._batches.complete()

    def _completed(self) -> contextlib.AbstractContextManager[None]:
        return self._batches.completed() if self._batches else contextlib.nullcontext()

    def _forget(self) -> None:
        if self._batches is not None:
            self._batches.forget()


def _to_tensor(value: Any) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, np.ndarray | tf.Variable) else value


def _check_initialized(initialize: bool) -> None:
    if not initialize and not _initialized:
        raise RuntimeError(checks.complaint(
            "initialize_tpu_embedding", "True if there is no other TPUEmbedding", initialize))
