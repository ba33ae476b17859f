# SPDX-License-Identifier: Apache-2.0
"""The length of a loop of steps, which is one run of the session."""

from typing import NamedTuple

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.upstream import parse_iterations_per_loop


class LoopLength(NamedTuple):
    """The limits of a loop of steps; it ends at the first one that is reached.

    Attributes:
        steps: the maximum number of steps; None means no limit.
        seconds: the loop ends with the first step that starts later; None means no limit.
    """

    steps: int | None = None
    seconds: int | None = None


def length_in_training(iterations_per_loop: int | str) -> LoopLength:
    """Returns the length of a loop of training, from `TPUConfig.iterations_per_loop`.

    >>> length_in_training(100), length_in_training("2m")
    (LoopLength(steps=100, seconds=None), LoopLength(steps=None, seconds=120))
    """
    value, unit = parse_iterations_per_loop(iterations_per_loop)
    length = LoopLength(seconds=value) if unit == "seconds" else LoopLength(value)
    limits = [steps for steps in (length.steps, settings.STEPS_PER_RUN.read()) if steps is not None]
    return length._replace(steps=min(limits, default=None))


def length_in_evaluation() -> LoopLength:
    """Returns the length of a loop of evaluation, which on a TPU has all steps."""
    return LoopLength(settings.STEPS_PER_RUN.read())
