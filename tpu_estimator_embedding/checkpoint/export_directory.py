# SPDX-License-Identifier: Apache-2.0
"""The folder of an export, which gets its name when it is complete."""

import contextlib
import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from tensorflow.python.saved_model import model_utils


def write_export(directory: str | os.PathLike[str],
                 assets_extra: Mapping[str, str] | None,
                 write: Callable[[str], object]) -> bytes:
    """Writes an export into a new folder, or nothing if it fails.

    Args:
        directory: where the folder is created. Its name is the time, in seconds.
        assets_extra: name in the folder `assets.extra` -> path of a file to copy.
        write: writes a SavedModel into a path.

    Returns:
        The path of the new folder.
    """
    path: bytes = model_utils.get_timestamped_export_dir(os.fspath(directory))
    unfinished: bytes = model_utils.get_temp_export_dir(path)
    try:
        write(os.fsdecode(unfinished))
        for name, source in (assets_extra or {}).items():
            target = os.path.join(unfinished, b"assets.extra", tf.compat.as_bytes(name))
            tf.io.gfile.makedirs(os.path.dirname(target))
            tf.io.gfile.copy(source, target)
        tf.io.gfile.rename(unfinished, path)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.rmtree(unfinished)
        raise
    return path
