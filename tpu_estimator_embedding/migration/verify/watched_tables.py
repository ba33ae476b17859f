# SPDX-License-Identifier: Apache-2.0
"""The embedding tables of a running TF2 program, with their lookups and updates.

The classes that hold tables report their activations and updates, also within a `tf.function`,
through an additional op that calls Python. `watching_keras_rs` follows the layers of Keras RS.
"""

import contextlib
import dataclasses
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level import tpu_embedding
from tpu_estimator_embedding.mid_level.config.structure import named_values
from tpu_estimator_embedding.mid_level.execution import table_variables
from tpu_estimator_embedding.mid_level.keras_layers import layer_tables
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Structure, Tensor

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    import keras_rs  # type: ignore[import-untyped]

Result = TypeVar("Result")


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
        return self.plan is not None and self.plan.pipelined

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
               features: Structure, weights: Structure, trap: object,
               training: object) -> Structure:
        activations = original(self, features, weights, trap, training)
        if training is not False:
            of[id(self)].lookup(dict(named_values(activations)))
        return activations

    def updated(original: Callable[..., None], self: layer_tables.LayerTables, *args: object,
                **kwargs: object) -> None:
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
def wrapped(owner: type, method: str, function: Callable[..., object]) -> Iterator[None]:
    """Replaces a method by `function(original, ...)`, which AutoGraph does not convert."""
    original = getattr(owner, method)

    @not_converted
    def replacement(*args: object, **kwargs: object) -> object:
        return function(original, *args, **kwargs)

    setattr(owner, method, replacement)
    try:
        yield
    finally:
        setattr(owner, method, original)


def _features(plan: EmbeddingPlan) -> dict[str, str]:
    return {feature.name: feature.table for feature in plan.features}


# Slot of a table -> attribute of a Keras optimizer with that slot of all its variables.
_SLOTS = {"accumulators": "_accumulators", "momenta": "_momentums", "velocities": "_velocities"}


@contextlib.contextmanager
def watching_keras_rs(found: list[WatchedTables]) -> Iterator[None]:
    """Adds the layers that exist when a program iterates over its first Dataset.

    By then it has imported Keras RS in its own way, and has not traced a step.
    """
    with contextlib.ExitStack() as stack:
        def look(original: Callable[[tf.data.Dataset], Result], dataset: tf.data.Dataset) -> Result:
            if "keras_rs" in sys.modules and not any(tables.plan is None for tables in found):
                _watch(found, stack)
            return original(dataset)

        stack.enter_context(wrapped(tf.data.Dataset, "__iter__", look))
        yield


def _watch(found: list[WatchedTables], stack: contextlib.ExitStack) -> None:
    import keras
    import keras_rs
    optimizer_of: dict[int, keras.optimizers.Optimizer] = {}  # by the id of a table's variable
    of = {id(layer): _Tables(layer, optimizer_of) for layer in gc.get_objects()
          if isinstance(layer, keras_rs.layers.DistributedEmbedding)}
    found.extend(tables.watched for tables in of.values())

    def looked_up(original: Callable[..., Result], layer: keras.layers.Layer, *args: object,
                  **kwargs: object) -> Result:
        activations = original(layer, *args, **kwargs)
        if id(layer) in of and isinstance(activations, Mapping):
            of[id(layer)].watched.lookup(activations)
        return activations

    def applied(original: Callable[..., Result], optimizer: keras.optimizers.Optimizer,
                gradients: Sequence[object],
                variables: Sequence[keras.Variable] | None = None, **kwargs: object) -> Result:
        result = original(optimizer, gradients, variables, **kwargs)
        for variable in variables or optimizer._trainable_variables:
            optimizer_of[id(variable)] = optimizer
        for tables in of.values():
            if tables.first in {id(variable) for variable in
                                variables or optimizer._trainable_variables}:
                tables.watched.update()
        return result

    stack.enter_context(wrapped(keras_rs.layers.DistributedEmbedding, "call", looked_up))
    stack.enter_context(wrapped(keras.optimizers.Optimizer, "apply", applied))
    for model in gc.get_objects():  # XLA cannot call Python
        if isinstance(model, keras.Model) and model.compiled:
            model.jit_compile = False


class _Tables:
    """The tables of a DistributedEmbedding, each of which its Keras optimizer updates."""

    def __init__(self, layer: "keras_rs.layers.DistributedEmbedding",
                 optimizer_of: "Mapping[int, keras.optimizers.Optimizer]") -> None:
        self._layer, self._optimizer_of = layer, optimizer_of
        features = {path: config.table.name for path, config in
                    layer._placement_to_path_to_feature_config["default_device"].items()}
        self.watched = WatchedTables(None, self._variables, lambda: None, features)

    @property
    def first(self) -> int:
        """The id of the first table's variable, whose updates count."""
        return next((id(one.embeddings) for one in self._layers() if one.built), 0)

    def _layers(self) -> "list[keras.layers.Layer]":
        return list(self._layer._default_device_embedding_layers.values())

    def _variables(self) -> dict[str, tf.Variable]:
        """Returns table -> variable, and "table/slot" -> slot of its optimizer."""
        found = {}
        for layer in self._layers():
            if not layer.built:
                continue
            found[layer.name] = layer.embeddings.value
            optimizer: Any = self._optimizer_of.get(id(layer.embeddings))
            for slot, attribute in _SLOTS.items():
                slots = getattr(optimizer, attribute, None)
                if slots:
                    index = optimizer._get_variable_index(layer.embeddings)
                    found[f"{layer.name}/{slot}"] = slots[index].value
        return found
