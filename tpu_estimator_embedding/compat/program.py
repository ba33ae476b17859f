# SPDX-License-Identifier: Apache-2.0
"""Runs a program as `python` itself would, after `install()`."""

import importlib.machinery
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any


class ProgramNotFoundError(Exception):
    """There is no program of that name; the message says what was looked for."""


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Does what `python path *arguments` does.

    Raises:
        ProgramNotFoundError: if the file cannot be read.
        BaseException: whatever the program raises, SystemExit too.
    """
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise ProgramNotFoundError(
            f"can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] "
            f"{error.strerror}") from error
    main = _new_main(os.path.abspath(path))
    vars(main)["__loader__"] = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    _prepare(main, os.path.dirname(os.path.realpath(path)), [path, *arguments])
    _execute(main, lambda: compile(source, main.__file__, "exec", dont_inherit=True))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Does what `python -m name *arguments` does.

    Raises:
        ProgramNotFoundError: if the module cannot be found or has no code.
        BaseException: whatever the program raises, SystemExit too.
    """
    _set_first_path(os.getcwd())
    spec = _find_module(name)
    main = _new_main(spec.origin)
    vars(main).update(__loader__=spec.loader, __spec__=spec, __package__=spec.parent)
    _prepare(main, os.getcwd(), [spec.origin, *arguments])
    _execute(main, lambda: spec.loader.get_code(spec.name))


def _find_module(name: str) -> Any:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"  # what `python -m` runs of a package
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise ProgramNotFoundError(str(error)) from error
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ProgramNotFoundError(f"No module named {name}")
    return spec


def _new_main(file: str) -> ModuleType:
    main = ModuleType("__main__")
    vars(main).update(__file__=file, __builtins__=__builtins__, __cached__=None)
    return main


def _prepare(main: ModuleType, directory: str, argv: list[str]) -> None:
    from tpu_estimator_embedding.compat.install import install
    _set_first_path(directory)  # before install, for the program's own modules come first
    install()
    sys.argv = argv
    sys.modules["__main__"] = main


def _set_first_path(directory: str) -> None:
    if not sys.flags.safe_path:  # else python put nothing there
        sys.path[0] = directory


def _execute(main: ModuleType, load: Any) -> None:
    try:
        code: CodeType = load()
        exec(code, vars(main))
    except SystemExit:
        raise
    except BaseException:
        # Python prints it, with the program's own excepthook and exit status; only the
        # frames that are not the program's are left out.
        sys.excepthook = _from_program(sys.excepthook, vars(main))
        raise


def _from_program(excepthook: Any, program: dict[str, Any]) -> Any:
    def hook(kind: type[BaseException], error: BaseException,
             traceback: TracebackType | None) -> None:
        while traceback is not None and traceback.tb_frame.f_globals is not program:
            traceback = traceback.tb_next
        excepthook(kind, error.with_traceback(traceback), traceback)

    return hook
