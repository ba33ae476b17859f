# SPDX-License-Identifier: Apache-2.0
"""The files of a recorded run: its settings, its result, and the activations of every step."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpu_estimator_embedding.checkpoint.comparison import absolute_tolerance

BATCHES = "batches"  # directory: one file for each call of the input_fn
INITIAL = "initial"  # checkpoint: the program's own initial values
LOG = "log.txt"
RESULT = "run.json"
_ACTIVATIONS = "activations"  # directory: one file for each step
SETTINGS = "settings.json"

READ_AHEAD = 3  # batches that are read but not trained on
ESTIMATOR, TF2, KERAS3 = "estimator", "tf2", "keras3"


class TrainedError(BaseException):
    """Ends the program; its `except Exception` clauses do not catch it."""


def step_name(step: int) -> str:
    """Returns the name of the checkpoint that a run writes after a step."""
    return f"step-{step}"


def limited_steps(wanted: int, arguments: Mapping[str, Any]) -> int:
    """Returns the steps to train: no more than a call of `train` does in an empty model directory.

    >>> limited_steps(20, {"steps": None, "max_steps": 3}), limited_steps(20, {"steps": 40})
    (3, 20)
    """
    limits = [arguments.get(name) for name in ("steps", "max_steps")]
    return min([wanted, *(limit for limit in limits if limit is not None)])


@dataclasses.dataclass(frozen=True)
class RecordingSettings:
    """The settings of a program's run.

    Attributes:
        program: its file.
        arguments: its own arguments.
        directory: where the run writes everything.
        steps: number of steps to train.
        is_legacy: whether the program needs `install()`.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in it.
        reference: directory of the run whose initial values and batches this one uses; None means
            its own.
        names: variable of the legacy program -> that of a migrated one, where they differ.
        step_timeout: seconds after which a TF2 program is ended that has not ended a step; 0
            means no limit.
    """

    program: str
    arguments: tuple[str, ...]
    directory: str
    steps: int
    is_legacy: bool
    is_tf1: bool = False
    reference: str | None = None
    names: tuple[tuple[str, str], ...] = ()
    step_timeout: float = 0.0

    def save(self) -> pathlib.Path:
        """Writes the settings into the directory of the run; returns the file."""
        path = pathlib.Path(self.directory, SETTINGS)
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str) -> "RecordingSettings":
        """Reads what `save` wrote."""
        values: dict[str, Any] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return cls(**{**values, "arguments": tuple(values["arguments"]),
                      "names": tuple(map(tuple, values["names"]))})


@dataclasses.dataclass(frozen=True)
class RecordedResult:
    """The result of a run, in addition to its checkpoints.

    Attributes:
        losses: of every step; None if a program computes no visible loss.
        plan: path in the EmbeddingPlan -> value as text.
        inputs: for each call of the input_fn, the structure of its elements as text.
        digests: for each call of the input_fn, a digest of each batch.
        is_repeatable: whether a second reading of the input gave the same batches.
        is_seedless: whether a reading with another seed did, too.
        stage: ESTIMATOR, TF2 or KERAS3: the kind of training.
        tables: "table" or "table/slot" of the plan -> its name in a checkpoint.
        trainable: dense variables that are trained, in the order in which they were made.
        of_hooks: variables that hooks have made, after model_fn.
        draws: ops that draw random numbers in each step of an Estimator.
        num_replicas: that share a batch; the loss is that of one of them.
        steps: that the first call of train of an Estimator was to train; 0 of a TF2 program.
        again: losses of the steps of a second training.
        phases: name of a phase, and the number of steps trained by then, in order.
        evaluation: results of the first evaluation after training; None without one.
        notes: what was not compared: of a TF2 program, and steps that the program does not have.
        differences: initial values of a TF2 program that differ, and missing variables.
        failure: the error that ended a TF2 program after training; "" if none did.
    """

    losses: tuple[float | None, ...]
    plan: dict[str, str]
    inputs: tuple[str, ...]
    digests: tuple[tuple[str, ...], ...]
    is_repeatable: bool
    is_seedless: bool = True
    stage: str = ESTIMATOR
    tables: dict[str, str] = dataclasses.field(default_factory=dict)
    trainable: tuple[str, ...] = ()
    of_hooks: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    num_replicas: int = 1
    steps: int = 0
    again: tuple[float | None, ...] = ()
    phases: tuple[tuple[str, int], ...] = ()
    evaluation: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    failure: str = ""

    def save(self, directory: str) -> None:
        """Writes the result into the directory of the run."""
        pathlib.Path(directory, RESULT).write_text(
            json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, directory: pathlib.Path) -> "RecordedResult":
        """Reads what `save` wrote."""
        values: dict[str, Any] = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        values = {name: tuple(tuple(one) if isinstance(one, list) else one for one in value)
                  if isinstance(value, list) else value for name, value in values.items()}
        return cls(**values)


def save_activations(directory: pathlib.Path, step: int, values: Mapping[str, np.ndarray]) -> None:
    """Writes feature -> activations of a step."""
    path = directory / _ACTIVATIONS / f"{step}.npz"
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {f"feature {name}": value for name, value in values.items()}
    np.savez(path, **arrays)


def load_activations(directory: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Reads what `save_activations` wrote; nothing where there is no such file."""
    path = directory / _ACTIVATIONS / f"{step}.npz"
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return {name.removeprefix("feature "): arrays[name] for name in arrays}


def activation_differences(
        legacy: Mapping[str, np.ndarray], migrated: Mapping[str, np.ndarray],
        rtol: float, atol: float | None) -> dict[str, tuple[float, bool]]:
    """Returns feature -> the largest difference and whether all are within the tolerance.

    Activations `[n, dim]` and `[batch, length, dim]` of equal numbers compare. With several
    replicas the legacy run keeps those of the first one, the first rows of the batch.

    >>> activation_differences({"a": np.zeros([1, 2])}, {"a": np.ones([2, 2])}, 0.0, 0.5)
    {'a': (1.0, False)}
    """
    found = {}
    for name in sorted(legacy.keys() & migrated.keys()):
        a, b = legacy[name].astype(np.float64), migrated[name].astype(np.float64)
        if not a.size or a.shape[-1] != b.shape[-1] or b.size % a.size:
            continue
        b = b.reshape(-1)[:a.size].reshape(a.shape)
        tolerance = absolute_tolerance(rtol, [b]) if atol is None else atol
        found[name] = float(np.max(np.abs(a - b))), bool(
            np.all(np.abs(a - b) <= tolerance + rtol * np.abs(b)))
    return found
