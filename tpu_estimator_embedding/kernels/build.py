# SPDX-License-Identifier: Apache-2.0
"""Compiles the ops for one TensorFlow into one shared object."""

import contextlib
import os
import pathlib
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.kernels import compiler, library, units
from tpu_estimator_embedding.kernels.compiler import CompilationError, Watch
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

NO_COMPILER = "no C++17 compiler was found: apt-get install g++, or set CXX to one"


def build(tensorflow: TensorFlowBuild, directory: pathlib.Path,
          arithmetic: Sequence[pathlib.Path] = (),
          watch: Watch | None = None) -> pathlib.Path:
    """Compiles the library for `tensorflow` into `directory`, atomically.

    Any number of processes may do so at once: each renames its own finished file.

    Args:
        tensorflow: what to compile for.
        directory: where to put the library; made if it is not there.
        arithmetic: what `compile_arithmetic` returned, for libraries of several TensorFlows; empty
            compiles it.
        watch: see `compiler.run_all`; `progress` shows a bar.

    Returns:
        The library.

    Raises:
        CompilationError: if there is no compiler, no header, or the compiler refuses.
        OSError: if the directory cannot be written.
    """
    command = compiler.find()
    if command is None:
        raise CompilationError(NO_COMPILER)
    if not tensorflow.has_headers:
        raise CompilationError(f"TensorFlow {tensorflow.version} has no headers in "
                               f"{tensorflow.include}")
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = directory / library.name(tensorflow)
    with tempfile.TemporaryDirectory() as objects:
        compiled = [*_compile(command, {  # TensorFlow's come first: they take longest
            **units.tensorflow_units(tensorflow),
            **({} if arithmetic else units.arithmetic_units())}, pathlib.Path(objects), watch),
            *arithmetic]
        with _replacing(target) as unfinished:
            compiler.run([*command, "-shared", "-s", "-pthread", *map(str, compiled),
                          *_link_flags(tensorflow), "-o", str(unfinished)])
            library.seal(unfinished, target.name)
    return target


def progress(finished: Iterable[Any], total: int) -> Iterable[Any]:
    """Shows a bar of the source files that are compiled, if standard error is a terminal."""
    import tqdm  # which the environments that pip builds in lack
    return tqdm.tqdm(finished, "Compiling", total, unit="file", disable=None)


def build_once(tensorflow: TensorFlowBuild, directory: pathlib.Path,
               watch: Watch | None = None) -> pathlib.Path:
    """Compiles as `build` does, or waits for another process that compiles the same."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = directory / library.name(tensorflow)
    with _locked(target.with_suffix(".lock")):
        return target if library.is_fit(target) else build(
            tensorflow, directory, watch=watch)


def compile_arithmetic(directory: pathlib.Path) -> list[pathlib.Path]:
    """Compiles the units that are the same for every TensorFlow into `directory`; returns them.

    Raises:
        CompilationError: if there is no compiler, or it refuses.
    """
    command = compiler.find()
    if command is None:
        raise CompilationError(NO_COMPILER)
    return _compile(command, units.arithmetic_units(), directory)


def _compile(command: Sequence[str], flags_of_units: Mapping[pathlib.Path, Sequence[str]],
             objects: pathlib.Path, watch: Watch | None = None) -> list[pathlib.Path]:
    compiled = {unit: objects / f"{unit.stem}.o" for unit in flags_of_units}
    compiler.run_all([[*command, "-c", str(unit), *flags, "-o", str(compiled[unit])]
                      for unit, flags in flags_of_units.items()], watch)
    return list(compiled.values())


def _link_flags(tensorflow: TensorFlowBuild) -> list[str]:
    extra = shlex.split(settings.LDFLAGS.read() or "")
    return [f"-L{tensorflow.directory}", f"-l:{tensorflow.framework_library.name}", *extra]


@contextlib.contextmanager
def _replacing(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a temporary file that replaces `target` at the end."""
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=".so", dir=target.parent)
    os.close(handle)
    unfinished = pathlib.Path(name)
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock between processes, if the file system supports locks."""
    import fcntl
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
