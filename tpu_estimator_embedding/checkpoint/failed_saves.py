# SPDX-License-Identifier: Apache-2.0
"""Saves that fail, or that meet the checkpoints of another program.

A save that fails removes its files. TensorFlow writes to a folder `PREFIX_temp`, or to files
`*.tempstate*` and `*.meta.tmp*`, and renames them at the end. If the disk is full, they stay and
occupy the space that the next attempt needs.
"""

import errno
import functools
import glob
import os
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.ops.readable_errors import readable

_ERRORS_OF_A_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_DISK = re.compile("No space left on device|Disk quota exceeded")
_HINT_ABOUT_MEMORY = re.compile(r"\s*Hint: If you want to see a list of allocated tensors[^\n]*")

# What a save of TensorFlow that failed leaves, behind the name of its checkpoint.
_LEFT_BEHIND = r"(_temp|\.(index|data-\d+-of-\d+)\.tempstate[^/]*|\.meta\.tmp[^/]*)/?"


class LastWrites:
    """When this process has last written the file `checkpoint` of each directory."""

    def __init__(self) -> None:
        self._times: dict[str, int | None] = {}  # in nanoseconds, by the file

    def note(self, save_path: str) -> None:
        """Records that a checkpoint was saved under a path."""
        state = _state_file(save_path)
        self._times[state] = _time_of(state)

    def forget(self, save_path: str) -> None:
        """Forgets them, because the process may go on where another program ended."""
        self._times.pop(_state_file(save_path), None)

    def warn_of_others(self, save_path: str) -> None:
        """Warns if another program has written the file since."""
        state = _state_file(save_path)
        written, now = self._times.get(state), _time_of(state)
        if None not in (written, now) and written != now:
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: another program has written %s since this one saved its "
                "last checkpoint. Two training runs in one model_dir overwrite and remove each "
                "other's checkpoints: give each run its own model_dir.", state)


LAST_WRITES = LastWrites()  # global, because several Savers of a process may write one file


def _state_file(save_path: str) -> str:
    return os.path.join(os.path.dirname(str(save_path)), "checkpoint")


def _time_of(path: str) -> int | None:
    try:
        return int(tf.io.gfile.stat(path).mtime_nsec)
    except tf.errors.OpError:
        return None


def saving(original: Callable[..., str | None]) -> Callable[..., str | None]:
    """Returns a `Saver.save` that calls another one; if that fails, it removes the files.

    It warns if another program has saved in the directory since this process saved there.
    """
    @functools.wraps(original)
    def save(own: tf.compat.v1.train.Saver, sess: tf.compat.v1.Session, save_path: str,
             global_step: Any = None, *args: object, **kwargs: object) -> str | None:
        step = _number(sess, global_step)
        prefix = f"{save_path}" if step is None else f"{save_path}-{step}"
        before = _left_behind(prefix)
        LAST_WRITES.warn_of_others(save_path)
        try:
            path = original(own, sess, save_path, step, *args, **kwargs)
            LAST_WRITES.note(save_path)
            return path
        except tf.errors.OpError as error:
            for left in _left_behind(prefix) - before:
                tf.io.gfile.rmtree(left) if tf.io.gfile.isdir(left) else tf.io.gfile.remove(left)
            shown = readable(error, _what_was_saved(str(save_path), error.message or ""))
            raise _with_fix(shown) from None

    return save


def _number(session: tf.compat.v1.Session, step: Any) -> Any:
    """Returns the value of a step, which TensorFlow reads before it saves, too."""
    if tf.is_tensor(step) and (tf.executing_eagerly() or hasattr(session, "run")):
        return tf.compat.v1.train.global_step(session, step)
    return step


def _with_fix(error: tf.errors.OpError) -> tf.errors.OpError:
    """Says what helps where a disk is full, instead of TensorFlow's hint about memory."""
    if not _FULL_DISK.search(error.message):
        return error
    message = _HINT_ABOUT_MEMORY.sub("", error.message).rstrip(". \n")
    return type(error)(error.node_def, None, f"{message}. Free space, keep fewer checkpoints with "
                       "`keep_checkpoint_max` of RunConfig, or train in a model_dir on another "
                       "disk; a copy of this one continues from its last checkpoint.")


def _what_was_saved(save_path: str, message: str) -> str:
    if ".meta" in message:  # which TensorFlow writes last, when the checkpoint is complete
        return (f"The checkpoint {save_path} was saved, but its graph, which "
                "tf.train.import_meta_graph reads, was not: ")
    return f"The checkpoint {save_path} was not saved: "


def _left_behind(prefix: str) -> set[str]:
    """Returns unfinished files of one checkpoint, not of `{prefix}_other` or `{prefix}-1`."""
    name = re.compile(re.escape(os.path.basename(prefix)) + _LEFT_BEHIND)
    return {path for path in tf.io.gfile.glob(f"{glob.escape(prefix)}*")
            if name.fullmatch(os.path.basename(path))}


def is_full(error: OSError) -> bool:
    """Whether a disk is full, or a limit on it is reached."""
    return error.errno in _ERRORS_OF_A_FULL_DISK


def op_error(error: OSError, message: str) -> tf.errors.OpError:
    """Returns the error that TensorFlow's own Saver has where a file cannot be written."""
    kind = tf.errors.ResourceExhaustedError if is_full(error) else tf.errors.UnknownError
    return kind(None, None, message)
