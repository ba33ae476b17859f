# SPDX-License-Identifier: Apache-2.0
"""Compares a legacy program with its migrated one, step by step."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tpu_estimator_embedding
from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.report import describe_comparison, format_table
from tpu_estimator_embedding.migration.stages import STAGES
from tpu_estimator_embedding.migration.verify import life, plan_values, recording, steps
from tpu_estimator_embedding.migration.verify.recording import (
    ESTIMATOR,
    INITIAL,
    KERAS3,
    TF2,
    RecordedResult,
    RecordingSettings,
)
from tpu_estimator_embedding.migration.verify.steps import Step

_MODULE = f"{tpu_estimator_embedding.__name__}.migration.verify.recorded_run"
_LAST_LINES = 15
_DRAWS_SHOWN = 5
# Stage of `migrate` -> kind of training that its programs have.
_KINDS = dict(zip(STAGES, (ESTIMATOR, TF2, TF2, KERAS3), strict=True))
_CONFIG_FILE = "embedding_config.py"


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
        raise FileExistsError(f"{directory} must be an empty directory: it will hold a run.")
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
    if not (directory / recording.RESULT).exists():  # as after os._exit, which runs no code of ours
        raise FailedRunError(
            f"{program.program} ended its process before a TPUEstimator with an "
            "embedding_config_spec had trained, or at once with os._exit, which loses what was "
            "recorded: let it return, or call sys.exit.")
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
        prediction: differences of the predictions after training.
        predicted: names of the predictions that were compared; "" is one without a name.
        after: phase -> differences of all variables after it, from what the steps so far have
            trained.
        again: number of steps of a second training; the last ones of `steps`.
        not_compared: phases that were not compared, with the reason.
        stages: of the legacy and of the migrated program.
        draws: ops of the legacy program that draw random numbers in each step. A program of a
            later stage draws others.
    """

    configuration: tuple[str, ...]
    inputs: tuple[str, ...]
    evaluation: tuple[str, ...]
    notes: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...] = ()
    prediction: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    after: dict[str, Step] = dataclasses.field(default_factory=dict)
    again: int = 0
    not_compared: tuple[str, ...] = ()
    stages: tuple[str, str] = (ESTIMATOR, ESTIMATOR)
    draws: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether nothing differs."""
        return not (self.configuration or self.inputs or self.evaluation or self.prediction
                    ) and self.first is None and all(one.agrees for one in self.after.values())

    @property
    def first(self) -> Step | None:
        """The first step that differs, or None."""
        return next((step for step in self.steps if not step.agrees), None)

    def to_text(self) -> str:
        """Returns the report that the command prints."""
        lines = [f"configuration differs: {one}" for one in self.configuration]
        lines += [f"input differs: {one}" for one in self.inputs]
        lines += [f"evaluation differs: {one}" for one in self.evaluation]
        lines += [f"prediction differs: {one}" for one in self.prediction]
        lines += [f"note: {note}" for note in self.notes]
        lines.append(format_table(
            ["step", "legacy loss", "migrated loss", "largest difference", "of"], self._rows()))
        if self.first:
            lines += ["", f"The first difference is {self._place(self.first)}:",
                      _details(self.first)]
        lines += [f"Variables differ after the {phase}:\n{_details(step)}"
                  for phase, step in self.after.items() if not step.agrees]
        lines += [f"Compared: {'; '.join(self._compared())}."]
        lines += [f"Not compared: {'; '.join(self.not_compared)}."] * bool(self.not_compared)
        if self.stages == (ESTIMATOR, ESTIMATOR):
            lines.append("Both programs train a TPUEstimator: the migrated one is of the stage "
                         "imports.")
        if self.draws and self.first and self.stages[1] != ESTIMATOR:
            lines.append(_about_draws(self.draws))
        last = self.steps[-1].step if self.steps else 0
        of_second = f" ({last - self.again} + {self.again} of the second training)"
        lines.append(f"They agree in all {last} steps{of_second if self.again else ''}."
                     if self.agree else f"They differ: {', '.join(self._different())}.")
        return "\n".join(lines)

    def _different(self) -> list[str]:
        """Returns what differs, each named as in the lines above the verdict."""
        parts = {"configuration": self.configuration, "input": self.inputs,
                 "evaluation": self.evaluation, "prediction": self.prediction}
        found = [name for name, differences in parts.items() if differences]
        if self.first:
            found.append(self._place(self.first))
        return found + [f"variables after {phase}" for phase, step in self.after.items()
                        if not step.agrees]

    def _rows(self) -> list[list[str]]:
        """Returns the rows of the steps, of equal ones only the first and the last."""
        rows = list(map(_row, self.steps))
        if self.agree and not any(any(step.largest().values()) for step in self.steps):
            rows[1:-1] = [["...", "", "", "0", "-"]] * (len(rows) > 2)
        return rows

    def _compared(self) -> list[str]:
        """Returns the phases that were compared."""
        last = self.steps[-1].step if self.steps else 0
        found = [f"{last - self.again} steps of training"]
        if self.results:
            found.append(f"evaluation ({', '.join(self.results)})")
        if self.predicted:
            found.append(f"prediction ({', '.join(filter(None, self.predicted)) or 'one value'})")
        if self.again:
            found.append(f"{self.again} steps of a second training")
        if self.after:
            found.append(f"all variables after {', '.join(self.after)}")
        return found

    def _place(self, step: Step) -> str:
        if not step.step:
            return "in the initial values of the programs"
        last = self.steps[-1].step - self.again
        of_second = f" (step {step.step - last} of the second training)" if step.step > last else ""
        return f"after step {step.step}{of_second}"


def compare(legacy: StrPath, migrated: StrPath, arguments: Sequence[str] = (), *,
            steps: int = 20, rtol: float = 0.0, atol: float | None = None, is_tf1: bool = False,
            directory: StrPath | None = None,
            names: Mapping[str, str] | None = None,
            migrated_arguments: Sequence[str] | None = None,
            step_timeout: float = 600.0, to: str | None = None) -> Verification:
    """Runs a legacy program and its migration to any stage, and compares them in every phase.

    Each runs in a separate process: its first TPUEstimator with tables, or a TF2 program's training
    loop or `Model.fit`, trains `steps` steps. The migrated program starts from the initial values
    of the legacy program and gets the batches of the legacy input_fn. Its own initial values and
    batches are compared, too. Checkpoint listeners are not run.

    Programs with a TPUEstimator, a Trainer or a KerasTraining are followed further: at most 10
    batches of the first evaluation and of the first prediction after that are compared, and at most
    5 steps of the second training, for which `train` is called once more if the program does not
    do so. All variables are compared after each of these phases. Other calls are not run.

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
        to: stage that the migrated program must be of, as in `migrate --to`; None means any, but
            a program with a TPUEstimator beside an embedding_config.py, which is of a later one.

    Raises:
        ValueError: `steps` or a tolerance is out of range.
        FileNotFoundError: there is no such program.
        FileExistsError: `directory` holds a run already.
        FailedRunError: a program fails, has no TPUEstimator with tables that trains, has not
            ended a step within `step_timeout`, is of another stage, or trains too few steps.
    """
    check_arguments(legacy, migrated, steps=steps, rtol=rtol, atol=atol, step_timeout=step_timeout,
                    to=to)
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
        _check_stage(pathlib.Path(migrated), b.stage, to)
        return compare_runs(old, a, new, b, rtol=rtol, atol=atol)


def check_arguments(legacy: StrPath, migrated: StrPath, *, steps: int, rtol: float,
                    atol: float | None, step_timeout: float, to: str | None) -> None:
    """Raises an error for arguments of `compare` with which nothing can be run."""
    checks.check_positive_int("steps", steps)
    checks.check(rtol >= 0, "rtol", "at least 0", rtol)
    checks.check((atol or 0) >= 0, "atol", "at least 0", atol)
    checks.check(step_timeout >= 0, "step_timeout", "at least 0 seconds", step_timeout)
    if to is not None:
        checks.check(to in _KINDS, "to", f"one of {', '.join(_KINDS)}", to)
    for program in (legacy, migrated):
        if not pathlib.Path(program).is_file():
            raise FileNotFoundError(f"There is no program {os.fspath(program)!r}.")


def _check_stage(migrated: pathlib.Path, kind: str, to: str | None) -> None:
    """Raises FailedRunError unless a program has the kind of training of its stage."""
    is_left = kind == ESTIMATOR and to is None and (
        migrated.absolute().parent / _CONFIG_FILE).exists()
    if is_left or to is not None and kind != _KINDS[to]:
        trains = {ESTIMATOR: "a TPUEstimator, which is the stage imports",
                  TF2: "with TensorFlow 2", KERAS3: "a KerasTraining, which is the stage keras3"}
        expected = f"`--to {to}`" if to else f"{_CONFIG_FILE} beside it, a file of later stages"
        raise FailedRunError(
            f"{migrated} was not compared: it trains {trains[kind]}, which does not match "
            f"{expected}. The report of `migrate` says why. To compare the program as it is, give "
            f"--to {next(one for one in _KINDS if _KINDS[one] == kind)}.")


def compare_runs(old: pathlib.Path, a: RecordedResult, new: pathlib.Path, b: RecordedResult, *,
                 rtol: float, atol: float | None) -> Verification:
    """Compares two recorded runs, by their directories and results."""
    is_other = b.stage != ESTIMATOR  # which restores no checkpoint of a TPUEstimator by itself
    inputs, notes = _compare_inputs(a, b)
    if is_other and a.num_replicas > 1:
        notes = (*notes, f"the legacy program reports the loss of one of {a.num_replicas} "
                 "replicas, so losses were not compared")
    if any(a.losses) and b.losses and set(b.losses) == {None}:
        notes = (*notes, "verify saw no loss of the migrated program, so losses were not compared")
    plans = plan_values.of_tables(a.plan, b.plan) if is_other else (a.plan, b.plan)
    evaluated = _compare_evaluation(a, b, rtol, atol)
    predicted = _compare_predictions(old, new, b, rtol, atol)
    found = Verification(
        configuration=(*_compare_plans(*plans), *b.differences, *_other_order(a, b)),
        inputs=inputs, evaluation=evaluated.differences,
        notes=(*a.notes, *notes, *(note for note in b.notes if note not in a.notes)),
        steps=tuple(_compare_steps(old, a, new, b, rtol, atol)),
        results=evaluated.names, prediction=predicted.differences, predicted=predicted.names,
        after=_compare_after(old, new, b, rtol, atol), again=min(len(a.again), len(b.again)),
        not_compared=_not_compared(a, b), stages=(a.stage, b.stage),
        draws=a.draws)
    if len(b.losses) < len(a.losses) and b.losses and found.agree:
        raise FailedRunError(_too_few_steps(a, b))
    return found


def _compare_steps(old: pathlib.Path, a: RecordedResult, new: pathlib.Path, b: RecordedResult,
                   rtol: float, atol: float | None) -> list[Step]:
    """Compares the steps that both programs have; step 0 of an Estimator only."""
    is_other = b.stage != ESTIMATOR
    compared = [] if is_other else [
        steps.compare_values(0, old / INITIAL, new / INITIAL, rtol, atol)]
    is_first_whole = len(a.losses) == len(b.losses)
    losses = zip((*a.losses, *a.again) if is_first_whole else a.losses,
                 (*b.losses, *b.again) if is_first_whole else b.losses, strict=False)
    return compared + [steps.compare_step(
        step, old, new, (None if is_other and a.num_replicas > 1 else loss[0], loss[1]),
        rtol, atol,
        excused=lambda name: is_other)  # those of a later stage are in its `differences`
        for step, loss in enumerate(losses, start=1)]


class _Outcome(NamedTuple):
    """How the outcomes of a phase differ, and the names of those that were compared."""

    differences: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def _compare_evaluation(a: RecordedResult, b: RecordedResult, rtol: float,
                        atol: float | None) -> _Outcome:
    # Not above: `verify --help` does not need TensorFlow.
    from tpu_estimator_embedding.migration.verify import evaluation
    if not a.evaluation:
        return _Outcome()
    if b.evaluation is not None:
        return _Outcome(evaluation.differences(a.evaluation, b.evaluation, rtol, atol),
                        tuple(sorted(a.evaluation)))
    return _Outcome((f"the migrated program ended before its evaluation: {b.failure}",)
                    if b.failure else ())


def _compare_predictions(old: pathlib.Path, new: pathlib.Path, b: RecordedResult, rtol: float,
                         atol: float | None) -> _Outcome:
    from tpu_estimator_embedding.migration.verify import evaluation  # as above
    legacy, migrated = (evaluation.load_rows(one) for one in (old, new))
    if legacy is None:
        return _Outcome()
    if migrated is not None:
        return _Outcome(evaluation.row_differences(legacy, migrated, rtol, atol),
                        tuple(sorted(legacy[0])) if legacy else ())
    return _Outcome((f"the migrated program ended before its prediction: {b.failure}",)
                    if b.failure else ())


def _compare_after(old: pathlib.Path, new: pathlib.Path, b: RecordedResult, rtol: float,
                   atol: float | None) -> dict[str, Step]:
    """Compares all variables after each phase of a TF2 program; those of a session are gone."""
    return {phase: steps.compare_values(
        step, old / recording.step_name(step), new / life.after(phase), rtol, atol,
        excused=lambda name: True)
        for phase, step in b.phases
        if (new / f"{life.after(phase)}.index").exists()
        and (old / f"{recording.step_name(step)}.index").exists()}


def _other_order(a: RecordedResult, b: RecordedResult) -> tuple[str, ...]:
    """Returns the phases that follow on other numbers of steps."""
    own = dict(b.phases)
    return tuple(f"{phase} after step {step}, in the migrated program after {own[phase]}"
                 for phase, step in a.phases
                 if phase in (life.EVALUATION, life.PREDICTION) and own.get(phase, step) != step)


def _not_compared(a: RecordedResult, b: RecordedResult) -> tuple[str, ...]:
    """Returns the phases that one of the programs does not have."""
    found = []
    for phase, verb in ((life.EVALUATION, "evaluate"), (life.PREDICTION, "predict"),
                        (life.AGAIN, "train again")):
        has = [phase in dict(one.phases) and (phase != life.AGAIN or bool(one.again))
               for one in (a, b)]
        if a.num_replicas > 1 and not has[0] and phase != life.AGAIN:
            found.append(f"{phase} (verify follows programs with several replicas in their "
                         "training only)")
        elif not all(has):
            found.append(f"{phase} (the {'migrated' if has[0] else 'legacy'} program does not "
                         f"{verb})")
    return tuple(found)


def _too_few_steps(a: RecordedResult, b: RecordedResult) -> str:
    """Returns why steps that all agree are not enough."""
    needed = ("A TF2 program runs its first step twice, and verify sees the update of pipelined "
              "tables one step later: let it train two steps more" if b.stage == TF2 else
              "Let it train as many")
    return (f"The migrated program trained {len(b.losses)} of {len(a.losses)} steps, which agree. "
            f"{needed}, or compare fewer: --steps {len(b.losses)}.")


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
    if len(a.losses) < len(b.losses) or not b.losses:
        return (f"the legacy program trained {len(a.losses)} steps, the migrated one "
                f"{len(b.losses)}",), ()
    if a.inputs != b.inputs:
        return (f"the legacy input_fn gives {list(a.inputs)}, the migrated one "
                f"{list(b.inputs)}",), ()
    if b.stage == TF2 and not a.is_seedless:
        return (), ("the legacy input_fn gives batches that depend on the seed, from which TF2 "
                    "draws different random numbers, so the values of the migrated one were not "
                    "compared with them",)
    if not a.is_repeatable:
        return (), ("the legacy input_fn gives different batches each time it is read, so the "
                    "values of the migrated one were not compared with them",)
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


def _about_draws(draws: Sequence[str]) -> str:
    more = len(draws) - _DRAWS_SHOWN
    names = ", ".join(draws[:_DRAWS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (f"The legacy program draws random numbers in each step: {names}. The migrated one "
            "draws others, so the two cannot agree step by step. For the comparison, set rates of "
            "dropout to 0 and give sampled losses fixed `sampled_values`, in both programs.")


def _details(step: Step) -> str:
    if step.checkpoint is None:
        return step.problem
    lines = [] if step.loss_agrees or step.losses is None else [
        "loss: {:.9g}, migrated {:.9g}".format(*step.losses)]
    lines += [f"activations of {name}: {difference:.4g}" for name, (difference, agrees)
             in step.activations.items() if not agrees]
    return "\n".join([*lines, describe_comparison(step.checkpoint)])
