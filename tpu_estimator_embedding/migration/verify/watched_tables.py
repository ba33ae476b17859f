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
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level import tpu_embedding
from tpu_estimator_embedding.mid_level.config.structure import named_values
from tpu_estimator_embedding.mid_level.keras_layers import layer_tables
from tpu_estimator_embedding.mid_level.step import table_variables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


@dataclasses.dataclass(eq=False)
class WatchedTables:
    """The tables of one object.

    Attributes:
        plan: its plan; None if the object has none.
        features: feature -> table.
        variables: returns name of a table, or "table/slot" -> variable, without applying a
            pending update.
        forget: drops a pending update.
        num_replicas: the number of calls per update.
        updates: calls so far.
        activations: feature -> its last activations.
        trained: the same for the last update.
    """

    plan: EmbeddingPlan | None
    variables: Callable[[], Mapping[str, Any]]
    forget: Callable[[], Any]
    features: Mapping[str, str]
    num_replicas: int = 1
    updates: int = 0
    activations: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    trained: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    _lock: Any = dataclasses.field(default_factory=threading.Lock)

    @property
    def is_pipelined(self) -> bool:
        """Whether the variables lack the last update."""
        return self.plan is not None and self.plan.pipelined

    def look_up(self, features: Mapping[str, Any]) -> None:
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


def call(function: Callable[[np.ndarray], Any], value: Any) -> None:
    """Calls a function with the value of a tensor whenever this place is executed."""
    def called(array: np.ndarray) -> Any:
        function(np.array(array))
        return np.int32(0)

    if tf.is_tensor(value):
        tf.numpy_function(called, [tf.stop_gradient(value)], tf.int32)


@contextlib.contextmanager
def watching(found: list[WatchedTables]) -> Iterator[None]:
    """Adds the tables of every new TPUEmbedding and Keras layer to `found`."""
    of: dict[int, WatchedTables] = {}

    def add(holder: Any, tables: WatchedTables) -> None:
        of[id(holder)] = tables
        found.append(tables)
        holder.kept_alive_by_verify = tables  # so that no other object gets this id

    def made_embedding(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        add(self, WatchedTables(
            self._plan, lambda: table_variables.children(self._variables or {}),
            lambda: self._batches and self._batches.forget(), _features(self._plan),
            self._replicas.count))

    def dequeue(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        activations = original(self, *args, **kwargs)
        of[id(self)].look_up(dict(named_values(activations)))
        return activations

    def apply_gradients(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        of[id(self)].update()

    def made_layer(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        add(self, WatchedTables(self._plan, lambda: self.variables, lambda: [
            delayed.drop() for delayed, _ in self._delayed.values()], _features(self._plan),
            self._replicas.count))

    def lookup(original: Any, self: Any, features: Any, weights: Any, trap: Any,
               training: Any) -> Any:
        activations = original(self, features, weights, trap, training)
        if training is not False:
            of[id(self)].look_up(dict(named_values(activations)))
        return activations

    def updated(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        of[id(self)].update()

    embedding, layer = tpu_embedding.TPUEmbedding, layer_tables.LayerTables
    with contextlib.ExitStack() as stack:
        for owner, method, function in (
                (embedding, "__init__", made_embedding), (embedding, "dequeue", dequeue),
                (embedding, "apply_gradients", apply_gradients), (layer, "__init__", made_layer),
                (layer, "lookup", lookup), (layer, "_update", updated)):
            stack.enter_context(wrapped(owner, method, function))
        yield


@contextlib.contextmanager
def wrapped(owner: Any, method: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replaces a method by `function(original, ...)`, which AutoGraph does not convert."""
    original = getattr(owner, method)

    @tf.autograph.experimental.do_not_convert
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    setattr(owner, method, replacement)
    try:
        yield
    finally:
        setattr(owner, method, original)


def _features(plan: EmbeddingPlan) -> dict[str, str]:
    return {feature.name: feature.table for feature in plan.features}
