# SPDX-License-Identifier: Apache-2.0
"""A process that runs the program of a sweep once: `python -m ...experiments.child JOB.json`.

The job contains the run's directory, the setting, the seed, the cores to use and the program with
its arguments. The process writes the result to the directory of the run.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from tpu_estimator_embedding.experiments import files, table_summaries
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import setting_of

# Exit status of a child to whose program no setting can be applied.
CANNOT_OVERRIDE = 78


def main(job_path: str) -> int:
    """Runs the program of a job; returns the exit status."""
    job = files.read_json(pathlib.Path(job_path))
    if job["cores"]:
        os.sched_setaffinity(0, job["cores"])  # before TensorFlow counts them
    run = Run(pathlib.Path(job["sweep_directory"]), setting_of(job["setting"]), job["seed"])
    start = _starter(job["program"], job["is_module"], job["arguments"])
    return run_program(run, start, job["is_tf1"])


def run_program(run: Run, start: Callable[[Callable[[], None]], None], is_tf1: bool) -> int:
    """Runs a program with the overrides of the run and records the results.

    Args:
        run: the run.
        start: runs the program, after calling its argument.
        is_tf1: whether `import tensorflow` provides the TensorFlow 1.x API.
    """
    from tpu_estimator_embedding.experiments import overrides
    from tpu_estimator_embedding.runtime import program_runner
    from tpu_estimator_embedding.runtime.program_setup import ProgramSetup

    changes = overrides.Overrides(run.setting, run.seed, run.directory)
    with contextlib.ExitStack() as stack:
        def set_up() -> None:
            ProgramSetup(is_tf1)()
            stack.enter_context(changes.applied())

        try:
            _ignoring_exit_0(start, set_up)
            changes.check_reached()
        except program_runner.NotStartedError as error:
            print(f"{program_runner.PREFIX}{error}", file=sys.stderr)
            return CANNOT_OVERRIDE
        except overrides.CannotOverrideError as error:
            print(f"{program_runner.PREFIX}{error}", file=sys.stderr)
            return CANNOT_OVERRIDE
    run.end({"examples_per_second": changes.timer.examples_per_second,
             "steps_of_this_start": changes.timer.steps,
             "models": [path.name for path in changes.model_dirs],
             "tables": table_summaries.write_all(run.directory, changes.model_dirs)})
    return 0


def _ignoring_exit_0(start: Callable[[Callable[[], None]], None],
                     set_up: Callable[[], None]) -> None:
    try:
        start(set_up)
    except SystemExit as exit_:
        if exit_.code:
            raise


def _starter(name: str, is_module: bool,
             arguments: Sequence[str]) -> Callable[[Callable[[], None]], None]:
    from tpu_estimator_embedding.runtime import program_runner

    run = program_runner.run_module if is_module else program_runner.run_file
    return lambda set_up: run(name, arguments, set_up)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
