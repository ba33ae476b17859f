# SPDX-License-Identifier: Apache-2.0
"""The batches between enqueue, dequeue and apply_gradients of one function.

Workers of a cluster run the same function at the same time, so a buffer that all of them share
would mix their batches. The three calls are in one function instead, and a batch is tensors of
its graph. Errors in their order are raised where the function is traced.
"""

import collections
import dataclasses
import weakref

import tensorflow as tf

from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.mid_level.step.waiting_batches import (
    ALWAYS,
    CAPACITY,
    EMPTY,
    FULL,
    MAYBE,
    NEVER,
    NO_GRADIENTS,
    NOT_TRAINING,
    WaitingBatch,
)

_IN_ONE_FUNCTION = (" Under a ParameterServerStrategy the three calls for a batch must be in one "
                    "function, which the coordinator schedules.")


@dataclasses.dataclass
class _Batches:
    enqueued: collections.deque[tuple[StepIds, int]] = dataclasses.field(
        default_factory=collections.deque)
    looked_up: tuple[StepIds, int] | None = None


class FunctionBatches:
    """Does what `WaitingBatches` does, within each function by itself.

    What is called eagerly, by the coordinator's own program, counts as one more function.
    """

    def __init__(self) -> None:
        self._of_graphs: weakref.WeakKeyDictionary[tf.Graph, _Batches] = (
            weakref.WeakKeyDictionary())
        self._eager = _Batches()

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch; arguments and errors as of `WaitingBatches.enqueue`."""
        here = self._here()
        self._drop_and_complain(here)
        if len(here.enqueued) >= CAPACITY:
            raise RuntimeError(FULL)
        here.enqueued.append((batch, (MAYBE if is_optional else ALWAYS) if training else NEVER))

    def dequeue(self) -> WaitingBatch:
        """Returns the first batch; errors as of `WaitingBatches.dequeue`."""
        here = self._here()
        self._drop_and_complain(here)
        if not here.enqueued:
            raise RuntimeError(EMPTY + _IN_ONE_FUNCTION)
        ids, use = here.enqueued.popleft()
        return WaitingBatch(ids, use, (ids, use))

    def hold(self, batch: WaitingBatch) -> None:
        """Keeps a batch that was looked up until its gradients come, if any."""
        if batch.use != NEVER:
            self._here().looked_up = batch.packed

    def release(self) -> StepIds:
        """Returns the batch whose gradients have come; errors as of `WaitingBatches.release`."""
        here = self._here()
        looked_up, here.looked_up = here.looked_up, None
        if looked_up is None:
            raise RuntimeError(NOT_TRAINING + _IN_ONE_FUNCTION)
        return looked_up[0]

    def _here(self) -> _Batches:
        if tf.executing_eagerly():
            return self._eager
        return self._of_graphs.setdefault(tf.compat.v1.get_default_graph(), _Batches())

    @staticmethod
    def _drop_and_complain(here: _Batches) -> None:
        looked_up, here.looked_up = here.looked_up, None
        if looked_up is not None and looked_up[1] == ALWAYS:
            raise RuntimeError(NO_GRADIENTS)
