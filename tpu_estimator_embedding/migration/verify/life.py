# SPDX-License-Identifier: Apache-2.0
"""The phases of a program's life, in the order in which the program runs them.

After its first training a program evaluates, predicts and trains again. The first call of each is
recorded; later ones are passed over.
"""

import pathlib

from tpu_estimator_embedding.migration.verify.recording import (
    RecordedResult,
    RecordingSettings,
    TrainedError,
    limited_steps,
)

TRAINING, EVALUATION, PREDICTION, AGAIN = (
    "training", "evaluation", "prediction", "second training")
_MOST_AGAIN = 5  # steps of a second training
_MOST_PASSED = 20  # calls that are not recorded


def after(phase: str) -> str:
    """Returns the name of the checkpoint with the values after a phase."""
    return f"after {phase}"


class Life:
    """The phases that a run has recorded.

    Attributes:
        phases: phase -> number of steps trained by then, in the order of the program.
    """

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        self._passed = 0

    def add(self, phase: str, step: int) -> None:
        """Notes a phase."""
        self.phases[phase] = step

    def pass_over(self) -> None:
        """Passes over a call of the program.

        Raises:
            TrainedError: every phase was recorded, or the program makes no other calls.
        """
        self._passed += 1
        if len(self.phases) == len((TRAINING, EVALUATION, PREDICTION, AGAIN)) or (
                self._passed > _MOST_PASSED):
            raise TrainedError


def steps_again(settings: RecordingSettings, steps: int, own: int | None) -> int:
    """Returns the number of steps of a second training; 0 means there is none.

    Args:
        settings: of the run. That of a migrated program trains as many as its reference.
        steps: of the first training.
        own: the steps that the program asks for.
    """
    if settings.reference:
        return len(RecordedResult.load(pathlib.Path(settings.reference)).again)
    return limited_steps(min(_MOST_AGAIN, steps), {"steps": own})
