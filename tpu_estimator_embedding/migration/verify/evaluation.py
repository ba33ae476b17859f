# SPDX-License-Identifier: Apache-2.0
"""The results of the first evaluation after training, on the batches of the legacy program."""

import dataclasses
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.migration.verify import batches
from tpu_estimator_embedding.migration.verify.batches import (
    RecordedBatches,
    RecordedInput,
    Structure,
)
from tpu_estimator_embedding.migration.verify.recording import BATCHES, RecordingSettings, step_name

_FOLDER = "evaluation"
_STEPS = 10  # of an evaluation, at most
_FLOAT32 = 1e-6  # relative: the mean of losses is of float32 in the Estimator

Results = dict[str, float]


def of_estimator(evaluate: Callable[..., Any], arguments: Mapping[str, Any],
                 settings: RecordingSettings) -> Results:
    """Evaluates the values after the last step of a recorded run of a TPUEstimator.

    Args:
        evaluate: the estimator's method.
        arguments: with which the program calls it.
        settings: of the run.
    """
    directory = pathlib.Path(settings.directory)
    folder = directory / _FOLDER
    folder.mkdir()
    steps = min(arguments["steps"] or _STEPS, _STEPS)
    recorded = RecordedInput(arguments["input_fn"], dataclasses.replace(
        settings, directory=str(folder),
        reference=settings.reference and str(pathlib.Path(settings.reference, _FOLDER))), steps)
    return _numbers(evaluate(input_fn=recorded.input_fn, steps=steps,
                             checkpoint_path=str(directory / step_name(settings.steps))))


def of_trainer(evaluate: Callable[..., Any], input_fn: Callable[..., Any],
               settings: RecordingSettings) -> Results | str:
    """Evaluates the present values of a Trainer, or returns how its evaluation failed.

    Args:
        evaluate: the Trainer's method.
        input_fn: with which the program calls it.
        settings: of the run.
    """
    path = pathlib.Path(settings.reference or "", _FOLDER, BATCHES, "0.pickle")
    if not path.exists():
        return {}
    recorded = RecordedBatches.load(path)
    accepted = inspect.signature(input_fn).parameters

    def replayed(params: Any, mode: Any) -> tf.data.Dataset:
        given = {"params": params, "mode": mode}
        own = input_fn(**{name: value for name, value in given.items() if name in accepted})
        if not recorded.fit(tf.nest.flatten(own.element_spec, expand_composites=True)):
            return own  # as in training: it parses what the legacy program's input_fn returned
        return batches.play(recorded, Structure(own.element_spec, is_dataset=True))

    try:
        return _numbers(evaluate(replayed, steps=len(recorded.elements)))
    except (TypeError, ValueError, tf.errors.OpError) as error:
        return f"the migrated program cannot evaluate the legacy program's batches: {error}"


def differences(legacy: Mapping[str, float], migrated: Mapping[str, float], rtol: float,
                atol: float, *, is_tf2: bool) -> tuple[str, ...]:
    """Returns a sentence for each result that differs, or that the migrated program lacks."""
    rtol = max(rtol, _FLOAT32) if is_tf2 else rtol
    return tuple(
        f"{name}: {value:.9g}, migrated {migrated.get(name, float('nan')):.9g}"
        for name, value in sorted(legacy.items())
        if name not in migrated or not np.isclose(value, migrated[name], rtol, atol,
                                                  equal_nan=True))


def _numbers(results: Mapping[str, Any]) -> Results:
    return {name: float(value) for name, value in results.items()
            if np.ndim(value) == 0 and not isinstance(value, (str, bytes))}
