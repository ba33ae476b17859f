# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint: their paths, outputs that get their names when complete, progress."""

import contextlib
import logging
import os
import pathlib
import re
import shutil
import socket
from collections.abc import Iterator, Sequence

import tqdm

from tpu_estimator_embedding import checks, figures

STATE_FILE = "checkpoint"  # contains the name of the newest checkpoint of a directory
_FILE_ENDING = re.compile(r"\.(index|data-\d{5}-of-\d{5})$")
_DELAY = 1  # seconds; shorter work shows no progress bar
_LOG = logging.getLogger("tpu_estimator_embedding")


def index_file(prefix: pathlib.Path) -> pathlib.Path:
    """Returns the index file, which lists the tensors."""
    return prefix.with_name(f"{prefix.name}.index")


def data_file(prefix: pathlib.Path, shard: int, shards: int) -> pathlib.Path:
    """Returns one of the data files.

    >>> data_file(pathlib.Path("model.ckpt-100"), 0, 1).name
    'model.ckpt-100.data-00000-of-00001'
    """
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def local_path(argument: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Converts a local path.

    Raises:
        TypeError: if it is no path.
        ValueError: if the path is empty, or belongs to a storage service, such as
            `gs://bucket/model`.
    """
    checks.check_type((str, os.PathLike), argument, "a path", path)
    checks.check(os.fspath(path) != "", argument, "a non-empty path", "",
                 "'.' is the current directory.")
    checks.check("://" not in os.fspath(path), argument, "a path on this machine", os.fspath(path),
                 "Copy the files, with a tool of the storage service or tf.io.gfile.copy.")
    return pathlib.Path(path)


def check_output(prefix: pathlib.Path) -> None:
    """Raises ValueError if a checkpoint could not be read by its own name.

    `find_checkpoint` takes names of files for the checkpoint that they belong to.
    """
    if _FILE_ENDING.search(prefix.name) or prefix.name in (STATE_FILE, ""):
        raise ValueError("`output` must be the prefix of a checkpoint without a file extension, "
                         f"such as model.ckpt-100, got {prefix}.")


def find_checkpoint(path: pathlib.Path) -> pathlib.Path:
    """Returns the prefix of a checkpoint; for a directory, that of its newest checkpoint.

    A path that ends in `.index` or `.data-...`, as completed by a shell, is accepted.

    Raises:
        FileNotFoundError: if the directory has no checkpoint.
    """
    if not path.is_dir():
        return path.with_name(_FILE_ENDING.sub("", path.name))
    state = path / STATE_FILE
    found = re.search(r'^model_checkpoint_path: "(.*)"$',
                      state.read_text(encoding="utf-8") if state.exists() else "", re.MULTILINE)
    if found is None:
        raise FileNotFoundError("`checkpoint` must be a checkpoint or a directory whose file "
                                f"`{STATE_FILE}` names one, got {path}.")
    newest = path / found[1]
    moved = path / newest.name  # the file contains the path at which it was written
    return newest if index_file(newest).exists() or not index_file(moved).exists() else moved


def write_state(prefix: pathlib.Path) -> bool:
    """Makes the checkpoint the newest of its directory, unless another is recorded there.

    Returns:
        Whether the file was written.
    """
    state = prefix.with_name(STATE_FILE)
    if state.exists():
        return False
    state.write_text(f'model_checkpoint_path: "{prefix.name}"\n'
                     f'all_model_checkpoint_paths: "{prefix.name}"\n', encoding="utf-8")
    return True


@contextlib.contextmanager
def new_files(paths: Sequence[pathlib.Path], size: int) -> Iterator[list[pathlib.Path]]:
    """Yields temporary paths to write to, which are renamed to `paths` in order at the end.

    What killed processes of this machine have left under the same names is removed.

    Args:
        paths: final paths of the files, all in one directory, which is created.
        size: approximate total number of bytes.

    Raises:
        FileExistsError: if one of the files exists.
        OSError: if the disk is full or the directory is not writable.
    """
    directory = paths[0].parent
    check_absent(paths)
    unfinished = [_unfinished(path, os.getpid()) for path in paths]
    done: list[pathlib.Path] = []
    _remove_left_overs(paths)
    missing = _missing(directory)
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
        _remove_empty(missing)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(f"`output` must be writable, got {paths[0]}: "
                          f"{error.strerror}.") from error
        raise


@contextlib.contextmanager
def new_directory(path: pathlib.Path, size: int) -> Iterator[pathlib.Path]:
    """Yields a temporary directory to write to, which is renamed to `path` at the end.

    What killed processes of this machine have left under the same name is removed.

    Args:
        path: final path of the directory, whose parent is created.
        size: approximate total number of bytes.

    Raises:
        FileExistsError: if the path exists.
        OSError: if the disk is full or the parent is not writable.
    """
    check_absent([path])
    unfinished = _unfinished(path, os.getpid())
    _remove_left_overs([path])
    missing = _missing(path.parent)
    try:
        unfinished.mkdir(parents=True)
        _check_space(unfinished, size)
        yield unfinished
        check_absent([path])
        for file in unfinished.rglob("*"):
            _flush(file)
        unfinished.rename(path)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(missing)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(f"`output` must be writable, got {path}: {error.strerror}.") from error
        raise


@contextlib.contextmanager
def replace_files(paths: Sequence[pathlib.Path]) -> Iterator[list[pathlib.Path]]:
    """Yields temporary paths to write to, which replace `paths` in order at the end.

    A temporary path follows from the path, so that the next attempt overwrites what a process that
    was killed has left.

    Raises:
        OSError: if the disk is full or the directory is not writable; nothing is then replaced.
    """
    unfinished = [path.with_name(f"{path.name}.tempstate") for path in paths]
    former = [path.with_name(f"{path.name}.tempstate-former") for path in paths]
    kept: list[tuple[pathlib.Path, pathlib.Path | None]] = []  # a file to replace, and its copy
    try:
        yield unfinished
        for path in unfinished:
            _flush(path)
        for source, path, other in zip(unfinished, paths, former, strict=True):
            kept.append((path, other if _keep(path, other) else None))
            source.replace(path)
    except BaseException:
        for path, copy in kept:
            path.unlink(missing_ok=True) if copy is None else copy.replace(path)
        for path in unfinished:
            path.unlink(missing_ok=True)
        raise
    finally:
        for path in former:
            path.unlink(missing_ok=True)


def _keep(path: pathlib.Path, copy: pathlib.Path) -> bool:
    """Gives a file a second name; returns whether there is such a file."""
    copy.unlink(missing_ok=True)
    try:
        copy.hardlink_to(path)
    except FileNotFoundError:
        return False
    except OSError:
        if path.is_dir():
            raise
        path.rename(copy)  # a file system without links
    return True


def _missing(directory: pathlib.Path) -> list[pathlib.Path]:
    """Returns a directory and those above it, as far as they do not exist, from the inside out."""
    return [path for path in (directory, *directory.parents) if not os.path.lexists(path)]


def _remove_empty(directories: Sequence[pathlib.Path]) -> None:
    for path in directories:
        with contextlib.suppress(OSError):  # it has what others wrote, or was never made
            path.rmdir()


def check_absent(paths: Sequence[pathlib.Path]) -> None:
    """Raises FileExistsError if one of the files exists."""
    for path in paths:
        if os.path.lexists(path):  # also a symbolic link to nothing
            raise FileExistsError(f"`output` must be a new name, got {path}, which already exists.")


def check_new_figure(argument: str, path: pathlib.Path) -> None:
    """Checks, before anything else is done, that a figure can be written to a path.

    Raises:
        ValueError: if the name does not end in `.png`, `.svg` or `.pdf`.
        FileExistsError: if the file exists.
        ImportError: if matplotlib is missing.
    """
    figures.check_format(argument, path)
    check_absent([path])
    figures.check_can_draw(argument)


def _unfinished(path: pathlib.Path, process: int | str) -> pathlib.Path:
    """Returns where a process writes what is to become `path`."""
    return path.with_name(f".{path.name}.incomplete-{_machine()}-{process}")


def _machine() -> str:
    """Names the machine, and in it the namespace that gives process ids their meaning.

    Containers and machines may share a disk, where a process of one is not seen by another.
    """
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # not Linux
        namespace = 0
    return f"{socket.gethostname()}-{namespace:x}"


def _remove_left_overs(paths: Sequence[pathlib.Path]) -> None:
    """Removes what processes that have ended left where `paths` were to be written."""
    beginnings = tuple(_unfinished(path, "").name for path in paths)
    found = [one for one in _entries(paths[0].parent) if one.name.startswith(beginnings)
             and _has_ended(one.name.rpartition("-")[2])]
    for one in found:
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                one.unlink()
    removed = [one.name for one in found if not os.path.lexists(one)]
    if removed:
        _LOG.warning("Removed leftovers of killed conversions from %s: %s.",
                     paths[0].parent, ", ".join(removed))


def _entries(directory: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # not there, or not to be read; writing to it says so
        return []


def _has_ended(process: str) -> bool:
    if not process.isdecimal() or int(process) == 0:  # 0 is the own process group
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # of another user, or no process id of this machine
        return False
    return False


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


class _Bar(tqdm.tqdm):
    monitor_interval = 0  # no monitor thread, which would outlive the bar


def progress_bar(what: str, size: int, is_shown: bool) -> tqdm.tqdm:
    """Returns a bar for `size` bytes; use it as a context manager."""
    return _Bar(desc=what, total=size, unit="B", unit_scale=True, unit_divisor=1024,
                delay=_DELAY, disable=not is_shown)
