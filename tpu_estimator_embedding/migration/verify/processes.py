# SPDX-License-Identifier: Apache-2.0
"""Recorded runs, each in a separate process."""

import os
import pathlib
import subprocess
import sys

import tpu_estimator_embedding
from tpu_estimator_embedding.migration.verify import settings
from tpu_estimator_embedding.migration.verify.settings import RunResult, Settings

_MODULE = f"{tpu_estimator_embedding.__name__}.migration.verify.recorded_run"
_LAST_LINES = 15


class FailedRunError(RuntimeError):
    """A program did not train the requested number of steps."""


def record(program: Settings) -> RunResult:
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
    log = directory / settings.LOG
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, str(program.save())], check=False, stdout=output,
            stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        raise FailedRunError("\n".join([
            f"{program.program} failed with exit status {done.returncode}:", *last]))
    return RunResult.load(directory)
