# SPDX-License-Identifier: Apache-2.0
"""Ops that put tensors into a channel and take them out, in any graph or session of the process.

A queue of TensorFlow belongs to one session. Programs that drive a TPU by hand enqueue batches,
train and collect results in different graphs, sessions and threads. A channel keeps the order,
hands out every element once, and waits without holding a thread; it needs the native kernels. Its
elements are lists of tensors of any dtypes and shapes; `engine.tensor_queue` puts nests of one
structure into it.

>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     session.run(Channel("doctest", capacity=2).put([tf.constant([1, 2])]))
>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     [values] = Channel("doctest", capacity=2).take([tf.TensorSpec([None], tf.int32)])
...     session.run(values).tolist()
[1, 2]
"""

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.outermost_graph import outermost_graph
from tpu_estimator_embedding.types import Tensor

PUT, TAKE = "TpuEmbeddingChannelPut", "TpuEmbeddingChannelTake"
_CPU = "/device:CPU:0"
_MARK = "_tpu_embedding_has_channels"


class Channel(NamedTuple):
    """A channel of the process.

    Attributes:
        name: says what it carries, in errors and logs too, such as "infeed of core 0".
        capacity: elements that it holds; putting another one waits.
    """

    name: str
    capacity: int

    def put(self, values: Sequence[Tensor], name: str | None = None) -> tf.Operation:
        """Returns the op that adds one element, a list of tensors; it waits for room."""
        with _native_ops() as ops:
            return ops.tpu_embedding_channel_put(values, self.name, self.capacity, name=name)

    def take(self, specs: Sequence[tf.TensorSpec], name: str | None = None) -> list[Tensor]:
        """Removes the first element; waits until there is one.

        Args:
            specs: dtypes and shapes of its tensors.
            name: of the op.

        Raises:
            tf.errors.InvalidArgumentError: when the op runs, if the element has others.
        """
        with _native_ops() as ops:
            return list(ops.tpu_embedding_channel_take(
                [spec.dtype for spec in specs], [spec.shape for spec in specs], self.name,
                name=name))

    def size(self) -> Tensor:
        """Returns the number of elements, a scalar int32."""
        with _native_ops(waits=False) as ops:
            return ops.tpu_embedding_channel_size(self.name)


def are_available() -> bool:
    """Whether the native kernels are loaded, or can be."""
    return load.native_ops() is not None


def reset(reason: str) -> tf.Operation:
    """Returns the op that empties all channels; ops that wait at one fail with the reason."""
    with _native_ops(waits=False) as ops:
        return ops.tpu_embedding_reset_channels(reason)


def is_in(graph: tf.Graph) -> bool:
    """Whether a graph, or a function that was built within it, has ops that wait at channels."""
    return getattr(graph, _MARK, False)


class _native_ops:
    """The context in which ops of channels are made; marks the graph of those that may wait."""

    def __init__(self, *, waits: bool = True) -> None:
        self._waits = waits

    def __enter__(self) -> ModuleType:
        ops = load.native_ops()
        if ops is None:
            raise NotImplementedError(
                "Passing tensors between graphs and sessions requires the native kernels, and "
                f"this process has none. Compile them: `{load.COMMAND}`.")
        with outermost_graph() as graph:
            if self._waits and graph is not None:
                setattr(graph, _MARK, True)
        self._device = tf.device(_CPU)
        self._device.__enter__()
        return ops

    def __exit__(self, *error: object) -> None:
        self._device.__exit__(*error)
