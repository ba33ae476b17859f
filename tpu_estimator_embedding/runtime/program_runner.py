# SPDX-License-Identifier: Apache-2.0
"""Runs a program as `python` itself would, after `install()`."""

import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any

from tpu_estimator_embedding.runtime.program_package import package_of
from tpu_estimator_embedding.runtime.program_setup import ProgramSetup

PREFIX = "tpu-estimator-embedding: "
_DEFAULT_SETUP = ProgramSetup()


class NotStartedError(Exception):
    """The program could not be started; the message says why.

    Attributes:
        status: the exit status for this error.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments at the first `--`: those of a command, and those of the program it runs.

    >>> split_arguments(["train.py", "--seeds", "3", "--", "--steps", "10"])
    (['train.py', '--seeds', '3'], ['--steps', '10'])
    """
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:place]), list(arguments[place + 1:])


def run_file(path: str, arguments: Sequence[str],
             set_up: Callable[[], None] = _DEFAULT_SETUP) -> None:
    """Runs a file as `python path *arguments` does, after `set_up`.

    Raises:
        NotStartedError: if the file cannot be read, or `install` raises an error.
        BaseException: any exception of the program, including SystemExit.
    """
    file, source = os.path.abspath(path), read_program(path)
    _install(os.path.dirname(os.path.realpath(path)), set_up)
    sys.argv = [path, *arguments]
    main = _new_main(file)
    vars(main)["__loader__"] = importlib.machinery.SourceFileLoader("__main__", file)
    _execute(main, lambda: compile(source, file, "exec", dont_inherit=True))


def read_program(path: str) -> bytes:
    """Returns the content of a file.

    Raises:
        NotStartedError: if the file cannot be read.
    """
    file = os.path.abspath(path)
    try:
        with io.open_code(file) as stream:
            return stream.read()
    except OSError as error:
        raise NotStartedError(
            f"can't open file {file!r}: [Errno {error.errno}] {error.strerror}", 2) from error


def run_program(path: str, arguments: Sequence[str],
                set_up: Callable[[], None] = _DEFAULT_SETUP) -> None:
    """Runs a file as `run_file` does; as `run_module` does if it imports from its package.

    Raises:
        NotStartedError, BaseException: as they do.
    """
    package = package_of(pathlib.Path(path))
    if package is None:
        run_file(path, arguments, set_up)
    else:
        run_module(f"{package.name}.{pathlib.Path(path).stem}", arguments, set_up,
                   os.fspath(package.directory))


def run_module(name: str, arguments: Sequence[str],
               set_up: Callable[[], None] = _DEFAULT_SETUP, directory: str | None = None) -> None:
    """Runs a module as `python -m name *arguments` does in a directory, after `set_up`.

    Raises:
        NotStartedError: if the module is not found or has no code, or `install` raises an error.
        BaseException: any exception of the program, including SystemExit.
    """
    # Before the package of the module, which may be part of the program.
    _install(directory or os.getcwd(), set_up)
    sys.argv = ["-m", *arguments]
    spec = _find_module(name)
    sys.argv[0] = spec.origin
    main = _new_main(spec.origin)
    vars(main).update(__loader__=spec.loader, __spec__=spec, __package__=spec.parent)
    _execute(main, lambda: spec.loader.get_code(spec.name))

_ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _install(directory: str, set_up: Callable[[], None]) -> None:
    if not sys.flags.safe_path:  # otherwise python did not add a directory
        sys.path[0] = directory
    try:
        set_up()
    except RuntimeError as error:
        raise NotStartedError(str(error), 1) from error


def _find_module(name: str) -> Any:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"  # as `python -m` does for packages
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise NotStartedError(str(error), 1) from error
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise NotStartedError(f"No module named {name}", 1)
    return spec


def _new_main(file: str) -> ModuleType:
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__file__=file, __builtins__=__builtins__, __cached__=None)
    return main


def _execute(main: ModuleType, load: Callable[[], CodeType]) -> None:
    try:
        code: CodeType = load()
        exec(code, vars(main))
    except SystemExit:
        raise
    except BaseException:
        # Python prints the traceback, with the program's excepthook and exit status; the hook
        # only removes the frames that do not belong to the program.
        sys.excepthook = _from_program(sys.excepthook, vars(main))
        raise


def _from_program(excepthook: _ExceptHook, program: dict[str, object]) -> _ExceptHook:
    def hook(kind: type[BaseException], error: BaseException,
             traceback: TracebackType | None) -> None:
        while traceback is not None and traceback.tb_frame.f_globals is not program:
            traceback = traceback.tb_next
        excepthook(kind, error.with_traceback(traceback), traceback)
        if sentence := hint(error):
            print(f"{PREFIX}{sentence}", file=sys.stderr)

    return hook


_API = re.compile(r"tensorflow(?:\._api\.v2)?(?:\.(?!python|compat)([\w.]+))?"
                  r"|tensorflow_estimator\.python\.estimator\.api\._v2\.([\w.]+)")


def hint(error: BaseException) -> str:
    """Returns one sentence; empty if the error needs no hint."""
    if not isinstance(error, AttributeError):
        return ""
    if error.name == "value" and isinstance(error.obj, int | None):
        return ("In TensorFlow 2, sizes of a shape are ints without `.value`. Run the program "
                "with `run --tf1`, or call tf.compat.v1.disable_v2_tensorshape() in it.")
    module = error.obj.__name__ if isinstance(error.obj, ModuleType) else ""
    api = _API.fullmatch(module)
    if not api or not error.name:
        return ""
    below = api[1] or api[2] or ""
    found = sys.modules.get("tensorflow.compat.v1")
    for name in [*filter(None, below.split(".")), error.name]:
        found = getattr(found, name, None)
    if found is None:
        return ""
    path = ".".join(filter(None, ("tf", below, error.name)))
    return (f"{path} is a name of TensorFlow 1.x. Run the program with `run --tf1`, or write "
            f"`import tensorflow.compat.v1 as tf` in it.")
