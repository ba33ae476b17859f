# SPDX-License-Identifier: Apache-2.0
"""The paths and names of compiled libraries.

The file name contains the version of TensorFlow and a digest of sources, flags and platform, so
that a matching library is found without opening it, and a stale one is never loaded. The file
contains the same text, which detects renamed files.
"""

import contextlib
import os
import pathlib
import re

from tpu_estimator_embedding.kernels import trust, units
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild
from tpu_estimator_embedding.kernels.trust import UntrustedError

INSTALLED = pathlib.Path(__file__).parent / "lib"  # filled by pip, and by nothing else
_NAME = re.compile(r"embedding_ops-tf(?P<version>.+)-(?P<digest>[0-9a-f]{16})\.so")


def name(tensorflow: TensorFlowBuild) -> str:
    """Returns the name of the library for this TensorFlow and these sources."""
    return f"embedding_ops-tf{tensorflow.version}-{units.digest(tensorflow)}.so"


def stamp(library_name: str) -> str:
    """Returns the text inside a library that identifies it."""
    return f"tpu_estimator_embedding library {library_name}"


def cache() -> pathlib.Path:
    """Returns the directory for the libraries of this user.

    >>> cache().name
    'tpu_estimator_embedding'
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(chosen) if os.path.isabs(chosen) else pathlib.Path("~/.cache").expanduser()
    return root / "tpu_estimator_embedding"


def find(tensorflow: TensorFlowBuild) -> pathlib.Path | None:
    """Returns the library that fits, or None.

    Raises:
        UntrustedError: if there is one, where others could have put it.
    """
    wanted = name(tensorflow)
    fitting = [directory / wanted for directory in (INSTALLED, cache())
               if _is_what_its_name_says(directory / wanted)]
    for path in fitting:
        with contextlib.suppress(UntrustedError):
            trust.check(path)
            return path
    if fitting:
        trust.check(fitting[0])
    return None


def failure(tensorflow: TensorFlowBuild) -> pathlib.Path:
    """Returns the file with the reason why compilation failed, if it did."""
    return cache() / f"{name(tensorflow)}.failed"


def installed_for() -> list[str]:
    """Returns the versions of TensorFlow for which pip compiled a library."""
    matches = [_NAME.fullmatch(path.name) for path in sorted(INSTALLED.glob("*.so"))]
    return [match["version"] for match in matches if match]


def _is_what_its_name_says(path: pathlib.Path) -> bool:
    try:
        return stamp(path.name).encode() in path.read_bytes()
    except OSError:
        return False
