# SPDX-License-Identifier: Apache-2.0
"""The files that `migrate` reads and writes."""

import difflib
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence

from tpu_estimator_embedding.migration.rewrite import MigratedFile

ORIGINAL = ".orig"
_SKIPPED = ("__pycache__", "node_modules")
_WRITTEN = ".tpu_estimator_embedding_migrate"
_WRITTEN_TEXT = ("`tpu-estimator-embedding migrate` wrote this directory. It leaves the directory "
                 "out when\nit reads the one around it.\n")
# A file or directory that shows what the directory around it is.
_LEFT_OUT = {"pyvenv.cfg": "a virtual environment", "conda-meta": "a conda environment",
             _WRITTEN: "written by migrate"}


def find(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] | None = None
         ) -> list[tuple[pathlib.Path, pathlib.PurePath]]:
    """Returns the Python files given, and those in the directories given, by path.

    Args:
        paths: the files and directories.
        output: a directory in one of these, whose files were written before and are left out. So
            are the directories of `left_out`.

    Returns:
        For each, its path and its name relative to the argument.

    Raises:
        FileNotFoundError: there is no such file, or no Python file in any of the directories.
    """
    found: dict[pathlib.Path, pathlib.PurePath] = {}
    written = pathlib.Path(output).resolve() if output else None
    for given in map(pathlib.Path, paths):
        if given.is_dir():
            root = pathlib.PurePath(given.name)  # empty for ".", whose files go to the top
            found.update({folder / name: root / (folder / name).relative_to(given)
                          for folder, names, _ in _walk(given, written) for name in names
                          if name.endswith(".py")})
        elif given.is_file():
            found.setdefault(given, pathlib.PurePath(given.name))
        else:
            raise FileNotFoundError(f"There is no file or directory {str(given)!r}.")
    if not found:
        given_paths = ", ".join(repr(os.fspath(path)) for path in paths)
        without = ", ".join(f"{path} ({reason})" for path, reason in left_out(paths).items())
        raise FileNotFoundError(
            f"There is no Python file in {given_paths}{f' but in {without}' * bool(without)}. Pass "
            "the program, or the directory that has it.")
    return sorted(found.items())


def left_out(paths: Sequence[str | os.PathLike[str]]) -> dict[pathlib.Path, str]:
    """Returns the directories that `find` leaves out unless they are given, and what they are."""
    found: dict[pathlib.Path, str] = {}
    for path in paths:
        for _, _, skipped in _walk(pathlib.Path(path)):
            found |= skipped
    given = [pathlib.Path(path).resolve() for path in paths]
    return {path: reason for path, reason in found.items()
            if not any(one.is_relative_to(path.resolve()) for one in given)}


def diff(files: Iterable[MigratedFile]) -> Iterator[bytes]:
    """Yields the lines of a unified diff for `patch -p1`, with the bytes of the files."""
    for file in files:
        if file.before == file.after:
            continue
        name = str(file.path).lstrip("/")
        old = f"a/{name}" if file.before else "/dev/null"
        lines = difflib.diff_bytes(
            difflib.unified_diff, file.before.splitlines(keepends=True),
            file.after.splitlines(keepends=True), old.encode(), f"b/{name}".encode())
        for line in lines:
            yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def write_in_place(files: Iterable[MigratedFile]) -> list[pathlib.Path]:
    """Replaces changed files, and keeps the first original of each beside it as `.orig`.

    A link stays one: the file that it names is replaced.
    """
    written = []
    for file in files:
        if file.before == file.after:
            continue
        path = file.path.resolve() if file.path.is_symlink() else file.path
        original = path.with_name(path.name + ORIGINAL)
        if file.before and not original.exists():
            _write(original, file.before, path)
        _write(path, file.after, path)
        written.append(file.path)
    return written


def write_to(directory: str | os.PathLike[str],
             files: Iterable[MigratedFile]) -> list[pathlib.Path]:
    """Writes every file, changed or not, into a directory, and a mark that `find` knows.

    Raises:
        FileExistsError: one of them exists already, with different contents.
    """
    new = [(pathlib.Path(directory, file.name), file) for file in files]
    for path, file in new:
        if path.exists() and path.read_bytes() != file.after:
            raise FileExistsError(f"{str(path)!r} exists already. Give another --output, or "
                                  "remove it.")
    for path, file in new:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, file.after, file.path)
    pathlib.Path(directory, _WRITTEN).write_text(_WRITTEN_TEXT)
    return [path for path, _ in new]


def _walk(directory: pathlib.Path, output: pathlib.Path | None = None
          ) -> Iterator[tuple[pathlib.Path, list[str], dict[pathlib.Path, str]]]:
    """Yields folders, the names of their files, and the folders in them that are left out."""
    for folder, subfolders, names in os.walk(directory):
        inside = [pathlib.Path(folder, name) for name in sorted(subfolders)
                  if not name.startswith(".") and name not in _SKIPPED]
        skipped = {path: reason for path in inside if path.resolve() != output
                   for sign, reason in _LEFT_OUT.items() if (path / sign).exists()}
        subfolders[:] = [path.name for path in inside
                         if path not in skipped and path.resolve() != output]
        yield pathlib.Path(folder), names, skipped


def _write(path: pathlib.Path, data: bytes, like: pathlib.Path) -> None:
    """Writes a file that appears under its name only when it is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, like.stat().st_mode if like.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
