# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with an installed wheel, which know nothing of this checkout."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple


class SetupError(Exception):
    """An environment could not be made, or a command failed in it."""


class Environment(NamedTuple):
    """A virtual environment that holds a wheel and a TensorFlow.

    Attributes:
        directory: the environment.
        scratch: the directory that commands run in.
    """

    directory: pathlib.Path
    scratch: pathlib.Path

    def run(self, *command: str) -> str:
        """Runs a command of the environment, without a compiler and without kernels of before.

        Returns:
            What it prints.

        Raises:
            SetupError: if it fails.
        """
        program, *arguments = command
        variables = {
            **_variables(), "CXX": "/nonexistent", "TF_CPP_MIN_LOG_LEVEL": "3",
            "XDG_CACHE_HOME": str(self.scratch / "cache"),
            "TPU_ESTIMATOR_EMBEDDING_KERNELS": "native",
            "PATH": os.pathsep.join([str(self.directory / "bin"), os.environ["PATH"]])}
        return _run([str(self.directory / "bin" / program), *arguments], self.scratch, variables)


def make(directory: pathlib.Path, wheel: pathlib.Path, tensorflow: str,
         python: str) -> Environment:
    """Makes an environment by pip, from the package index.

    Args:
        directory: where it is put, unless it is there.
        wheel: the wheel of this package.
        tensorflow: the version of TensorFlow.
        python: the version of Python, "3.11".

    Raises:
        SetupError: if there is no such Python, or pip fails.
    """
    environment = Environment(directory / "environment", directory / "scratch")
    if not environment.scratch.exists():
        _run([find_python(python), "-m", "venv", str(environment.directory)], pathlib.Path("/"),
             _variables())
        pip = str(environment.directory / "bin" / "pip")
        _run([pip, "install", "--quiet", "--disable-pip-version-check", "--no-compile",
              str(wheel.absolute()), f"tensorflow=={tensorflow}"], pathlib.Path("/"), _variables())
        environment.scratch.mkdir()
    return environment


def find_python(version: str) -> str:
    """Returns a Python of that version, on the path or in pyenv, that runs.

    Raises:
        SetupError: if there is none.
    """
    for candidate in _candidates(version):
        probe = "import sys; print('%d.%d' % sys.version_info[:2], sys._base_executable)"
        done = subprocess.run([candidate, "-c", probe], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.startswith(f"{version} "):
            return done.stdout.split(maxsplit=1)[1].strip()
    raise SetupError(f"there is neither python{version} nor a Python {version} in pyenv")


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def _variables() -> dict[str, str]:
    """Returns the environment variables, without those that name this checkout's modules."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _run(command: list[str], directory: pathlib.Path, variables: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=directory, env=variables, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise SetupError(f"`{' '.join(command)}` failed:\n{last}")
    return done.stdout
