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


def stored(variables: Mapping[str, tf.Variable]) -> dict[str, np.ndarray]:
    """Returns the values of variables without applying a pending update.

    The `numpy` of a layer's variable applies it, before its time in the program.
    """
    return {name: variable.read_value().numpy() for name, variable in variables.items()}


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
    watch = _Watch(found)
    with (intercepted(tpu_embedding.TPUEmbedding, {
            "__init__": watch.make_embedding, "dequeue": watch.dequeue,
            "apply_gradients": watch.update}, autograph=False),
          intercepted(layer_tables.LayerTables, {
              "__init__": watch.make_layer, "lookup": watch.look_up,
              "apply_gradients": watch.update}, autograph=False)):
        yield


class _Watch:
    """What is called instead of the methods of objects with tables.

    Args:
        found: gets the tables of new objects.
    """

    def __init__(self, found: list[WatchedTables]) -> None:
        self._found = found
        # By the id of their object, which they keep alive.
        self._of: dict[int, WatchedTables] = {}

    def _add(self, holder: tpu_embedding.TPUEmbedding | layer_tables.LayerTables,
             variables: Callable[[], Mapping[str, tf.Variable]],
             forget: Callable[[], object]) -> None:
        features = {feature.name: feature.table for feature in holder._plan.features}
        tables = WatchedTables(
            holder._plan, variables, forget, features, holder._replicas.count)
        self._of[id(holder)] = tables
        self._found.append(tables)

    def make_embedding(self, original: Callable[..., None],
                       embedding: tpu_embedding.TPUEmbedding, *args: object,
                       **kwargs: object) -> None:
        """Constructs a TPUEmbedding."""
        original(embedding, *args, **kwargs)

        def forget() -> None:
            if embedding._batches:
                embedding._batches.forget()

        self._add(embedding, lambda: table_variables.children(embedding._variables or {}), forget)

    def make_layer(self, original: Callable[..., None], layer: layer_tables.LayerTables,
                   *args: object, **kwargs: object) -> None:
        """Constructs the tables of a Keras layer."""
        original(layer, *args, **kwargs)
        self._add(layer, lambda: layer.variables, lambda: [
            delayed.drop() for delayed, _ in layer._delayed.values()])

    def dequeue(self, original: Callable[..., Structure], embedding: tpu_embedding.TPUEmbedding,
                *args: object, **kwargs: object) -> Structure:
        """Looks up activations of a TPUEmbedding."""
        activations = original(embedding, *args, **kwargs)
        self._of[id(embedding)].lookup(dict(named_values(activations)))
        return activations

    def look_up(self, original: Callable[..., Structure], layer: layer_tables.LayerTables,
                features: Structure, weights: Structure, carrier: object,
                training: object, **options: object) -> Structure:
        """Looks up activations of a Keras layer."""
        activations = original(layer, features, weights, carrier, training, **options)
        if training is not False:
            self._of[id(layer)].lookup(dict(named_values(activations)))
        return activations

    def update(self, original: Callable[..., None], holder: object, *args: object,
               **kwargs: object) -> None:
        """Applies gradients."""
        original(holder, *args, **kwargs)
        self._of[id(holder)].update()
