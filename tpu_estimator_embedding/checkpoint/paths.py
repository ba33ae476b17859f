# SPDX-License-Identifier: Apache-2.0
"""The paths of the files of a checkpoint."""

import os
import pathlib
import re

from tpu_estimator_embedding import checks

STATE_FILE = "checkpoint"  # names the newest checkpoint of a directory


def index_file(prefix: pathlib.Path) -> pathlib.Path:
    """Returns the file that says which tensors there are."""
    return prefix.with_name(f"{prefix.name}.index")


def data_file(prefix: pathlib.Path, shard: int, shards: int) -> pathlib.Path:
    """Returns one of the files that hold the values.

    >>> data_file(pathlib.Path("model.ckpt-100"), 0, 1).name
    'model.ckpt-100.data-00000-of-00001'
    """
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def local_path(argument: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path.

    Raises:
        ValueError: if it is one of a storage service, as `gs://bucket/model`.
    """
    checks.check("://" not in os.fspath(path), argument, "a path on this machine", os.fspath(path),
                 "Copy the files, with a tool of the storage service or tf.io.gfile.copy.")
    return pathlib.Path(path)


def find_checkpoint(path: pathlib.Path) -> pathlib.Path:
    """Returns the prefix of a checkpoint; of a directory, that of its newest.

    A name with `.index` or `.data-...` at its end, as a shell completes it, will do.

    Raises:
        FileNotFoundError: if the directory has none.
    """
    if not path.is_dir():
        return path.with_name(re.sub(r"\.(index|data-\d{5}-of-\d{5})$", "", path.name))
    state = path / STATE_FILE
    found = re.search(r'^model_checkpoint_path: "(.*)"$',
                      state.read_text(encoding="utf-8") if state.exists() else "", re.MULTILINE)
    if found is None:
        raise FileNotFoundError("`checkpoint` must be a checkpoint or a directory whose file "
                                f"`{STATE_FILE}` names one, got {path}.")
    newest = path / found[1]
    moved = path / newest.name  # the file names the place at which it was written
    return newest if index_file(newest).exists() or not index_file(moved).exists() else moved


def write_state(prefix: pathlib.Path) -> bool:
    """Makes the checkpoint the newest of its directory, unless that names another.

    Returns:
        Whether it did.
    """
    state = prefix.with_name(STATE_FILE)
    if state.exists():
        return False
    state.write_text(f'model_checkpoint_path: "{prefix.name}"\n'
                     f'all_model_checkpoint_paths: "{prefix.name}"\n', encoding="utf-8")
    return True
