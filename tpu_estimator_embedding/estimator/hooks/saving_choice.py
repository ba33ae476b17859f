# SPDX-License-Identifier: Apache-2.0
"""When a training saves: whether it goes on meanwhile, and whether it saves at its start.

`run --async-checkpoints` and `run --no-checkpoint-at-start` set environment variables. The
arguments of TPUEstimator override them.
"""

import os
from typing import NamedTuple

from tpu_estimator_embedding import checks

ASYNC_CHECKPOINTS = "TPU_ESTIMATOR_EMBEDDING_ASYNC_CHECKPOINTS"
CHECKPOINT_AT_START = "TPU_ESTIMATOR_EMBEDDING_CHECKPOINT_AT_START"


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
    return SavingChoice(
        _choice("async_checkpoints", async_checkpoints, ASYNC_CHECKPOINTS, "0"),
        _choice("checkpoint_at_start", checkpoint_at_start, CHECKPOINT_AT_START, "1"))


def _choice(name: str, given: bool | None, variable: str, default: str) -> bool:
    checks.check_one_of(name, (True, False, None), given)
    return (os.environ.get(variable) or default) != "0" if given is None else given
