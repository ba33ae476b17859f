# SPDX-License-Identifier: Apache-2.0
"""Arrays in a checkpoint of Orbax, read and written a few rows at a time.

Orbax keeps a tree of arrays in one directory: `_METADATA` (JSON) lists the leaves, and the arrays
are in Zarr arrays `<leaf>/` of an OCDBT database, whose root is `manifest.ocdbt`. TensorStore,
Orbax's own storage library, reads and writes both without JAX. A `CheckpointManager` puts such a
directory, called `default`, below one directory per step; Keras's `OrbaxCheckpoint` calls it
`pytree`, and puts the model's configuration beside it. Zarr 3, which it writes, is only read.
"""

import base64
import binascii
import dataclasses
import json
import math
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tpu_estimator_embedding.checkpoint.bundle import Advance
from tpu_estimator_embedding.checkpoint.files import new_directory
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    BLOCK_BYTES,
    StoredTensor,
    bytes_of,
    tensorflow_number,
)

METADATA = "_METADATA"
_ITEMS = ("default", "pytree")  # the item of a CheckpointManager, and of Keras's OrbaxCheckpoint
_ARRAY_METADATA = "array_metadatas"
_SHARDING = "_sharding"
_DATABASE = re.compile(r"manifest\.ocdbt|d|ocdbt\.process_\d+")  # files that hold the arrays
_OTHER_FILES = {_ARRAY_METADATA, METADATA, "_CHECKPOINT_METADATA", _SHARDING,
                "commit_success.txt"}
_STEP_FILES = {"_CHECKPOINT_METADATA", "commit_success.txt", "model_config"}
_ARRAYS = ("jax.Array", "np.ndarray")
_EMPTY = "Dict"  # a dictionary without leaves


@dataclasses.dataclass(frozen=True)
class OrbaxDirectory:
    """The place of a checkpoint.

    Attributes:
        path: the directory of a step, or of the arrays themselves.
        item: the directory of the arrays: `path`, or `default` or `pytree` in it.
    """

    path: pathlib.Path
    item: pathlib.Path


class OrbaxTensor(StoredTensor):
    """An array in a database.

    Arrays are stored in chunks, which are read as a whole. Orbax makes one chunk of each shard of
    a device; such a chunk stays in memory until a row of another is read.
    """

    def __init__(self, array: Any, leaf: str):
        super().__init__(tensorflow_number(np.dtype(array.dtype.numpy_dtype)), tuple(array.shape))
        self._array, self._leaf = array, leaf
        self._chunk_rows = int(array.chunk_layout.read_chunk.shape[0]) if self.shape else 1
        self._start, self._held = 0, np.empty((0, *self.shape[1:]), self.numpy_dtype)

    @property
    def zarr_dtype(self) -> str:
        """The name of the values' type in Zarr."""
        return str(self._array.spec().to_json()["metadata"]["dtype"])

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        if self._chunk_rows * self.row_bytes <= BLOCK_BYTES:
            return self._read(slice(start, stop))
        pieces = []
        while start < stop:
            self._hold(start)
            end = min(stop, self._start + len(self._held))
            pieces.append(self._held[start - self._start:end - self._start])
            start = end
        return np.concatenate(pieces) if pieces else self._held[:0]

    def chunks(self) -> Iterator[bytes | memoryview]:
        if self.shape:
            yield from super().chunks()
        else:
            yield bytes_of(self._read(()))

    def _hold(self, row: int) -> None:
        if not self._start <= row < self._start + len(self._held):
            self._held = self._held[:0]  # before the next one is read
            self._start = row - row % self._chunk_rows
            self._held = self._read(slice(self._start, min(
                self._start + self._chunk_rows, self.shape[0])))

    def _read(self, rows: slice | tuple[()]) -> np.ndarray:
        try:
            return np.asarray(self._array[rows].read().result())
        except ValueError as error:
            raise ValueError(f"`checkpoint` must be intact, got a damaged {self._leaf!r}: "
                             f"{_first_line(error)}") from error


def find_orbax(path: pathlib.Path) -> OrbaxDirectory | None:
    """Returns the checkpoint of Orbax at a path; for a directory of steps, that of the newest.

    Returns None if the path is something else.
    """
    if (own := _orbax_at(path)) is not None:
        return own
    steps = [step for step in path.glob("*") if step.name.isdecimal()
             and _orbax_at(step) is not None] if path.is_dir() else []
    newest = max(steps, key=lambda step: int(step.name), default=None)
    return None if newest is None else _orbax_at(newest)


