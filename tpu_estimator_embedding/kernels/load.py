# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled ops, or reports why TensorFlow's own ops run instead.

The environment variable TPU_ESTIMATOR_EMBEDDING_KERNELS overrides the choice:

* `native`: the compiled ops; an error if they are missing and cannot be compiled.
* `tf` or `off`: TensorFlow's own ops, even if compiled ones exist.
* unset: the compiled ops where possible. The first process that finds none compiles them.

It is read once per process, when the first table is created. `settings` has the other variables.
"""

import ctypes
import functools
import pathlib
import sys
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.kernels import (
    build,
    compiler,
    library,
    settings,
    tensorflow_build,
    trust,
)
from tpu_estimator_embedding.kernels.compiler import CompilationError
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

VARIABLE = settings.KERNELS
COMMAND = "tpu-estimator-embedding build-kernels"
LOADING_ERRORS = (OSError, AttributeError, tf.errors.OpError)


class Kernels(NamedTuple):
    """The kernels in use.

    Attributes:
        ops: the module of the compiled ops, or None: TensorFlow's own ops run.
        description: "native (avx2)", for example, or "TF ops".
        reason: why TensorFlow's own ops run although nobody chose them; else empty.
        rules: names of the update rules that are compiled.
    """

    ops: Any
    description: str
    reason: str = ""
    rules: frozenset[str] = frozenset()


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
    for variable in (settings.SIMD, settings.HUGE_PAGES):
        settings.value(variable)
    return _kernels(choice())


def choice() -> str:
    """Returns the value of the variable, empty where it is not set.

    Raises:
        ValueError: if the value is not known.
    """
    return settings.value(VARIABLE)


@functools.cache  # TensorFlow keeps a loaded library for as long as the process lives
def _kernels(chosen: str) -> Kernels:
    if chosen in ("tf", "off"):
        return Kernels(None, "TF ops")
    tensorflow = tensorflow_build.of_imported(tf)
    try:
        return open_library(_library(tensorflow, must=chosen == "native"))
    except (CompilationError, *LOADING_ERRORS) as error:
        reason = str(error).splitlines()[0]
    if chosen == "native":
        raise RuntimeError(f"`{VARIABLE}=native` must find or compile the native kernels, and "
                           f"cannot: {reason}. Run `{COMMAND}` to see more, or unset it.")
    _say(f"running on TF ops, several times slower than native kernels: {reason}. "
         f"`{COMMAND}` compiles them.")
    return Kernels(None, "TF ops", reason)


def _library(tensorflow: TensorFlowBuild | None, must: bool) -> pathlib.Path:
    if tensorflow is None:
        raise CompilationError("the TensorFlow that is imported is not an installed one")
    found = library.find(tensorflow)
    if found:
        return found
    others = library.installed_for()
    if others and not must:
        raise CompilationError(
            f"the installed ones are for TensorFlow {', '.join(others)} or other sources, this "
            f"is {tensorflow.version}")
    failure = library.failure(tensorflow)
    if failure.exists() and not must:
        raise CompilationError(f"compiling them failed before, see {failure}")
    return _compile(tensorflow)


def _compile(tensorflow: TensorFlowBuild) -> pathlib.Path:
    trust.check(library.cache())
    if compiler.find() is None:
        raise CompilationError(build.NO_COMPILER)
    _say(f"compiling the native kernels for TensorFlow {tensorflow.version}, once, in about "
         f"20 seconds ...")
    try:
        return build.build_once(tensorflow, library.cache())
    except CompilationError as error:
        failure = library.failure(tensorflow)
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
    settings.check_level(level)
    records = _text(functions.tpu_embedding_rules).splitlines()
    return Kernels(ops, f"native ({level})",
                   rules=frozenset(record.partition("|")[0] for record in records))


def _text(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return function().decode()


def _say(line: str) -> None:
    print(f"tpu_estimator_embedding: {line}", file=sys.stderr, flush=True)
