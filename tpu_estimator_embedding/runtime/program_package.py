# SPDX-License-Identifier: Apache-2.0
"""The package that a program is part of, if it needs `python -m` to run.

Programs such as `trainer/task.py` import other files of their folder relatively, or by the name of
the folder. `python trainer/task.py` does not find these; `python -m trainer.task` does.
"""

import ast
import pathlib
from collections.abc import Iterator
from typing import NamedTuple


class ProgramPackage(NamedTuple):
    """The package of a program.

    Attributes:
        directory: that has the package, which `python -m` is started in.
        name: the dotted name of the package.
        is_relative: whether the program imports from it relatively.
    """

    directory: pathlib.Path
    name: str
    is_relative: bool


def package_of(path: pathlib.Path) -> ProgramPackage | None:
    """Returns the package that a file imports from; None if it runs without one.

    A file that imports another one of its own folder by its bare name, as scripts do, has none.
    """
    try:
        imported = list(_imported(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return None
    folder = path.resolve().parent
    words = [words for level, words in imported if not level]
    if any(one[0] != path.stem and _is_in(folder, one[:1]) for one in words):
        return None
    level = max((level for level, _ in imported), default=0)
    if level:
        top = folder.parents[level - 2] if level > 1 else folder
        while (top.parent / "__init__.py").exists():
            top = top.parent
        return _package(folder, top, is_relative=True)
    tops = [above for above in (folder, *folder.parents) for one in words
            if above.name == one[0] and len(one) > 1 and _is_in(above, one[1:2])]
    return _package(folder, tops[0], is_relative=False) if tops else None


def import_beside(program: pathlib.Path, module: pathlib.Path, name: str) -> str:
    """Returns the statement with which a module imports one that is beside the program.

    Args:
        program: the file that runs.
        module: a file that it imports, or the same.
        name: of the module beside the program.
    """
    package = package_of(program)
    if package is None:
        return f"import {name}\n"
    of_module = package_of(module) if module.parent == program.parent else None
    return f"from {'.' if of_module and of_module.is_relative else package.name} import {name}\n"


def _imported(tree: ast.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the level, 0 if it is absolute, and the words of each name that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            yield from ((node.level, (*module, alias.name)) for alias in node.names)


def _is_in(folder: pathlib.Path, words: tuple[str, ...]) -> bool:
    file = folder.joinpath(*words)
    return file.with_name(f"{file.name}.py").is_file() or file.is_dir()


def _package(folder: pathlib.Path, top: pathlib.Path, *, is_relative: bool
             ) -> ProgramPackage | None:
    names = (top.name, *folder.relative_to(top).parts)
    if not all(name.isidentifier() for name in names):
        return None
    return ProgramPackage(top.parent, ".".join(names), is_relative)
