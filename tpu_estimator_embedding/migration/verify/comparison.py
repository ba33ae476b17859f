# SPDX-License-Identifier: Apache-2.0
"""Compares a legacy program with its migrated one, step by step."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import tpu_estimator_embedding
from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.report import describe_comparison, format_table
from tpu_estimator_embedding.migration.verify import plan_values, recording, steps
from tpu_estimator_embedding.migration.verify.recording import (
    ESTIMATOR,
    INITIAL,
    TF2,
    RecordedResult,
    RecordingSettings,
)
from tpu_estimator_embedding.migration.verify.steps import Step

_MODULE = f"{tpu_estimator_embedding.__name__}.migration.verify.recorded_run"
_LAST_LINES = 15


class FailedRunError(RuntimeError):
    """A program did not train the requested number of steps."""


def record(program: RecordingSettings) -> RecordedResult:
    """Runs a program; its own output goes to `log.txt` in the directory of the run.

    Raises:
        FileExistsError: the directory has something in it already.
        FailedRunError: the program failed, with the last lines of its output.
    """
    directory = pathlib.Path(program.directory)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} must be an empty directory: it is to hold a run.")
    home = pathlib.Path(tpu_estimator_embedding.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")]))
    log = directory / recording.LOG
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, str(program.save())], check=False, stdout=output,
            stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        raise FailedRunError("\n".join([
            f"{program.program} failed with exit status {done.returncode}:", *last]))
    return RecordedResult.load(directory)


StrPath = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `compare`.

    Attributes:
        configuration: differences of the EmbeddingPlans: learning rates, initializers, ...; for a
            TF2 program also initial values that an equal initializer cannot produce, and missing
            variables.
        inputs: differences of the batches that the programs read by themselves.
        evaluation: differences of the results of an evaluation after the last step.
        notes: what could not be compared.
        steps: the differences after every step, from 0; from 1 for a TF2 program, which draws
            different random numbers.
        results: names of the results of an evaluation that were compared.
    """

    configuration: tuple[str, ...]
    inputs: tuple[str, ...]
    evaluation: tuple[str, ...]
    notes: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether nothing differs."""
        return not (self.configuration or self.inputs or self.evaluation) and self.first is None

    @property
    def first(self) -> Step | None:
        """The first step that differs, or None."""
        return next((step for step in self.steps if not step.agrees), None)

    def to_text(self) -> str:
        """Returns the report that the command prints."""
        lines = [f"configuration differs: {one}" for one in self.configuration]
        lines += [f"input differs: {one}" for one in self.inputs]
        lines += [f"evaluation differs: {one}" for one in self.evaluation]
        lines += [f"note: {note}" for note in self.notes]
        lines.append(format_table(
            ["step", "legacy loss", "migrated loss", "largest difference", "of"],
            list(map(_row, self.steps))))
        if self.first:
            lines += ["", f"The first difference is {_place(self.first)}:", _details(self.first)]
        if self.results:
            lines.append(f"Compared after an evaluation: {', '.join(self.results)}.")
        last = self.steps[-1].step if self.steps else 0
        lines.append(f"They agree in all of {last} steps." if self.agree else "They differ.")
        return "\n".join(lines)


def compare(legacy: StrPath, migrated: StrPath, arguments: Sequence[str] = (), *,
            steps: int = 20, rtol: float = 0.0, atol: float | None = None, is_tf1: bool = False,
            directory: StrPath | None = None,
            names: Mapping[str, str] | None = None,
            migrated_arguments: Sequence[str] | None = None,
            step_timeout: float = 600.0) -> Verification:
    """Runs a legacy program and its migration to any stage, and compares every step.

    Each runs in a separate process until its first TPUEstimator with tables, or a TF2 program's
    training loop or `Model.fit`, has trained `steps` steps; what follows the first evaluation after
    that is not run.
    The migrated program starts from the initial values of the legacy program and gets the batches
    of the legacy input_fn. Its own initial values and batches are compared, too. Where both go on
    to evaluate, with a TPUEstimator or a Trainer, at most 10 batches of the first evaluation are
    compared. Checkpoint listeners are not run.

    A TF2 program takes one batch from a tf.data.Dataset for each step. Its first step is run one
    extra time, so that all its variables exist before they are set.

    If the first call of `train` of the legacy program has fewer steps than `steps`, those are
    compared. A TF2 program takes the steps that its first call lacks from the next one.

    A program of the stage `keras3` runs on the backend that KERAS_BACKEND names. It restores what
    `checkpoint.convert` makes of the legacy program's initial values, and what it saves after each
    step is converted back. Activations are not compared.

    Args:
        legacy: the program, as `tpu-estimator-embedding run` runs it.
        migrated: the migrated program.
        arguments: of both programs.
        steps: number of steps, at least 1.
        rtol, atol: values agree if `|a - b| ≤ atol + rtol |b|`; 0 compares bit for bit. None
            means `rtol` times the root mean square of the values of a tensor, so that it does not
            matter which of them is near 0, but at least a thousandth of `rtol`, so that denormal
            numbers of slots do not count.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in the legacy program.
        directory: where to save both runs, with a checkpoint of every step; None saves nothing.
        names: dense variable in a checkpoint of the legacy program -> name of the variable in a
            TF2 program, or its path in a Keras 3 program, where they differ.
        migrated_arguments: of the migrated program, where they differ.
        step_timeout: seconds that one step of a TF2 program may take; 0 means no limit.

    Raises:
        ValueError: `steps` or a tolerance is out of range.
        FileNotFoundError: there is no such program.
        FileExistsError: `directory` holds a run already.
        FailedRunError: a program fails, has no TPUEstimator with tables that trains, or has not
            ended a step within `step_timeout`.
    """
    checks.check_positive_int("steps", steps)
    checks.check(rtol >= 0, "rtol", "at least 0", rtol)
    checks.check((atol or 0) >= 0, "atol", "at least 0", atol)
    checks.check(step_timeout >= 0, "step_timeout", "at least 0 seconds", step_timeout)
    for program in (legacy, migrated):
        if not pathlib.Path(program).is_file():
            raise FileNotFoundError(f"There is no program {os.fspath(program)!r}.")
    with tempfile.TemporaryDirectory(prefix="verify-") as temporary:
        root = pathlib.Path(directory or temporary).absolute()
        old, new = root / "legacy", root / "migrated"
        a = record(RecordingSettings(os.fspath(legacy), tuple(arguments), str(old), steps,
                                     is_legacy=True, is_tf1=is_tf1))
        own = arguments if migrated_arguments is None else migrated_arguments
        b = record(RecordingSettings(os.fspath(migrated), tuple(own), str(new), a.steps,
                                     is_legacy=False, reference=str(old),
                                     names=tuple((names or {}).items()),
                                     step_timeout=step_timeout))
        return compare_runs(old, a, new, b, rtol=rtol, atol=atol)


def compare_runs(old: pathlib.Path, a: RecordedResult, new: pathlib.Path, b: RecordedResult, *,
                 rtol: float, atol: float | None) -> Verification:
    """Compares two recorded runs, by their directories and results."""
    # Not above: `verify --help` does not need TensorFlow.
    from tpu_estimator_embedding.migration.verify import evaluation
    is_other = b.stage != ESTIMATOR  # which restores no checkpoint of a TPUEstimator by itself
    compared = [] if is_other else [
        steps.compare_values(0, old / INITIAL, new / INITIAL, rtol, atol)]
    compared += [steps.compare_step(
        step, old, new, (None if is_other and a.num_replicas > 1 else losses[0], losses[1]),
        rtol, atol,
        excused=lambda name: is_other)  # those of a later stage are in its `differences`
        for step, losses in enumerate(zip(a.losses, b.losses, strict=False), start=1)]
    inputs, notes = _compare_inputs(a, b)
    if is_other and a.num_replicas > 1:
        notes = (*notes, f"the legacy program reports the loss of one of {a.num_replicas} "
                 "replicas, so losses were not compared")
    plans = plan_values.of_tables(a.plan, b.plan) if is_other else (a.plan, b.plan)
    evaluated: tuple[str, ...] = ()
    if a.evaluation and b.evaluation is not None:
        evaluated = evaluation.differences(a.evaluation, b.evaluation, rtol, atol)
    elif a.evaluation and b.failure:
        evaluated = (f"the migrated program ended before its evaluation: {b.failure}",)
    elif a.evaluation:
        notes = (*notes, "no evaluation of the migrated program was compared")
    if any(a.losses) and b.losses and set(b.losses) == {None}:
        notes = (*notes, "verify saw no loss of the migrated program, so losses were not compared")
    return Verification((*_compare_plans(*plans), *b.differences), inputs, evaluated,
                        (*a.notes, *notes, *(note for note in b.notes if note not in a.notes)),
                        tuple(compared),
                        tuple(sorted(a.evaluation or ())) if b.evaluation is not None else ())


def _compare_plans(a: dict[str, str], b: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{path}: {a.get(path, 'missing')}, migrated {b.get(path, 'missing')}"
                 for path in sorted(a.keys() | b.keys())
                 if not _are_equal(a.get(path, ""), b.get(path, "")))


def _are_equal(a: str, b: str) -> bool:
    """Whether two texts are the same, or denote the same number."""
    try:
        return a == b or float(a) == float(b)
    except ValueError:
        return False


def _compare_inputs(a: RecordedResult,
                    b: RecordedResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not b.losses and b.differences:  # which say why it could not train
        return (), ()
    if len(a.losses) != len(b.losses):
        return (f"the legacy program trained {len(a.losses)} steps, the migrated one "
                f"{len(b.losses)}",), ()
    if a.inputs != b.inputs:
        return (f"the legacy input_fn gives {list(a.inputs)}, the migrated one "
                f"{list(b.inputs)}",), ()
    if b.stage == TF2 and not a.is_seedless:
        return (), ("the legacy input_fn gives batches that depend on the seed, of which TF2 makes "
                    "other random numbers, so the values of the migrated one were not compared "
                    "with them",)
    if not a.is_repeatable:
        return (), ("the legacy input_fn gives other batches each time it is read, so the values "
                    "of the migrated one were not compared with them",)
    for call, (old, new) in enumerate(zip(a.digests, b.digests, strict=True)):
        for batch, (left, right) in enumerate(zip(old, new, strict=False)):
            if left != right:
                return (f"batch {batch} of call {call} of the input_fn has other values",), ()
        if len(old) != len(new):
            return (f"call {call} of the input_fn gives {len(old)} batches, in the migrated "
                    f"program {len(new)}",), ()
    return (), ()


def _row(step: Step) -> list[str]:
    losses = ["-" if loss is None else f"{loss:.9g}" for loss in step.losses or (None, None)]
    name, difference = step.worst
    return [str(step.step), *losses, "-" if step.problem else f"{difference:.4g}",
            "not comparable" if step.problem else name]


def _place(step: Step) -> str:
    return f"after step {step.step}" if step.step else "in the initial values of the programs"


def _details(step: Step) -> str:
    if step.checkpoint is None:
        return step.problem
    lines = [] if step.loss_agrees or step.losses is None else [
        "loss: {:.9g}, migrated {:.9g}".format(*step.losses)]
    lines += [f"activations of {name}: {difference:.4g}" for name, (difference, agrees)
             in step.activations.items() if not agrees]
    return "\n".join([*lines, describe_comparison(step.checkpoint)])
