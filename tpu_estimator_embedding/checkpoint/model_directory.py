# SPDX-License-Identifier: Apache-2.0
"""Errors about a model directory and its file `checkpoint`, which names the newest checkpoint.

TensorFlow starts from scratch where the file, or the index of what it names, is missing or damaged.
"""

import contextlib
import os
import re
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.saver_patches import FIX_OF_DAMAGE

_INDEX = re.compile(r"(?:model\.)?ckpt-(\d+)\.index")


@contextlib.contextmanager
def translate_state_errors(model_dir: str) -> Iterator[None]:
    """Adds what is wrong with the file, and the fix, to TensorFlow's ValueErrors.

    Raises:
        ValueError: if TensorFlow cannot read the file, or finds no checkpoint by it.
    """
    try:
        yield
    except ValueError as error:
        _, reason = _problem(model_dir) or ("", "")
        if not reason or reason in str(error):
            raise
        raise ValueError(f"{str(error).rstrip('.')}: {reason}") from error


@contextlib.contextmanager
def translate_write_errors(model_dir: str) -> Iterator[None]:
    """Names `model_dir`, and the fix, in an error about files in it that cannot be written.

    Raises:
        tf.errors.PermissionDeniedError: if this process may not write to `model_dir`.
    """
    try:
        yield
    except tf.errors.PermissionDeniedError as error:
        if model_dir not in str(error.message):
            raise
        raise tf.errors.PermissionDeniedError(error.node_def, error.op, (
            f"{error.message}. " + checks.complaint(
                "model_dir", "a directory that this process may write to", model_dir,
                "Give another one, or change its permissions."))) from error


def warn_of_unnamed_checkpoints(model_dir: str) -> None:
    """Warns of checkpoints in `model_dir` that TensorFlow does not see and would not restore.

    Raises:
        ValueError: if TensorFlow cannot read the file `checkpoint`, because it is empty, for
            instance.
    """
    with translate_state_errors(model_dir):
        tf.train.get_checkpoint_state(model_dir)
    problem = _problem(model_dir)
    if problem:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: as in TensorFlow, no checkpoint of %s is loaded; training "
            "%s, and other calls use initial values: %s", model_dir, *problem)


_STARTS_AGAIN = "starts at step 0 and overwrites checkpoints"


def _problem(model_dir: str) -> tuple[str, str] | None:
    """Returns what training does, then what hides the newest checkpoint, and the fix."""
    if not tf.io.gfile.isdir(model_dir):
        return None
    steps = {int(found[1]): found[0].removesuffix(".index")
             for found in map(_INDEX.fullmatch, tf.io.gfile.listdir(model_dir)) if found}
    newest = os.path.join(model_dir, steps[max(steps)]) if steps else ""
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:
        state = None
    if state is not None:
        named = state.model_checkpoint_path
        is_there = not named or any(map(tf.io.gfile.exists, (f"{named}.index", named)))
        return None if is_there else (
            "fails", f"the index of {named} is missing. {FIX_OF_DAMAGE}")
    is_damaged = tf.io.gfile.exists(os.path.join(model_dir, "checkpoint"))
    if not newest:
        return (_STARTS_AGAIN, "its file `checkpoint` is damaged. There is no checkpoint. Remove "
                "the file.") if is_damaged else None
    return (_STARTS_AGAIN,
            f"its file `checkpoint` is {'damaged' if is_damaged else 'missing'}. {model_dir} has "
            f"{os.path.basename(newest)}. To load this one, write the file: "
            f"tf.compat.v1.train.update_checkpoint_state({model_dir!r}, {newest!r})")
