# SPDX-License-Identifier: Apache-2.0
"""The tables of `keras_rs.layers.DistributedEmbedding` in a running program."""

import contextlib
import functools
import gc
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.migration.verify.watched_tables import WatchedTables, wrapped


@contextlib.contextmanager
def watching(found: list[WatchedTables]) -> Iterator[None]:
    """Adds the layers that a program has made when it iterates over its first Dataset.

    Until then it has loaded Keras RS as it likes, and traced no step.
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
    layers = [one for one in gc.get_objects()
              if isinstance(one, keras_rs.layers.DistributedEmbedding)]
    of = {id(layer): WatchedTables(None, functools.partial(_variables, layer), lambda: None)
          for layer in layers}
    found.extend(of.values())

    def looked_up(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        activations = original(layer, *args, **kwargs)
        if id(layer) in of and isinstance(activations, Mapping):
            of[id(layer)].look_up(activations)
        return activations

    def applied(original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        for tables in of.values():
            tables.update()
        return result

    stack.enter_context(wrapped(keras_rs.layers.DistributedEmbedding, "call", looked_up))
    stack.enter_context(wrapped(keras.optimizers.Optimizer, "apply", applied))
    for model in gc.get_objects():  # XLA cannot call Python
        if isinstance(model, keras.Model) and model.compiled:
            model.jit_compile = False


def _variables(layer: Any) -> dict[str, Any]:
    """Returns table -> variable, and "table/accumulators" -> slot of an Adagrad optimizer."""
    tables = {one.name: one.embeddings for one in
              layer._default_device_embedding_layers.values()}
    return {name: variable.value for name, variable in tables.items()}
