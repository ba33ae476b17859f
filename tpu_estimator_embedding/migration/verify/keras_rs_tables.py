# SPDX-License-Identifier: Apache-2.0
"""The tables of `keras_rs.layers.DistributedEmbedding` in a running program."""

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.migration.verify.watched_tables import WatchedTables, wrapped

# Slot of a table -> attribute of a Keras optimizer with that slot of all its variables.
_SLOTS = {"accumulators": "_accumulators", "momenta": "_momentums", "velocities": "_velocities"}


@contextlib.contextmanager
def watching(found: list[WatchedTables]) -> Iterator[None]:
    """Adds the layers that exist when a program iterates over its first Dataset.

    By then it has imported Keras RS in its own way, and has not traced a step.
    """
    with contextlib.ExitStack() as stack:
        def look(original: Any, dataset: Any) -> Any:
            if "keras_rs" in sys.modules and not any(tables.plan is None for tables in found):
                _watch(found, stack)
            return original(dataset)

        stack.enter_context(wrapped(tf.data.Dataset, "__iter__", look))
        yield


def _watch(found: list[WatchedTables], stack: contextlib.ExitStack) -> None:
    import keras  # type: ignore[import-untyped]
    import keras_rs  # type: ignore[import-untyped]
    optimizer_of: dict[int, Any] = {}  # by the id of a table's variable
    of = {id(layer): _Tables(layer, optimizer_of) for layer in gc.get_objects()
          if isinstance(layer, keras_rs.layers.DistributedEmbedding)}
    found.extend(tables.watched for tables in of.values())

    def looked_up(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        activations = original(layer, *args, **kwargs)
        if id(layer) in of and isinstance(activations, Mapping):
            of[id(layer)].watched.look_up(activations)
        return activations

    def applied(original: Any, optimizer: Any, gradients: Any, variables: Any = None,
                **kwargs: Any) -> Any:
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

    def __init__(self, layer: Any, optimizer_of: Mapping[int, Any]) -> None:
        self._layer, self._optimizer_of = layer, optimizer_of
        features = {path: config.table.name for path, config in
                    layer._placement_to_path_to_feature_config["default_device"].items()}
        self.watched = WatchedTables(None, self._variables, lambda: None, features)

    @property
    def first(self) -> int:
        """The id of the first table's variable, whose updates count."""
        return next((id(one.embeddings) for one in self._layers() if one.built), 0)

    def _layers(self) -> list[Any]:
        return list(self._layer._default_device_embedding_layers.values())

    def _variables(self) -> dict[str, Any]:
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
