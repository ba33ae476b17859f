# SPDX-License-Identifier: Apache-2.0
"""Prepares the process of a program that `run` starts, and the processes that it spawns."""

import dataclasses
import functools
import os
from collections.abc import Callable

from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.runtime import noise, tf1
from tpu_estimator_embedding.runtime.quiet_start import quiet_start

TABLE = (
    Patch("multiprocessing.spawn", "get_preparation_data",
          f"{__name__}:preparing",
          "a spawned process imports the program again, before install() was called in it",
          replaces=True, wraps=True),)

# Where there is a GPU, looking for devices fixes CUDA_VISIBLE_DEVICES, which a program may set.
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclasses.dataclass(frozen=True)
class ProgramSetup:
    """How a program is run.

    Attributes:
        is_tf1: whether `import tensorflow` provides the TensorFlow 1.x API.
        level: "quiet", "normal" or "verbose".
    """

    is_tf1: bool = False
    level: str = "normal"

    def __call__(self) -> None:
        """Prepares this process, and the processes that it will spawn.

        Raises:
            RuntimeError: if `install` raises it.
        """
        from tpu_estimator_embedding.runtime.install import install
        noise.prepare(self.level)
        with quiet_start(self.level == "verbose", self.level):
            install()
            if self.level != "verbose" and not any(map(os.path.exists, _GPU_DRIVERS)):
                import tensorflow as tf
                tf.config.list_physical_devices()  # logs that there is no GPU, once
        noise.set_level(self.level)
        if self.is_tf1:
            tf1.use()
        for row in TABLE:
            patch.apply(row)
        _current[:] = [self]

    def __reduce__(self) -> tuple[Callable[..., None], tuple[bool, str]]:
        """Makes the process that unpickles this object call `_set_up`."""
        return _set_up, (self.is_tf1, self.level)


# The setup of this process, which spawned processes receive.
_current: list[ProgramSetup] = []


def preparing(original: Callable[[str], dict[str, object]]) -> Callable[[str], dict[str, object]]:
    """Returns a function of the data that a spawned process reads before it imports the program."""
    @functools.wraps(original)
    def get_preparation_data(name: str) -> dict[str, object]:
        data = original(name)
        return {**data, "tpu_estimator_embedding": _current[0]} if _current else data

    return get_preparation_data


def _set_up(is_tf1: bool, level: str) -> None:
    ProgramSetup(is_tf1, level)()
