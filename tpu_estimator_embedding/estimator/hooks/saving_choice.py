# SPDX-License-Identifier: Apache-2.0
"""When a training saves: whether it continues during a save, and whether it saves at its start.

The arguments of TPUEstimator override the settings.
"""

from typing import NamedTuple

from tpu_estimator_embedding import checks, settings


class SavingChoice(NamedTuple):
    """How a training saves.

    Attributes:
        is_asynchronous: whether steps go on while a checkpoint is written.
        at_start: whether it saves when its session begins.
    """

    is_asynchronous: bool
    at_start: bool

    @property
    def is_tensorflows(self) -> bool:
        """Whether TensorFlow's own hook saves so."""
        return self.at_start and not self.is_asynchronous


def chosen(async_checkpoints: bool | None, checkpoint_at_start: bool | None) -> SavingChoice:
    """Returns what a program gave; the defaults of its command line if it gave nothing.

    Raises:
        ValueError: if something else was given.
    """
    checks.check_one_of("async_checkpoints", (True, False, None), async_checkpoints)
    checks.check_one_of("checkpoint_at_start", (True, False, None), checkpoint_at_start)
    return SavingChoice(
        settings.ASYNC_CHECKPOINTS.read() if async_checkpoints is None else async_checkpoints,
        settings.CHECKPOINT_AT_START.read() if checkpoint_at_start is None
        else checkpoint_at_start)
