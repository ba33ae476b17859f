# SPDX-License-Identifier: Apache-2.0
"""The wheel with the kernels for every TensorFlow.

The same commit gives the same bytes: files have fixed permissions, the time is the commit's, and
the tools that write metadata have fixed versions.
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence

from release import tensorflow_headers
from tpu_estimator_embedding.kernels import build as kernels_build

ROOT = pathlib.Path(__file__).parent.parent
PLATFORM = "manylinux_2_28_x86_64"
MOST_BYTES = 15_000_000

_SOURCES = ("setup.py", "pyproject.toml", "README.rst", "LICENSE", "tpu_estimator_embedding")
_NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.so", "lib")
_BUILDER = "setuptools==80.9.0"  # it names itself in the wheel
_AT_ONCE = 2  # libraries; most of their units are compiled on all cores
_WITHOUT_GIT = "315532800"  # 1980, the first year of a zip archive


class WheelError(Exception):
    """The wheel could not be built, or is not fit to be published."""


def build(versions: Sequence[str], output: pathlib.Path, headers: pathlib.Path) -> pathlib.Path:
    """Compiles the kernels for releases of TensorFlow and builds a wheel with all of them.

    Args:
        versions: the releases, one of each minor version.
        output: the directory for the wheel.
        headers: the directory of `tensorflow_headers.fetch`.

    Returns:
        The wheel.

    Raises:
        CompilationError, DownloadError, WheelError: if it cannot be built.
    """
    with tempfile.TemporaryDirectory() as directory:
        libraries = pathlib.Path(directory, "libraries")
        objects = pathlib.Path(directory, "objects")
        objects.mkdir()
        arithmetic = kernels_build.compile_arithmetic(objects)
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            for made in pool.map(lambda version: kernels_build.build(
                    tensorflow_headers.fetch(version, headers), libraries, arithmetic), versions):
                print(f"compiled {made.name}", flush=True)
        made = pack(libraries, pathlib.Path(directory, "dist"))
        check(made)
        output.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(made, output))


def pack(libraries: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Builds a wheel with the libraries of a directory; returns it.

    Raises:
        WheelError: if it cannot be built.
    """
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "source")
        _copy_sources(source)
        constraints = pathlib.Path(directory, "constraints.txt")
        constraints.write_text(_BUILDER)
        environment = {
            **os.environ, "PIP_CONSTRAINT": str(constraints), "SOURCE_DATE_EPOCH": _time(),
            "TPU_ESTIMATOR_EMBEDDING_LIBRARIES": str(libraries.absolute()),
            "TPU_ESTIMATOR_EMBEDDING_PLATFORM": PLATFORM}
        environment.pop("PIP_BUILD_TRACKER", None)  # for no environment in particular
        done = subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", str(output), str(source)],
            env=environment, umask=0o022, capture_output=True, text=True)
    if done.returncode:
        raise WheelError(f"the wheel could not be built:\n{done.stdout}{done.stderr}")
    [made] = output.glob(f"*-py3-none-{PLATFORM}.whl")
    return made


def check(wheel: pathlib.Path) -> None:
    """Checks that a wheel is small, and runs on every system of its platform, with auditwheel.

    TensorFlow's library is no part of the wheel: it is loaded already when the kernels are. A
    wheel that auditwheel would have to change is refused.

    Raises:
        WheelError: if it does not.
    """
    if wheel.stat().st_size > MOST_BYTES:
        raise WheelError(f"{wheel.name} must be at most {MOST_BYTES} bytes, got "
                         f"{wheel.stat().st_size}")
    with tempfile.TemporaryDirectory() as repaired:
        done = subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat",
             "--patcher", "none", "--exclude", "libtensorflow_framework.so.2",
             "--wheel-dir", repaired, str(wheel)],
            capture_output=True, text=True)
    if done.returncode:
        raise WheelError(f"auditwheel refuses {wheel.name}:\n{done.stdout}{done.stderr}")


def contents(wheel: pathlib.Path) -> str:
    """Describes a wheel: its size, its libraries with their sizes, and its licences."""
    with zipfile.ZipFile(wheel) as archive:
        shown = [entry for entry in archive.infolist()
                 if entry.filename.endswith(".so") or "/licenses/" in entry.filename]
        modules = sum(name.endswith(".py") for name in archive.namelist())
    lines = [f"  {entry.file_size:>9,}  {entry.filename}" for entry in shown]
    return "\n".join([f"{wheel}: {wheel.stat().st_size:,} bytes, {modules} modules", *lines])


def _copy_sources(directory: pathlib.Path) -> None:
    directory.mkdir()
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=_NOT_SOURCES)
        else:
            shutil.copy(ROOT / name, directory / name)
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _time() -> str:
    """Returns the time of the commit, in seconds since 1970."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    done = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
                          capture_output=True, text=True)
    return done.stdout.strip() or _WITHOUT_GIT
