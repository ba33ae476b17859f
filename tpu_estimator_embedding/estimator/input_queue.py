# SPDX-License-Identifier: Apache-2.0
"""A queue of prepared steps: a thread fills it while the step before computes."""

from typing import Any

import tensorflow as tf
from tensorflow.python.util import deprecation

# One step waits in the queue while another is being prepared.
_CAPACITY = 1


class InputQueue:
    """Moves nested tensors from an input pipeline to the step that uses them.

    Attributes:
        runner: a `QueueRunner` whose thread fills the queue until the input ends. An
            exception in the input stops the session and is raised there.
    """

    def __init__(self, structure: Any):
        """Queues `structure`: any nest of tensors, sparse and ragged ones included."""
        self._structure = structure
        leaves = tf.nest.flatten(structure, expand_composites=True)
        self._components = [leaf for leaf in leaves if leaf is not None]
        self._queue = tf.queue.FIFOQueue(
            _CAPACITY, [component.dtype for component in self._components], name="input_queue")
        with deprecation.silence():  # input_fn may return plain tensors, which tf.data cannot run
            self.runner = tf.compat.v1.train.QueueRunner(
                self._queue, [self._queue.enqueue(self._components)])

    def dequeue(self) -> Any:
        """Returns the next step, with the static shapes of what was queued."""
        values = self._queue.dequeue()
        values = values if isinstance(values, list) else [values]
        for value, component in zip(values, self._components, strict=True):
            value.set_shape(component.shape)
        remaining = iter(values)
        leaves = tf.nest.flatten(self._structure, expand_composites=True)
        return tf.nest.pack_sequence_as(
            self._structure, [None if leaf is None else next(remaining) for leaf in leaves],
            expand_composites=True)
