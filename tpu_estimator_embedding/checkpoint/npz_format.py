# SPDX-License-Identifier: Apache-2.0
"""Tables and variables in one `.npz` file of NumPy, read and written a few rows at a time.

`numpy.load` reads such a file. Arrays have the names of a TPUEstimator checkpoint; tables are in
the order of ids.
"""

import contextlib
import errno
import math
import os
import pathlib
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import ml_dtypes
import numpy as np

from tpu_estimator_embedding.checkpoint.bundle import Advance
from tpu_estimator_embedding.checkpoint.files import new_files
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    StoredTensor,
    bytes_of,
    tensorflow_number,
)
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY

_SUFFIX = ".npy"
# The end of an archive: signature, numbers of two disks, entries on this disk and in all.
_END = struct.Struct("<4s4H10x")
_MANY = 0xFFFF  # entries, whose number stands elsewhere
# The format of NumPy has no bfloat16: its values are stored as pairs of bytes.
_BFLOAT16, _PAIR = np.dtype(ml_dtypes.bfloat16), np.dtype("V2")


@contextlib.contextmanager
def _damage_named(complaint: str) -> Iterator[None]:
    """Raises ValueError with a complaint where an archive is damaged or of an unknown kind."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
            SyntaxError, tokenize.TokenError, ValueError) as error:
        raise ValueError(f"{complaint}: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # of an entry that begins before the file
            raise
        raise ValueError(f"{complaint}: {error}") from error


class NpzTensor(StoredTensor):
    """An array in an archive. Rows are read in order; seeking backwards reopens the file."""

    def __init__(self, path: pathlib.Path, member: str):
        self._path, self._member = path, member
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            shape, self._fortran, dtype = _read_header(file)
            self._data_start = file.tell()
            size = archive.getinfo(member).file_size
        if self._fortran:
            raise ValueError(f"`checkpoint` must hold arrays in C order, got {member} in {path} "
                             "in Fortran order.")
        super().__init__(tensorflow_number(_BFLOAT16 if dtype == _PAIR else dtype), shape)
        expected = self._data_start + math.prod(shape) * dtype.itemsize
        if size != expected:  # or the checksum, which is at the end, might never be read
            raise ValueError(f"{member} of shape {shape} must have {expected} bytes, got {size}.")
        self._position = 0
        self._file: IO[bytes] | None = None

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        self._read_into(bytes_of(rows), start * self.row_bytes)
        return rows

    def chunks(self) -> Iterator[bytes | memoryview]:
        if self.shape:
            yield from super().chunks()
            return
        value = np.empty(1, self.numpy_dtype)
        self._read_into(bytes_of(value), 0)
        yield bytes_of(value)

    def _read_into(self, buffer: memoryview, position: int) -> None:
        with _damage_named(f"`checkpoint` must be intact, got {self._path} with a damaged "
                           f"{self._member}"):
            file = self._file_at(position)
            self._position = position + len(buffer)
            while buffer:
                content = file.read(len(buffer))
                if not content:
                    raise zipfile.BadZipFile("it is truncated")
                buffer[:len(content)] = content
                buffer = buffer[len(content):]

    def _file_at(self, position: int) -> IO[bytes]:
        """Returns the file at a position; reads up to it, so that zipfile checks all bytes."""
        if self._file is None or position != self._position:
            if self._file is not None:
                self._file.close()
            with zipfile.ZipFile(self._path) as archive:
                self._file = archive.open(self._member)
            self._file.read(self._data_start)
            self._file.seek(position, 1)
        return self._file


def read_npz(path: pathlib.Path) -> tuple[dict[str, StoredTensor], str | None]:
    """Returns name -> array, and the record of layouts or None.

    Raises:
        ValueError: if this is not a complete `.npz` file.
    """
    with _damage_named(f"`checkpoint` must be an intact .npz file, got {path}"):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        _check_is_complete(path, len(names))
        members = [name for name in names if name.endswith(_SUFFIX)]
        if not members:
            raise ValueError("it holds no arrays.")
        if others := sorted(set(names) - set(members)):
            raise ValueError(f"it holds {', '.join(map(repr, others))}, which is not an array.")
        twice = sorted({name for name in members if members.count(name) > 1})
        if twice:
            raise ValueError(f"it holds {', '.join(map(repr, twice))} more than once.")
        record = f"{TABLE_LAYOUTS_KEY}{_SUFFIX}"
        tensors: dict[str, StoredTensor] = {
            name.removesuffix(_SUFFIX): NpzTensor(path, name) for name in members
            if name != record}
    if record not in members:
        return tensors, None
    with (_damage_named(f"`checkpoint` must be an intact .npz file, got {path}"),
          np.load(path) as arrays):
        return tensors, str(arrays[TABLE_LAYOUTS_KEY])


def _check_is_complete(path: pathlib.Path, found: int) -> None:
    """Checks that all entries were found, of which zipfile passes over those behind damage."""
    with path.open("rb") as file:
        file.seek(-_END.size, os.SEEK_END)
        signature, *_, expected = _END.unpack(file.read())
    if signature == b"PK\5\6" and expected not in (found, _MANY):
        raise ValueError(f"it must hold {expected} entries, got {found}.")


def write_npz(path: pathlib.Path, tensors: Mapping[str, StoredTensor], record: str,
              advance: Advance) -> None:
    """Writes arrays to a file, which gets its name when it is complete.

    Args:
        path: path of the file, with `.npz`.
        tensors: name -> tensor; tables in the order of ids.
        record: the record of layouts, which identifies the tables.
        advance: called with the number of bytes of every write.

    Raises:
        FileExistsError: if the file exists.
        OSError: if it cannot be written.
        ValueError: if a tensor contains strings, two have the same name for `numpy.load`, or a
            source is damaged.
    """
    for name in tensors:  # numpy.load accepts names with and without the suffix
        if name in ("", TABLE_LAYOUTS_KEY) or f"{name}{_SUFFIX}" in tensors:
            raise ValueError(f"`tensors` has the name {name!r}, which numpy.load could not find: a "
                             "name must not be empty, that of the layout record, or that of "
                             "another tensor without its .npy.")
    total = sum(tensor.size for tensor in tensors.values())
    with new_files([path], total) as [unfinished], zipfile.ZipFile(
            unfinished, "x", allowZip64=True) as archive:
        for name in sorted(tensors):
            with archive.open(f"{name}{_SUFFIX}", "w", force_zip64=True) as file:
                _write_header(file, tensors[name].shape, tensors[name].numpy_dtype)
                for chunk in tensors[name].chunks():
                    file.write(chunk)
                    advance(len(chunk))
        with archive.open(f"{TABLE_LAYOUTS_KEY}{_SUFFIX}", "w") as file:
            np.save(file, np.array(record))


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = (np.lib.format.read_array_header_1_0 if version == (1, 0)
            else np.lib.format.read_array_header_2_0)
    return read(file)


def _write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    np.lib.format.write_array_header_1_0(file, {
        "descr": np.lib.format.dtype_to_descr(_PAIR if dtype == _BFLOAT16 else dtype),
        "fortran_order": False, "shape": shape})
