# SPDX-License-Identifier: Apache-2.0
"""Removes the files of failed saves; complete checkpoints stay.

TensorFlow writes to a folder `PREFIX_temp`, or to files `*.tempstate*`, and renames them at the
end. If the disk is full, they stay and occupy the space that the next attempt needs.
"""

import glob
from typing import Any

import tensorflow as tf
from tensorflow.python.training import saver

from tpu_estimator_embedding.ops.readable_errors import readable

_save = saver.Saver.save
_LEFT_BEHIND = ("*_temp", "*.tempstate*")


def save(own: Any, sess: Any, save_path: str, *args: Any, **kwargs: Any) -> str | None:
    """Saves as TensorFlow does; if that fails, removes the files it wrote."""
    before = _left_behind(save_path)
    try:
        return _save(own, sess, save_path, *args, **kwargs)
    except tf.errors.OpError as error:
        for path in _left_behind(save_path) - before:
            tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
        raise readable(error, f"The checkpoint {save_path} was not saved: ") from None


def _left_behind(save_path: str) -> set[str]:
    return {path for pattern in _LEFT_BEHIND
            for path in tf.io.gfile.glob(glob.escape(str(save_path)) + pattern)}
