# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled ops, or reports why TensorFlow's own ops run instead.

The environment variable TPU_ESTIMATOR_EMBEDDING_KERNELS overrides the choice:

* `native`: the compiled ops; an error if they are missing and cannot be compiled.
* `tf` or `off`: TensorFlow's own ops, even if compiled ones exist.
* unset: the compiled ops where possible.

Compiled ops are those installed with the package, else those in the user's cache. The first process
that finds none compiles them into the cache; where it cannot, TensorFlow's own ops run.

The variable is read whenever kernels are asked for, first when the first table is created; what its
value means is decided once per process. `settings` has the other variables.
"""

import ctypes
import functools
import pathlib
import sys
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.kernels import (
    arenas,
    build,
    compiler,
    library,
    tensorflow_build,
    trust,
)
from tpu_estimator_embedding.kernels.compiler import CompilationError
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

COMMAND = "tpu-estimator-embedding build-kernels"
LOADING_ERRORS = (OSError, AttributeError, tf.errors.OpError)
arenas.share()  # before TensorFlow starts the threads of a session


class Kernels(NamedTuple):
    """The kernels in use.

    Attributes:
        ops: the module of the compiled ops, or None: TensorFlow's own ops run.
        description: "native (avx2)", for example, or "TF ops".
        reason: why TensorFlow's own ops run although they were not chosen; else empty.
        rules: names of the update rules that are compiled.
        source: where the compiled ops are from; empty for TensorFlow's own.
        functions: the C functions of the library, or None.
    """

    ops: Any
    description: str
    reason: str = ""
    rules: frozenset[str] = frozenset()
    source: str = ""
    functions: ctypes.CDLL | None = None


def native_ops() -> Any:
    """Returns the module of the compiled ops, or None if TensorFlow's own run.

    Raises:
        ValueError: if the value of the variable is unknown.
        RuntimeError: if the value is `native` and the compiled ops cannot run.
    """
    return kernels().ops


def description() -> str:
    """Describes the kernels in use, for logs.

    >>> description() in ("TF ops", "native (baseline)", "native (avx2)", "native (avx512)")
    True
    """
    return kernels().description


def kernels() -> Kernels:
    """Returns the kernels of this process; the first call decides.

    Raises:
        ValueError: if the value of a variable of `settings` is unknown.
        RuntimeError: if `native` was chosen and the compiled ops cannot run.
    """
    for setting in (settings.SIMD, settings.HUGE_PAGES, settings.ONE_ARENA):
        setting.read()
    return _kernels(choice())


def choice() -> str:
    """Returns the value of the variable, empty where it is not set.

    Raises:
        ValueError: if the value is not known.
    """
    return settings.KERNELS.read()


@functools.cache  # TensorFlow keeps a loaded library for as long as the process lives
def _kernels(chosen: str) -> Kernels:
    if chosen in ("tf", "off"):
        return Kernels(None, "TF ops")
    try:
        return _native_kernels(tensorflow_build.of_imported(tf))
    except (CompilationError, *LOADING_ERRORS) as error:
        reason = str(error).splitlines()[0]
    if chosen == "native":
        raise RuntimeError(
            f"`{settings.KERNELS.variable}=native` requires the native kernels, which could not be "
            f"found or compiled: {reason}. Run `{COMMAND}` for details, or unset it.")
    _say(f"running on TF ops, several times slower than native kernels: {reason}. "
         f"`{COMMAND}` compiles them.")
    return Kernels(None, "TF ops", reason)


def _native_kernels(tensorflow: TensorFlowBuild | None) -> Kernels:
    """Opens the first library that can be opened, or compiles one."""
    if tensorflow is None:
        raise CompilationError("the imported TensorFlow is not an installed package")
    refusals = []
    for path in library.candidates(tensorflow):
        try:
            library.check(path)
            opened = open_library(path)
        except LOADING_ERRORS as error:
            refusals.append(str(error).splitlines()[0])
            continue
        return _reported(opened, refusals)
    try:
        return _reported(open_library(_compile(tensorflow)), refusals)
    except (CompilationError, *LOADING_ERRORS) as error:
        refusals.append(str(error).splitlines()[0])
        raise CompilationError("; ".join(dict.fromkeys(refusals))) from error


def _reported(opened: Kernels, refusals: list[str]) -> Kernels:
    if refusals:
        _say(f"ignoring native kernels that were found: {'; '.join(refusals)}. Running those "
             f"{opened.source}.")
    return opened


def _compile(tensorflow: TensorFlowBuild) -> pathlib.Path:
    trust.check(library.cache())
    failure = library.failure(tensorflow)
    if failure.exists() and choice() != "native":
        raise CompilationError(f"compiling them failed before, see {failure}")
    if compiler.find() is None:
        installed = library.installed_for()
        others = f"the installed ones are for TensorFlow {', '.join(installed)}, and "
        raise CompilationError(others * bool(installed) + build.NO_COMPILER)
    _say(f"compiling the native kernels for TensorFlow {tensorflow.version}, once ...")
    try:
        return build.build_once(tensorflow, library.cache(), build.progress)
    except CompilationError as error:
        failure.write_text(str(error))  # so that not every start tries again
        raise CompilationError(f"the compiler failed, see {failure}") from error


def open_library(path: pathlib.Path) -> Kernels:
    """Loads a library that fits.

    Raises:
        OSError, tf.errors.OpError, AttributeError: if it does not fit.
        ValueError: if the machine lacks the instruction set that was asked for.
    """
    ops = tf.load_op_library(str(path))
    functions = ctypes.CDLL(str(path))
    level = _text(functions.tpu_embedding_simd_level)
    wanted = settings.SIMD.read()
    checks.check(wanted in ("", level), settings.SIMD.variable,
                 f"an instruction set of this machine, the best of which is {level!r}", wanted,
                 f"Unset it to {settings.SIMD.unset}.")
    records = _text(functions.tpu_embedding_rules).splitlines()
    return Kernels(ops, f"native ({level})",
                   rules=frozenset(record.partition("|")[0] for record in records),
                   source=library.source(path), functions=functions)


def _text(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return function().decode()


def _say(line: str) -> None:
    print(f"tpu_estimator_embedding: {line}", file=sys.stderr, flush=True)
