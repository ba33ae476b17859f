# SPDX-License-Identifier: Apache-2.0
"""Files that get their names only when they are complete."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def new_files(paths: Sequence[pathlib.Path], size: int) -> Iterator[list[pathlib.Path]]:
    """Yields temporary paths to write to, which are renamed to `paths` in order at the end.

    Args:
        paths: final paths of the files, all in one directory, which is created.
        size: approximate total number of bytes.

    Raises:
        FileExistsError: if one of the files exists.
        OSError: if the disk is full or the directory is not writable.
    """
    directory = paths[0].parent
    check_absent(paths)
    unfinished = [path.with_name(f".{path.name}.incomplete-{os.getpid()}") for path in paths]
    done: list[pathlib.Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_space(directory, size)
        yield unfinished
        check_absent(paths)
        for source, path in zip(unfinished, paths, strict=True):
            _flush(source)
            source.rename(path)
            done.append(path)
    except BaseException as error:
        for path in (*unfinished, *done):
            with contextlib.suppress(OSError):
                path.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(f"`output` must be writable, got {paths[0]}: "
                          f"{error.strerror}.") from error
        raise


def check_absent(paths: Sequence[pathlib.Path]) -> None:
    """Raises FileExistsError if one of the files exists."""
    for path in paths:
        if os.path.lexists(path):  # also a symbolic link to nothing
            raise FileExistsError(f"`output` must be a new name, got {path}, which exists.")


def _check_space(directory: pathlib.Path, size: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < size:
        raise OSError(f"`output` must be on a disk with {size} bytes free, got {directory} with "
                      f"{free}.")


def _flush(path: pathlib.Path) -> None:
    """Flushes files to disk before they are renamed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
