# SPDX-License-Identifier: Apache-2.0
"""The results of the first evaluation and prediction after training, on the legacy batches."""

import dataclasses
import functools
import inspect
import pathlib
import pickle
from collections.abc import Callable, Iterable, Mapping
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
from tpu_estimator_embedding.migration.verify.life import EVALUATION, PREDICTION
from tpu_estimator_embedding.migration.verify.recording import BATCHES, RecordingSettings, step_name

_STEPS = 10  # of an evaluation or prediction, at most
_ROWS = "predictions.pickle"
_VERBS = {EVALUATION: ("evaluate", "evaluated"), PREDICTION: ("predict", "predicted")}

Results = dict[str, float]
Rows = list[Any]  # structures of arrays


@dataclasses.dataclass(frozen=True)
class TrainerPhase:
    """What an evaluation or a prediction of a migrated program gave.

    Attributes:
        results: of it; None if it failed, or if there was none to compare with.
        problem: why it failed.
        note: on which batches, if not on those of the legacy program.
    """

    results: Any = None
    problem: str = ""
    note: str = ""


def of_estimator(evaluate: Callable[..., Mapping[str, object]], arguments: Mapping[str, Any],
                 settings: RecordingSettings, step: int) -> Mapping[str, object]:
    """Evaluates the values after a step of a recorded run of a TPUEstimator.

    Args:
        evaluate: the estimator's method.
        arguments: with which the program calls it.
        settings: of the run.
        step: the last one.
    """
    steps = min(arguments["steps"] or _STEPS, _STEPS)
    recorded = RecordedInput(arguments["input_fn"], in_folder(settings, EVALUATION), steps)
    return evaluate(**{**arguments, "input_fn": recorded.input_fn, "steps": steps,
                       "checkpoint_path": str(pathlib.Path(settings.directory, step_name(step)))})


def predicted_by_estimator(predict: Callable[..., Iterable[Any]], arguments: Mapping[str, Any],
                           settings: RecordingSettings, step: int) -> Rows:
    """Predicts from the values after a step, as `of_estimator` evaluates; saves the rows."""
    recorded = RecordedInput(arguments["input_fn"], in_folder(settings, PREDICTION), _STEPS,
                             ends=True)
    rows = list(predict(**{**arguments, "input_fn": recorded.input_fn, "checkpoint_path": str(
        pathlib.Path(settings.directory, step_name(step)))}))
    save_rows(settings.directory, rows)
    return rows


def of_trainer(evaluate: Callable[..., Mapping[str, object]],
               input_fn: Callable[..., tf.data.Dataset],
               settings: RecordingSettings) -> TrainerPhase:
    """Evaluates the present values of a Trainer on the batches of the legacy program.

    A Trainer whose batches have another structure evaluates its own: it parses in the forward pass
    what the legacy program's input_fn returned, for example.

    Args:
        evaluate: the Trainer's method.
        input_fn: with which the program calls it.
        settings: of the run.
    """
    recorded = _recorded(settings, EVALUATION)
    if recorded is None:
        return TrainerPhase()
    return _of_phase(EVALUATION, recorded, input_fn, functools.partial(
        evaluate, steps=len(recorded.elements)))


def predicted_by_trainer(predict: Callable[..., Iterable[Any]],
                         input_fn: Callable[..., tf.data.Dataset],
                         settings: RecordingSettings) -> TrainerPhase:
    """Predicts from the present values, as `of_trainer` evaluates; saves the rows."""
    recorded = _recorded(settings, PREDICTION)
    if recorded is None:
        return TrainerPhase()
    found = _of_phase(PREDICTION, dataclasses.replace(recorded, ended=True), input_fn,
                      lambda replayed: list(predict(replayed)))
    if found.results is not None:
        save_rows(settings.directory, found.results)
    return found


def in_folder(settings: RecordingSettings, phase: str) -> RecordingSettings:
    """Returns the settings that record the input of a later phase."""
    folder = pathlib.Path(settings.directory, phase)
    folder.mkdir()
    return dataclasses.replace(
        settings, directory=str(folder),
        reference=settings.reference and str(pathlib.Path(settings.reference, phase)))


