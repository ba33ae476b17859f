# SPDX-License-Identifier: Apache-2.0
"""The embedding tables of a running TF2 program, with their lookups and updates.

The classes that hold tables report their activations and updates, also within a `tf.function`,
through an additional op that calls Python.
"""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level import tpu_embedding
from tpu_estimator_embedding.mid_level.config.structure import named_values
from tpu_estimator_embedding.mid_level.execution import table_variables
from tpu_estimator_embedding.mid_level.keras_layers import layer_tables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.runtime.interception import intercepted
from tpu_estimator_embedding.types import Structure, Tensor


@dataclasses.dataclass(eq=False)
class WatchedTables:
    """The tables of one object.

    Attributes:
        plan: its plan.
        features: feature -> table.
        variables: returns name of a table, or "table/slot" -> variable, without applying a
            pending update.
        forget: drops a pending update.
        num_replicas: the number of calls per update.
        updates: calls so far.
        activations: feature -> its last activations.
        trained: the same for the last update.
    """

    plan: EmbeddingPlan
    variables: Callable[[], Mapping[str, tf.Variable]]
    forget: Callable[[], object]
    features: Mapping[str, str]
    num_replicas: int = 1
    updates: int = 0
    activations: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    trained: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def is_pipelined(self) -> bool:
        """Whether the variables lack the last update."""
        return self.plan.pipelined

    def lookup(self, features: Mapping[str, Tensor]) -> None:
        """Records activations when they are computed; of several replicas the first one's."""
        context = tf.distribute.get_replica_context()
        if context and tf.get_static_value(context.replica_id_in_sync_group):
            return
        for name, value in features.items():
            call(functools.partial(self._note, name), value)

    def update(self) -> None:
        """Counts an update when it is made."""
        call(self._count, tf.constant(0))

    def _note(self, name: str, activations: np.ndarray) -> None:
        self.activations[name] = activations

    def _count(self, _: np.ndarray) -> None:
        with self._lock:  # replicas count at the same time
            self.updates += 1
            self.trained = dict(self.activations)


def call(function: Callable[[np.ndarray], object], value: object) -> None:
    """Calls a function with the value of a tensor whenever this place is executed."""
    def called(array: np.ndarray) -> np.int32:
        function(np.array(array))
        return np.int32(0)

    if tf.is_tensor(value):
        tf.numpy_function(called, [tf.stop_gradient(value)], tf.int32)


@contextlib.contextmanager
def watching(found: list[WatchedTables]) -> Iterator[None]:
    """Adds the tables of every new TPUEmbedding and Keras layer to `found`."""
    of: dict[int, WatchedTables] = {}

    def add(holder: tpu_embedding.TPUEmbedding | layer_tables.LayerTables,
            tables: WatchedTables) -> None:
        of[id(holder)] = tables
        found.append(tables)
        holder.kept_alive_by_verify = tables  # so that no other object gets this id

    def made_embedding(original: Callable[..., None], self: tpu_embedding.TPUEmbedding,
                       *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)

        def forget() -> None:
            if self._batches:
                self._batches.forget()

        add(self, WatchedTables(
            self._plan, lambda: table_variables.children(self._variables or {}), forget,
            _features(self._plan), self._replicas.count))

    def dequeue(original: Callable[..., Structure], self: tpu_embedding.TPUEmbedding,
                *args: object, **kwargs: object) -> Structure:
        activations = original(self, *args, **kwargs)
        of[id(self)].lookup(dict(named_values(activations)))
        return activations

    def apply_gradients(original: Callable[..., None], self: tpu_embedding.TPUEmbedding,
                        *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        of[id(self)].update()

    def made_layer(original: Callable[..., None], self: layer_tables.LayerTables,
                   *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        add(self, WatchedTables(self._plan, lambda: self.variables, lambda: [
            delayed.drop() for delayed, _ in self._delayed.values()], _features(self._plan),
            self._replicas.count))

    def lookup(original: Callable[..., Structure], self: layer_tables.LayerTables,
               features: Structure, weights: Structure, carrier: object,
               training: object, **options: object) -> Structure:
        activations = original(self, features, weights, carrier, training, **options)
        if training is not False:
            of[id(self)].lookup(dict(named_values(activations)))
        return activations

    def updated(original: Callable[..., None], self: layer_tables.LayerTables, *args: object,
                **kwargs: object) -> None:
        original(self, *args, **kwargs)
        of[id(self)].update()

    with (intercepted(tpu_embedding.TPUEmbedding, {
            "__init__": made_embedding, "dequeue": dequeue,
            "apply_gradients": apply_gradients}, autograph=False),
          intercepted(layer_tables.LayerTables, {
              "__init__": made_layer, "lookup": lookup, "apply_gradients": updated},
              autograph=False)):
        yield


def _features(plan: EmbeddingPlan) -> dict[str, str]:
    return {feature.name: feature.table for feature in plan.features}
