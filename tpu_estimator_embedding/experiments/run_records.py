# SPDX-License-Identifier: Apache-2.0
"""What a team's experiment tracker gets of a sweep, and which trackers there are."""

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.event_files import Curves
from tpu_estimator_embedding.experiments.results import Results, RunResult

TRACKERS = ("mlflow",)
_WANDB = ("no longer supported. Weights & Biases reads event files itself: call "
          "`wandb.init(sync_tensorboard=True)` in the program, or run `wandb sync "
          "--sync-tensorboard` of wandb 0.29 or older on a directory of `runs`.")


class TrackerError(RuntimeError):
    """A tracker did not take what it was to be given."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run that has ended.

    Attributes:
        name: setting and seed.
        settings: name -> text of the settings, and the seed.
        curves: metric -> (step, value) pairs.
        error: why it failed, or where a search stopped it; empty if neither.
        has_failed: whether it was to reach its end and did not.
        start: when it began, in seconds since 1970.
        end: when it ended.
        identity: differs between runs, and between two tries of one.
    """

    name: str
    settings: dict[str, str]
    curves: Curves
    error: str
    has_failed: bool
    start: float
    end: float
    identity: str


def records(results: Results) -> list[RunRecord]:
    """Returns the runs of a sweep that have ended."""
    return [_record(result) for result in results.runs if result.has_ended]


def _record(result: RunResult) -> RunRecord:
    settings = {**result.run.setting.texts, "seed": str(result.run.seed)}
    times = [path.stat().st_mtime for path in result.run.directory.iterdir() if path.is_file()]
    content = [str(result.run.directory), settings, result.curves, result.error]
    return RunRecord(
        result.run.name, settings, result.curves, result.error or "", result.has_failed,
        min(times), (result.run.directory / "outcome.json").stat().st_mtime,
        hashlib.sha256(json.dumps(content).encode("utf-8")).hexdigest()[:16])


def check_trackers(names: Sequence[str], argument: str) -> None:
    """Raises ValueError unless an argument names trackers that are installed."""
    if not isinstance(names, str) and "wandb" in names:
        raise ValueError(f"`{argument}` with wandb is {_WANDB}")
    checks.check(not isinstance(names, str) and set(names) <= set(TRACKERS), argument,
                 f"one or more of {', '.join(TRACKERS)} in a list", names)
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"`{argument}` with {name} needs {name}, which is not installed. Run "
                             f"`pip install 'tpu_estimator_embedding[{name}]'`.")


def write(tracker: str, results: Results, files: Sequence[pathlib.Path]) -> str:
    """Writes the runs that have ended to a tracker; those that it has are not written again.

    Args:
        tracker: one of `TRACKERS`.
        results: the results of the sweep.
        files: the report and its figures.

    Returns:
        The command that shows them.

    Raises:
        TrackerError: if the tracker does not take them.
    """
    module: Any = importlib.import_module(f"{__package__}.{tracker}_log")
    shown: str = module.write(results.directory, records(results), files)
    return shown
