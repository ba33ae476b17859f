# SPDX-License-Identifier: Apache-2.0
"""The settings of a demo directory, which a resumed run must share."""

import json
import os
import pathlib
from collections.abc import Mapping

from tpu_estimator_embedding import checks


def keep_settings(directory: pathlib.Path, settings: Mapping[str, int | str]) -> None:
    """Records the settings of a new directory, or compares them with the recorded ones.

    Raises:
        ValueError: if the directory was created with other settings.
    """
    path = directory / "settings.json"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        unfinished.write_text(json.dumps(settings))
        unfinished.rename(path)
    for name, noted in json.loads(path.read_text()).items():
        checks.check(settings[name] == noted, f"--{name}",
                     f"{noted}, with which {directory} was created", settings[name],
                     "Or choose another --model-dir.")