def is_orbax(path: pathlib.Path) -> bool:
    """Whether a path is a checkpoint of Orbax itself, and not a directory of steps."""
    return _orbax_at(path) is not None


def _orbax_at(path: pathlib.Path) -> OrbaxDirectory | None:
    for item in (path, *(path / name for name in _ITEMS)):
        if (item / METADATA).is_file():
            return OrbaxDirectory(path, item)
    return None


def read_orbax(place: OrbaxDirectory) -> dict[tuple[str, ...], OrbaxTensor]:
    """Returns path in the tree -> array, for all leaves of a checkpoint.

    Raises:
        ImportError: if TensorStore is missing.
        ValueError: if the checkpoint is damaged, or stored in a way not known here.
    """
    _check_files(place)
    metadata = _read_json(place.item / METADATA)
    if not metadata.get("use_ocdbt"):
        raise ValueError(f"{place.item} must be stored with OCDBT, got use_ocdbt="
                         f"{metadata.get('use_ocdbt')}. Save it with "
                         "orbax.checkpoint.StandardCheckpointer.")
    driver = "zarr3" if metadata.get("use_zarr3") else "zarr"
    found = {}
    for leaf in metadata.get("tree_metadata", {}).values():
        keys, kind = leaf["key_metadata"], leaf["value_metadata"]["value_type"]
        path = tuple(str(key["key"]) for key in keys)
        if kind == _EMPTY:
            continue
        if kind not in _ARRAYS or any(key["key_type"] != 2 for key in keys):  # 2: of a dictionary
            raise ValueError(f"{place.item} must be a tree of dictionaries of arrays, got "
                             f"{'/'.join(path)!r}, a {kind}. Save model.get_state_tree().")
        found[path] = _open(place.item, leaf_name(path), driver)
    return found


def check_template(place: OrbaxDirectory) -> None:
    """Raises ValueError if checkpoints like this one can only be read."""
    if _read_json(place.item / METADATA).get("use_zarr3"):
        raise ValueError(f"`template` must be stored with Zarr 2, got {place.item} with Zarr 3, as "
                         "keras.callbacks.OrbaxCheckpoint writes it. Save the model with "
                         "orbax.checkpoint.StandardCheckpointer.")


def devices_of(place: OrbaxDirectory) -> dict[str, int]:
    """Returns leaf -> number of devices that shared it, for those of which Orbax recorded it.

    Raises:
        ValueError: if the record is damaged.
    """
    path, found = place.item / _SHARDING, {}
    if not path.is_file():
        return {}
    try:
        for name, text in _read_json(path).items():
            sharding = json.loads(text)
            if sharding["sharding_type"] == "NamedSharding":
                leaf = base64.b64decode(name, validate=True).decode()
                found[leaf] = math.prod(sharding["shape"])
    except (TypeError, KeyError, binascii.Error) as error:
        raise ValueError(f"`checkpoint` must be intact, got a damaged {path}: {error!r}") from error
    return found


def leaf_name(path: tuple[str, ...]) -> str:
    """Returns the name of a leaf in the database.

    >>> leaf_name(("trainable_variables", "dense", "kernel"))
    'trainable_variables.dense.kernel'
    """
    return ".".join(path)


def write_orbax(path: pathlib.Path, template: OrbaxDirectory, tensors: Mapping[str, StoredTensor],
                advance: Advance) -> None:
    """Writes a checkpoint, whose directory gets its name when it is complete.

    Args:
        path: the new directory.
        template: a checkpoint with the same leaves, whose other files are copied.
        tensors: name of a leaf -> its values, for every leaf.
        advance: called with the number of bytes of every write.

    Raises:
        FileExistsError: if the directory exists.
        OSError: if it cannot be written.
        ValueError: if a source is damaged.
    """
    total = sum(tensor.size for tensor in tensors.values())
    with new_directory(path, total) as unfinished:
        item = unfinished / template.item.relative_to(template.path)
        shutil.copytree(template.path, unfinished, dirs_exist_ok=True, ignore=_arrays)
        _write_metadata(template.item, item, tensors)
        sources = read_orbax(template)
        for leaf, tensor in tensors.items():
            [source] = [found for key, found in sources.items() if leaf_name(key) == leaf]
            _write_array(item, leaf, source.zarr_dtype, tensor, advance)


