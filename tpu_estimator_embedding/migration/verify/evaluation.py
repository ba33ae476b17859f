# SPDX-License-Identifier: Apache-2.0
"""The results of the first evaluation after training, on the batches of the legacy program."""

import dataclasses
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.comparison import absolute_tolerance
from tpu_estimator_embedding.migration.verify import batches
from tpu_estimator_embedding.migration.verify.batches import (
    RecordedBatches,
    RecordedInput,
    Structure,
)
from tpu_estimator_embedding.migration.verify.recording import BATCHES, RecordingSettings, step_name

_FOLDER = "evaluation"
_STEPS = 10  # of an evaluation, at most

Results = dict[str, float]


@dataclasses.dataclass(frozen=True)
class TrainerEvaluation:
    """What an evaluation of a Trainer gave.

    Attributes:
        results: of the evaluation; None if it failed, or if there was none to compare with.
        problem: why it failed.
        note: on which batches, if not on those of the legacy program.
    """

    results: Results | None = None
    problem: str = ""
    note: str = ""


def of_estimator(evaluate: Callable[..., Mapping[str, object]], arguments: Mapping[str, Any],
                 settings: RecordingSettings, step: int) -> Results:
    """Evaluates the values after the last step of a recorded run of a TPUEstimator.

    Args:
        evaluate: the estimator's method.
        arguments: with which the program calls it.
        settings: of the run.
        step: the last one.
    """
    directory = pathlib.Path(settings.directory)
    folder = directory / _FOLDER
    folder.mkdir()
    steps = min(arguments["steps"] or _STEPS, _STEPS)
    recorded = RecordedInput(arguments["input_fn"], dataclasses.replace(
        settings, directory=str(folder),
        reference=settings.reference and str(pathlib.Path(settings.reference, _FOLDER))), steps)
    return _numbers(evaluate(input_fn=recorded.input_fn, steps=steps,
                             checkpoint_path=str(directory / step_name(step))))


def of_trainer(evaluate: Callable[..., Mapping[str, object]],
               input_fn: Callable[..., tf.data.Dataset],
               settings: RecordingSettings) -> TrainerEvaluation:
    """Evaluates the present values of a Trainer on the batches of the legacy program.

    A Trainer whose batches have another structure evaluates its own: it parses in the forward pass
    what the legacy program's input_fn returned, for example.

    Args:
        evaluate: the Trainer's method.
        input_fn: with which the program calls it.
        settings: of the run.
    """
    path = pathlib.Path(settings.reference or "", _FOLDER, BATCHES, "0.pickle")
    if not path.exists():
        return TrainerEvaluation()
    note = ""
    recorded = RecordedBatches.load(path)
    accepted = inspect.signature(input_fn).parameters

    def replayed(params: object, mode: str) -> tf.data.Dataset:
        nonlocal note
        given = {"params": params, "mode": mode}
        own = input_fn(**{name: value for name, value in given.items() if name in accepted})
        if not recorded.fit(tf.nest.flatten(own.element_spec, expand_composites=True)):
            note = ("the migrated program's batches of evaluation have another structure, so it "
                    "evaluated its own")
            return own
        return batches.play(recorded, Structure(own.element_spec, is_dataset=True))

    try:
        results = _numbers(evaluate(replayed, steps=len(recorded.elements)))
    except Exception as error:  # of the program, whatever it raises
        return TrainerEvaluation(problem=(
            "the migrated program cannot evaluate the legacy program's batches: "
            f"{type(error).__name__}: {error}"), note=note)
    return TrainerEvaluation(results, note=note)


def differences(legacy: Mapping[str, float], migrated: Mapping[str, float], rtol: float,
                atol: float | None) -> tuple[str, ...]:
    """Returns a sentence for each result that differs, or that the migrated program lacks."""
    def agree(a: float, b: float) -> bool:
        given = absolute_tolerance(rtol, [np.array(b)]) if atol is None else atol
        return bool(np.isclose(a, b, rtol, given, equal_nan=True))

    return tuple(
        f"{name}: {value:.9g}, migrated {migrated.get(name, float('nan')):.9g}"
        for name, value in sorted(legacy.items())
        if name not in migrated or not agree(value, migrated[name]))


def _numbers(results: Mapping[str, Any]) -> Results:
    return {name: float(value) for name, value in results.items()
            if np.ndim(value) == 0 and not isinstance(value, (str, bytes))}
