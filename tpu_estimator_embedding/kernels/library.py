# SPDX-License-Identifier: Apache-2.0
"""The paths, names and seals of compiled libraries.

The file name contains the version of TensorFlow and a digest of sources, flags and platform, so
that a matching library is found without opening it, and a stale one is never loaded. The file ends
with a seal, its name and the SHA-256 of what is before it: a damaged, truncated or renamed library
is found out before the system maps it.
"""

import hashlib
import os
import pathlib
import re

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.kernels import trust, units
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

INSTALLED = pathlib.Path(__file__).parent / "lib"  # filled by pip, and by nothing else
_NAME = re.compile(r"embedding_ops-tf(?P<version>.+)-(?P<digest>[0-9a-f]{16})\.so")
_SEAL = re.compile(rb"\ntpu_estimator_embedding library (?P<name>[^\s]+) "
                   rb"sha256 (?P<checksum>[0-9a-f]{64})\n\Z")
_LONGEST_SEAL = 512


class DamagedError(OSError):
    """A library is not what was compiled under its name; the message names it."""


def name(tensorflow: TensorFlowBuild) -> str:
    """Returns the name of the library for this TensorFlow and these sources."""
    return f"embedding_ops-tf{tensorflow.abi}-{units.digest(tensorflow)}.so"


def cache() -> pathlib.Path:
    """Returns the directory for the libraries of this user.

    >>> cache().name
    'tpu_estimator_embedding'
    """
    chosen = settings.XDG_CACHE_HOME.read() or ""
    root = pathlib.Path(chosen) if os.path.isabs(chosen) else pathlib.Path("~/.cache").expanduser()
    return root / "tpu_estimator_embedding"


def candidates(tensorflow: TensorFlowBuild) -> list[pathlib.Path]:
    """Returns the libraries named for this TensorFlow, installed before cached, unchecked."""
    paths = [directory / name(tensorflow) for directory in (INSTALLED, cache())]
    return [path for path in paths if os.path.exists(path)]  # not where it may not look, either


def check(path: pathlib.Path) -> None:
    """Checks that a library may be loaded.

    A library that pip installed is trusted as the package's own Python is.

    Raises:
        UntrustedError: if others could have put it there.
        DamagedError: if it is not what was compiled under its name.
    """
    if path.parent != INSTALLED:
        trust.check(path)
    _check_seal(path)


def find(tensorflow: TensorFlowBuild) -> pathlib.Path | None:
    """Returns the first library for this TensorFlow that may be loaded, or None."""
    return next((path for path in candidates(tensorflow) if is_fit(path)), None)


def is_fit(path: pathlib.Path) -> bool:
    """Whether a library is there and may be loaded."""
    try:
        check(path)
    except OSError:
        return False
    return True


def source(path: pathlib.Path) -> str:
    """Describes where a library is from."""
    if path.parent == INSTALLED:
        return "installed with the package"
    return f"compiled in {path.parent}"


def seal(path: pathlib.Path, final_name: str) -> None:
    """Appends the seal of a library that will have the given name."""
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    with path.open("ab") as file:
        file.write(f"\ntpu_estimator_embedding library {final_name} sha256 {checksum}\n".encode())


def failure(tensorflow: TensorFlowBuild) -> pathlib.Path:
    """Returns the file with the reason why compilation failed, if it did."""
    return cache() / f"{name(tensorflow)}.failed"


def installed_for() -> list[str]:
    """Returns the versions of TensorFlow that the installed libraries are for."""
    matches = [_NAME.fullmatch(path.name) for path in sorted(INSTALLED.glob("*.so"))]
    return [match["version"] for match in matches if match]


def _check_seal(path: pathlib.Path) -> None:
    content = path.read_bytes()
    found = _SEAL.search(content, max(0, len(content) - _LONGEST_SEAL))
    if found is None:
        raise DamagedError(f"{path} is damaged: it does not end with its seal")
    if found["name"].decode() != path.name:
        raise DamagedError(f"{path} was compiled as {found['name'].decode()} and renamed")
    if hashlib.sha256(content[:found.start()]).hexdigest() != found["checksum"].decode():
        raise DamagedError(f"{path} is damaged: its contents do not match its seal")

