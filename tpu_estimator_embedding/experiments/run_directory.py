# SPDX-License-Identifier: Apache-2.0
"""The directory of one run of a sweep: its files and its state."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding.experiments.files import read_json, write_json
from tpu_estimator_embedding.experiments.setting import Setting

# Kept when a run starts over, like the event files that it is about.
EMPTY_EVALUATIONS = "empty_evaluations.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """A setting with a seed, and the directory of its files.

    When the run ends, it writes `outcome.json` with the measurements or the error. Without this
    file the run is unfinished, and will be run (again).

    Attributes:
        sweep_directory: directory of the sweep.
        setting: the overrides.
        seed: 0 for the program's own seed, k for the program's seed plus k.
    """

    sweep_directory: pathlib.Path
    setting: Setting
    seed: int

    @property
    def name(self) -> str:
        """Setting and seed on one line."""
        return f"{self.setting.label},seed={self.seed}"

    @property
    def directory(self) -> pathlib.Path:
        """The directory of the run's files, which TensorBoard shows under the run's name."""
        return self.sweep_directory / "runs" / f"{self.setting.path_name},seed={self.seed}"

    @property
    def log(self) -> pathlib.Path:
        """The log of the program."""
        return self.directory / "log.txt"

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The result of the run; None until it has ended."""
        return read_json(self.directory / "outcome.json")

    @property
    def is_done(self) -> bool:
        """Whether the run has ended successfully."""
        return "error" not in (self.outcome or {"error": "unfinished"})

    @property
    def steps_so_far(self) -> int | None:
        """The last recorded number of steps since the run was started; None before the first."""
        return (read_json(self.directory / "progress.json") or {}).get("steps")

    @property
    def empty_evaluations(self) -> dict[pathlib.Path, list[int]]:
        """Directory of each evaluation that read no batch -> steps at which it did not."""
        return {self.directory / name: steps for name, steps in (
            read_json(self.directory / EMPTY_EVALUATIONS) or {}).items() if steps}

    def start_over(self) -> None:
        """Removes the result; checkpoints stay, and the program continues from them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in ("outcome.json", "progress.json"):
            (self.directory / name).unlink(missing_ok=True)

    def end(self, outcome: Mapping[str, object]) -> None:
        """Records the result of the run."""
        write_json(self.directory / "outcome.json", outcome)
