# SPDX-License-Identifier: Apache-2.0
"""Runs a program once for each setting and seed, in separate processes."""

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence

import tqdm

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.child import CANNOT_OVERRIDE
from tpu_estimator_embedding.experiments.files import write_json
from tpu_estimator_embedding.experiments.jobs import Job, last_words, python_module, run_all
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory

_CHILD = "tpu_estimator_embedding.experiments.child"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and its command-line arguments.

    Attributes:
        name: a file or, with `is_module`, the name of a module.
        arguments: its arguments; `{model_dir}`, `{run_dir}` and `{seed}` are replaced for each run.
        is_module: whether to run it like `python -m`.
        is_tf1: whether `import tensorflow` provides the TensorFlow 1.x API.
    """

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    is_tf1: bool = False

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        return [*(["-m"] if self.is_module else []), self.name, *self.arguments]

    def arguments_of(self, run: Run) -> list[str]:
        """Returns the arguments with the placeholders replaced for a run."""
        values = {"{model_dir}": str(run.directory / "model"), "{run_dir}": str(run.directory),
                  "{seed}": str(run.seed)}
        arguments = list(self.arguments)
        for placeholder, value in values.items():
            arguments = [argument.replace(placeholder, value) for argument in arguments]
        return arguments


def run_missing(sweep: SweepDirectory, program: Program, jobs: int) -> None:
    """Runs all incomplete runs, `jobs` at a time, each on its share of the cores.

    Raises:
        ValueError: if no setting can be applied to the program, or the metric does not exist.
            Finished runs are kept.
        KeyboardInterrupt: after the children have ended.
    """
    shares = share_cores(jobs)
    missing = sweep.missing_runs
    sweep.check_metric(*sweep.runs)
    run_of = {run.name: run for run in missing}
    with tqdm.tqdm(total=len(sweep.runs), initial=len(sweep.runs) - len(missing), unit="run",
                   desc="Sweep") as line:
        def started(job: Job, place: int) -> list[str]:
            return start(sweep, program, run_of[job.name], shares[place])

        def ended(job: Job, status: int) -> None:
            run = run_of[job.name]
            note_end(run, status)
            show_end(line, run)
            sweep.check_metric(run)

        run_all(
            list(map(job_of, missing)), jobs, ended, lambda running: show_progress(
                line, [run_of[job.name] for job in running]), started)


def job_of(run: Run) -> Job:
    """Returns the process of a run, whose directory exists afterwards."""
    run.directory.mkdir(parents=True, exist_ok=True)
    return Job(run.name, python_module(_CHILD), run.log)


def start(sweep: SweepDirectory, program: Program, run: Run, cores: Sequence[int]) -> list[str]:
    """Writes what the process of a run is to do; returns the process's arguments."""
    run.start_over()
    path = run.directory / "job.json"
    write_json(path, _job(sweep, program, run, cores))
    return [str(path)]


def share_cores(jobs: int) -> list[list[int]]:
    """Returns the cores of each of `jobs` processes; an empty list for a single process.

    Raises:
        ValueError: if there are fewer cores than processes.
    """
    checks.check_positive_int("--jobs", jobs)
    cores = sorted(os.sched_getaffinity(0))
    checks.check(jobs <= len(cores), "--jobs", f"at most {len(cores)}, the number of cores",
                 jobs)
    return [[]] if jobs == 1 else [cores[place::jobs] for place in range(jobs)]


def _job(sweep: SweepDirectory, program: Program, run: Run, cores: Sequence[int]
         ) -> dict[str, object]:
    return {"sweep_directory": str(sweep.path), "setting": run.setting.texts, "seed": run.seed,
            "program": program.name, "is_module": program.is_module, "is_tf1": program.is_tf1,
            "arguments": program.arguments_of(run), "cores": list(cores)}


def note_end(run: Run, status: int, pruned_at: int | None = None) -> None:
    """Records how a run ended if its process could not.

    Args:
        run: the run.
        status: exit status of its process.
        pruned_at: the step at which the process was asked to stop, as a hopeless one.

    Raises:
        ValueError: if no setting can be applied to the program.
    """
    reason = last_words(run.log)
    if status == CANNOT_OVERRIDE:
        raise ValueError(reason.partition(": ")[2])
    if pruned_at is not None:
        if run.outcome is None:  # else it ended before the request to stop
            run.end({"pruned": pruned_at})
        return
    if status < 0:
        reason = f"ended by {signal.Signals(-status).name}" + (
            ", possibly because memory ran out" if status == -signal.SIGKILL else "")
    if status or run.outcome is None:
        run.end({"error": f"{reason} (exit status {status})"})


def show_end(line: tqdm.tqdm, run: Run) -> None:
    """Writes how a run ended, above the line of progress."""
    line.set_postfix_str("", refresh=False)  # of the runs before
    line.update()
    outcome = run.outcome or {}
    pruned = f"pruned at step {outcome['pruned']:,}" if "pruned" in outcome else "done"
    line.write(f"{run.name}: {outcome.get('error', pruned)}")


def show_progress(line: tqdm.tqdm, running: Sequence[Run]) -> None:
    """Shows the steps of the running programs on the line of progress."""
    # A terminal redraws the line in place; other outputs get a new line each time, which shows at
    # least that a run has started, and that it has begun to train.
    seconds = 1.0 if sys.stderr.isatty() else 60.0
    steps = {run.name: run.steps_so_far for run in running}
    state = {name: number is None for name, number in steps.items()}
    if not steps or state == getattr(line, "shown_state", None) and (
            time.monotonic() - line.shown_at < seconds):
        return
    line.shown_state, line.shown_at = state, time.monotonic()
    line.set_postfix_str("; ".join(
        f"{name}: " + ("starting" if number is None else f"step {number:,}")
        for name, number in steps.items()))