def save_rows(directory: str, rows: Rows) -> None:
    """Saves predictions: the samples, or the batches, of a program."""
    flat = [_by_path(tf.nest.map_structure(np.asarray, row)) for row in rows]
    pathlib.Path(directory, _ROWS).write_bytes(pickle.dumps(flat))


def load_rows(directory: pathlib.Path) -> list[dict[str, np.ndarray]] | None:
    """Reads what `save_rows` wrote; None where the program has not predicted."""
    path = directory / _ROWS
    return pickle.loads(path.read_bytes()) if path.exists() else None


def numbers(results: Mapping[str, Any]) -> Results:
    """Returns the results of an evaluation that are numbers."""
    return {name: float(value) for name, value in results.items()
            if np.ndim(value) == 0 and not isinstance(value, (str, bytes))}


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


def row_differences(legacy: list[dict[str, np.ndarray]], migrated: list[dict[str, np.ndarray]],
                    rtol: float, atol: float | None) -> tuple[str, ...]:
    """Returns a sentence for each prediction that differs, with the first sample where it does."""
    if len(legacy) != len(migrated):
        return (f"the legacy program predicts {len(legacy)} times, the migrated one "
                f"{len(migrated)}",)
    found: dict[str, str] = {}
    for number, (old, new) in enumerate(zip(legacy, migrated, strict=True)):
        for name in sorted(old.keys() | new.keys()):
            if name not in found and (text := _row_difference(
                    old.get(name), new.get(name), rtol, atol)):
                found[name] = f"{name or 'the prediction'} of sample {number}: {text}"
    return tuple(found.values())


def _row_difference(old: np.ndarray | None, new: np.ndarray | None, rtol: float,
                    atol: float | None) -> str:
    if old is None or new is None:
        return f"missing in the {'legacy' if old is None else 'migrated'} program"
    if old.shape != new.shape:
        return f"shape {list(old.shape)}, migrated {list(new.shape)}"
    if old.dtype.kind not in "fc" or new.dtype.kind not in "fc":
        return "" if np.array_equal(old, new) else f"{old}, migrated {new}"
    tolerance = absolute_tolerance(rtol, [new]) if atol is None and new.size else atol or 0.0
    places = np.argwhere(~np.isclose(old, new, rtol, tolerance, equal_nan=True))
    return "" if not len(places) else (
        f"{old[tuple(places[0])]:.9g}, migrated {new[tuple(places[0])]:.9g}")


def _by_path(row: Any) -> dict[str, np.ndarray]:
    """Returns path in a structure -> array."""
    if isinstance(row, Mapping):
        return {f"{name}/{path}".rstrip("/"): value for name, of in row.items()
                for path, value in _by_path(of).items()}
    if isinstance(row, (list, tuple)):
        return {f"{index}/{path}".rstrip("/"): value for index, of in enumerate(row)
                for path, value in _by_path(of).items()}
    return {"": row}


def _recorded(settings: RecordingSettings, phase: str) -> RecordedBatches | None:
    path = pathlib.Path(settings.reference or "", phase, BATCHES, "0.pickle")
    return RecordedBatches.load(path) if path.exists() else None


def _of_phase(phase: str, recorded: RecordedBatches, input_fn: Callable[..., tf.data.Dataset],
              run: Callable[[Callable[..., tf.data.Dataset]], Any]) -> TrainerPhase:
    """Runs a phase of a Trainer with an input_fn of recorded batches."""
    notes: list[str] = []
    accepted = inspect.signature(input_fn).parameters

    def replayed(params: object, mode: str) -> tf.data.Dataset:
        given = {"params": params, "mode": mode}
        own = input_fn(**{name: value for name, value in given.items() if name in accepted})
        if not recorded.fit(tf.nest.flatten(own.element_spec, expand_composites=True)):
            notes.append(f"the migrated program's batches of {phase} have another structure, so "
                         f"it {_VERBS[phase][1]} its own")
            return own.take(len(recorded.elements))
        return batches.play(recorded, Structure(own.element_spec, is_dataset=True))

    try:
        return TrainerPhase(run(replayed), note=" ".join(notes))
    except Exception as error:  # of the program, whatever it raises
        return TrainerPhase(problem=(
            f"the migrated program cannot {_VERBS[phase][0]} the legacy program's batches: "
            f"{type(error).__name__}: {error}"), note=" ".join(notes))
