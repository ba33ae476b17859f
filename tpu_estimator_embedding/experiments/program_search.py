# SPDX-License-Identifier: Apache-2.0
"""Runs a program once for each trial of a search, and stops hopeless runs."""

import dataclasses
import time
from collections.abc import Iterator

import tqdm

from tpu_estimator_embedding.experiments import program_sweep
from tpu_estimator_embedding.experiments.jobs import Job, run_all
from tpu_estimator_embedding.experiments.results import RunResult, collect
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.search import Search
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory

_LEAST_SECONDS = 1.0  # between two looks at the event files of a run
_SHARE_OF_TIME = 0.05  # that may be spent on reading them
_MOST_FAILURES = 5  # before any success: then it is the program that is wrong, not the settings


def run_trials(sweep: SweepDirectory, program: program_sweep.Program, jobs: int, search: Search,
               trials: int, prune: bool) -> None:
    """Runs trials until there are `trials`, `jobs` at a time, each on its share of the cores.

    Args:
        sweep: the directory and the metric; its settings are ignored.
        program: the program.
        jobs: how many runs at a time.
        search: says what to run.
        trials: how many trials there are at the end, those of before included.
        prune: whether to stop runs that are hopeless.

    Raises:
        ValueError: if no setting can be applied to the program, the metric does not exist, or
            only failures come first.
        KeyboardInterrupt: after the children have ended. The search can go on.
    """
    shares = program_sweep.share_cores(jobs)
    search.resume()
    run_of: dict[str, Run] = {}
    ends: list[RunResult] = []
    watch = _Watch(search)
    with tqdm.tqdm(total=trials, initial=min(search.count, trials), unit="trial",
                   desc="Search") as line:
        def next_jobs() -> Iterator[Job]:
            while (run := search.next_run(trials)) is not None:
                run_of[run.name] = run
                yield program_sweep.job_of(run)

        def started(job: Job, place: int) -> list[str]:
            return program_sweep.start(sweep, program, run_of[job.name], shares[place])

        def ended(job: Job, status: int) -> None:
            run = run_of[job.name]
            program_sweep.note_end(run, status, watch.pruned_at.get(job.name))
            result = collect(run)
            sweep.check_metric(run)
            search.tell(run, result)
            program_sweep.show_end(line, run)
            ends.append(result)
            if len(ends) == _MOST_FAILURES and not search.has_successes:
                raise ValueError(_failures(result))

        def waiting(running: list[Job]) -> list[str]:
            program_sweep.show_progress(line, [run_of[job.name] for job in running])
            return [job.name for job in running if prune and watch.is_hopeless(run_of[job.name])]

        run_all(next_jobs(), jobs, ended, waiting, started)


def _failures(last: RunResult) -> str:
    return (f"The first {_MOST_FAILURES} trials failed, the last one with {last.error!r}; its log "
            f"is {last.run.log}. Fix the program, or choose other ranges, and run the same command "
            "again: it repeats these trials.")


@dataclasses.dataclass
class _Watch:
    """Looks at event files of running programs, not too often: long runs have large ones."""

    search: Search

    def __post_init__(self) -> None:
        self.pruned_at: dict[str, int] = {}
        self._next_look: dict[str, float] = {}

    def is_hopeless(self, run: Run) -> bool:
        if run.name in self.pruned_at:
            return True
        start = time.monotonic()
        if start < self._next_look.get(run.name, 0.0) or run.outcome is not None:
            return False
        result = collect(run)
        if self.search.is_hopeless(run, result.curves):
            self.pruned_at[run.name] = result.curves[self.search.metric][-1][0]
        now = time.monotonic()
        self._next_look[run.name] = now + max(_LEAST_SECONDS, (now - start) / _SHARE_OF_TIME)
        return run.name in self.pruned_at
