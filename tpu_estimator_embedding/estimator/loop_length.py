# SPDX-License-Identifier: Apache-2.0
"""How many steps a session run is: `iterations_per_loop` of them, as on a TPU."""

from typing import Any, NamedTuple

from tpu_estimator_embedding.estimator import steps_per_run
from tpu_estimator_embedding.estimator.upstream import parse_iterations_per_loop


class LoopLength(NamedTuple):
    """When a loop of steps ends; each limit that is set counts.

    Attributes:
        steps: how many steps it has at most; None means no limit.
        seconds: no step but the last starts later than this; None means no limit.
    """

    steps: int | None = None
    seconds: int | None = None


def of_training(iterations_per_loop: Any) -> LoopLength:
    """Returns the length of a loop of training, as `TPUConfig.iterations_per_loop` says.

    >>> of_training(100), of_training("2m")
    (LoopLength(steps=100, seconds=None), LoopLength(steps=None, seconds=120))
    """
    value, unit = parse_iterations_per_loop(iterations_per_loop)
    length = LoopLength(seconds=value) if unit == "seconds" else LoopLength(value)
    limits = [steps for steps in (length.steps, steps_per_run.limit()) if steps is not None]
    return length._replace(steps=min(limits, default=None))


def of_evaluation() -> LoopLength:
    """Returns the length of a loop of evaluation, which on a TPU has all steps."""
    return LoopLength(steps_per_run.limit())