def _check_files(place: OrbaxDirectory) -> None:
    unknown = {file.name for file in place.item.iterdir() if file.name not in _OTHER_FILES
               and not _DATABASE.fullmatch(file.name)}
    if place.item != place.path:
        unknown |= {file.name for file in place.path.iterdir()} - {
            *_STEP_FILES, place.item.name}
    if unknown:
        raise ValueError(f"{place.path} must have one tree of arrays, got {sorted(unknown)} as "
                         "well. Save model.get_state_tree() alone.")


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"`checkpoint` must be intact, got a damaged {path}: "
                         f"{_first_line(error)}") from error


def _arrays(directory: str, names: list[str]) -> list[str]:
    """Returns what `copytree` leaves out: the database."""
    return [name for name in names if _DATABASE.fullmatch(name)
            and pathlib.Path(directory, METADATA).exists()]


def _write_metadata(source: pathlib.Path, item: pathlib.Path,
                    tensors: Mapping[str, StoredTensor]) -> None:
    """Writes the shapes of arrays and their chunks, which can differ from those of the template."""
    metadata = _read_json(source / METADATA)
    for leaf in metadata["tree_metadata"].values():
        name = leaf_name(tuple(str(key["key"]) for key in leaf["key_metadata"]))
        if leaf["value_metadata"]["value_type"] != _EMPTY:
            leaf["value_metadata"]["write_shape"] = _chunk(tensors[name])
    (item / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
    for file in (item / _ARRAY_METADATA).glob("*"):
        of_arrays = _read_json(file)
        for array in of_arrays["array_metadatas"]:
            tensor = tensors[array["array_metadata"]["param_name"]]
            array["array_metadata"].update(write_shape=_chunk(tensor), chunk_shape=_chunk(tensor))
        file.write_text(json.dumps(of_arrays), encoding="utf-8")


def _chunk(tensor: StoredTensor) -> list[int]:
    """Returns the shape of a chunk: the rows that are written at once."""
    if not tensor.shape:
        return []
    rows = max(1, BLOCK_BYTES // max(1, tensor.row_bytes))
    return [max(1, min(rows, tensor.shape[0])), *(max(1, size) for size in tensor.shape[1:])]


def _write_array(item: pathlib.Path, leaf: str, zarr_dtype: str, tensor: StoredTensor,
                 advance: Advance) -> None:
    array = _tensorstore().open({
        **_spec(item, leaf), "create": True, "store_data_equal_to_fill_value": True,
        "metadata": {
            "shape": list(tensor.shape), "chunks": _chunk(tensor), "dtype": zarr_dtype,
            "compressor": {"id": "zstd", "level": 1}, "fill_value": None, "order": "C",
            "dimension_separator": ".", "filters": None, "zarr_format": 2}}).result()
    if not tensor.shape:
        array.write(tensor.read()).result()
        advance(tensor.size)
        return
    for start, stop in tensor.row_blocks():
        rows = tensor.read_rows(start, stop)
        array[start:stop].write(rows).result()
        advance(rows.nbytes)


def _open(item: pathlib.Path, leaf: str, driver: str) -> OrbaxTensor:
    spec = {**_spec(item, leaf), "driver": driver}
    try:
        return OrbaxTensor(_tensorstore().open(spec, read=True).result(), leaf)
    except ValueError as error:
        raise ValueError(f"`checkpoint` must be intact, got {item} without a readable {leaf!r}: "
                         f"{_first_line(error)}") from error


def _spec(item: pathlib.Path, leaf: str) -> dict[str, object]:
    return {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": {
        "driver": "file", "path": f"{item.absolute()}/"}, "path": f"{leaf}/"}}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].split(" [source locations")[0]


def _tensorstore() -> ModuleType:
    try:
        import tensorstore
    except ImportError as error:
        raise ImportError(f"A checkpoint of Orbax needs TensorStore, which does not load: {error}. "
                          "Run `pip install 'tpu_estimator_embedding[orbax]'`.") from error
    return tensorstore
