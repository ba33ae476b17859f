# SPDX-License-Identifier: Apache-2.0
"""Imports of graphs with this package's ops, as a checkpoint's `.meta` file has them.

TensorFlow knows compiled ops once their library is loaded, which happens when the first table is
created. A program that imports a graph need not create any.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import op_def_registry

from tpu_estimator_embedding.kernels import load

_PREFIX = "TpuEmbedding"  # of the names of all compiled ops


def importing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an `import_graph_def` that loads compiled ops first, if a graph needs them.

    It raises RuntimeError if the graph needs them, and there are none.
    """
    @functools.wraps(original)
    def import_graph_def(graph_def: Any, *arguments: Any, **named: Any) -> Any:
        missing = sorted({node.op for node in _nodes(graph_def) if node.op.startswith(_PREFIX)
                          and op_def_registry.get(node.op) is None})
        if missing and load.native_ops() is None:
            raise RuntimeError(
                f"The graph has {', '.join(missing)}, compiled ops of tpu_estimator_embedding, "
                "which cannot be loaded here. `tpu-estimator-embedding doctor` says why; an "
                "exported SavedModel needs none of them.")
        return original(graph_def, *arguments, **named)

    return import_graph_def


def _nodes(graph_def: Any) -> Iterator[node_def_pb2.NodeDef]:
    if not isinstance(graph_def, tf.compat.v1.GraphDef):  # which TensorFlow refuses
        return iter(())
    functions: Iterable[Any] = graph_def.library.function
    return iter([*graph_def.node, *(node for function in functions for node in function.node_def)])
