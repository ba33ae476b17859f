# SPDX-License-Identifier: Apache-2.0
"""The length of a loop of steps, which is one run of the session."""

from typing import NamedTuple

from tpu_estimator_embedding.compat.upstream import parse_iterations_per_loop


class LoopLength(NamedTuple):
    """The limits of a loop of steps; it ends at the first one that is reached.

    Attributes:
        steps: the maximum number of steps; None means no limit.
        seconds: the loop ends with the first step that starts later; None means no limit.
    """

    steps: int | None = None
    seconds: int | None = None


def length_in_training(iterations_per_loop: int | str, steps_per_run: int | None) -> LoopLength:
    """Returns the length of a loop of training.

    Args:
        iterations_per_loop: see `TPUConfig`.
        steps_per_run: the most steps that a command line allows; None means any number.

    >>> length_in_training(100, 20), length_in_training("2m", None)
    (LoopLength(steps=20, seconds=None), LoopLength(steps=None, seconds=120))
    """
    value, unit = parse_iterations_per_loop(iterations_per_loop)
    length = LoopLength(seconds=value) if unit == "seconds" else LoopLength(value)
    limits = [steps for steps in (length.steps, steps_per_run) if steps is not None]
    return length._replace(steps=min(limits, default=None))
