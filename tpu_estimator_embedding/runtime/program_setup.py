# SPDX-License-Identifier: Apache-2.0
"""Prepares a process for a program: the one that `run` starts, and those that it spawns."""

import dataclasses
import multiprocessing.spawn
import os
from collections.abc import Callable
from typing import Any

from tpu_estimator_embedding.compat import patch
from tpu_estimator_embedding.compat.patch import Patch
from tpu_estimator_embedding.runtime import noise, tf1

TABLE = (
    Patch("multiprocessing.spawn", "get_preparation_data",
          f"{__name__}:get_preparation_data",
          "a spawned process imports the program anew, before anything is installed in it",
          replaces=True),)

_original_preparation_data = multiprocessing.spawn.get_preparation_data


@dataclasses.dataclass(frozen=True)
class ProgramSetup:
    """How a program is run.

    Attributes:
        is_tf1: whether `import tensorflow` means TensorFlow 1.x.
        level: what the log shows, one of `noise.LEVELS`.
        cores: of the TPU that this machine stands in for; None leaves the variable as it is.
    """

    is_tf1: bool = False
    level: str = "normal"
    cores: int | None = None

    def __call__(self) -> None:
        """Prepares this process, and those that it will spawn.

        Raises:
            RuntimeError: `install` refuses.
        """
        from tpu_estimator_embedding.runtime.install import install
        noise.prepare(self.level)
        install()
        if self.cores:  # in the environment, for any process that the program starts
            from tpu_estimator_embedding.compat.stand_ins import tpu_cores
            os.environ[tpu_cores.VARIABLE] = str(self.cores)
        noise.set_level(self.level)
        if self.is_tf1:
            tf1.use()
        for row in TABLE:
            patch.apply(row)
        _current[:] = [self]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Prepares the process that unpickles it, too."""
        return _set_up, (self.is_tf1, self.level, self.cores)


# How this process was set up: it tells the processes that it spawns.
_current: list[ProgramSetup] = []


def get_preparation_data(name: str) -> dict[str, Any]:
    """Returns what a spawned process unpickles before it imports the program."""
    data = _original_preparation_data(name)
    return {**data, "tpu_estimator_embedding": _current[0]} if _current else data


def _set_up(is_tf1: bool, level: str, cores: int | None) -> None:
    ProgramSetup(is_tf1, level, cores)()
