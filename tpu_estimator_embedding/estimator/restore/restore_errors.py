# SPDX-License-Identifier: Apache-2.0
"""Errors for checkpoints whose slots or shapes differ from the tables of the program."""

import contextlib
import os
import re
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.names import table_of

# TensorFlow's message about a table, or another variable that is saved in parts.
_OTHER_SHAPE = re.compile(r"tensor_name = (\S+); shape in shape_and_slice spec \[([\d,]+)\] does "
                          r"not match the shape stored in checkpoint: \[([\d,]+)\]")


@contextlib.contextmanager
def explained_restore(model_dir: str) -> Iterator[None]:
    """Turns errors about missing or different values in `model_dir`'s checkpoint into ValueErrors.

    Raises:
        ValueError: if the checkpoint lacks a slot, or a table has a different shape there. The
            engine and a model's optimizer share the slot names of some optimizers (Adagrad),
            but not of all (Adam).
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _OTHER_SHAPE.search(error.message or "")
        if found is None:
            raise
        checkpoint = tf.train.latest_checkpoint(model_dir)
        raise ValueError(_explain_shape(checkpoint or model_dir, *found.groups())) from error
    except tf.errors.NotFoundError as error:
        key = re.search(r"Key (\S+) not found in checkpoint", error.message or "")
        checkpoint = tf.train.latest_checkpoint(model_dir)
        if key is None or checkpoint is None:
            raise
        explanation = _explain(key[1], checkpoint)
        if explanation is None:
            raise
        raise ValueError(explanation) from error


def _explain_shape(checkpoint: str, name: str, ours: str, saved: str) -> str:
    complaint = checks.complaint(f"shape of {name!r} in {checkpoint}",
                                 f"[{ours}], as in this program", [*map(int, saved.split(","))])
    rows, *dimension = ours.split(",")
    if dimension != saved.split(",")[1:]:
        return f"{complaint} Its dimension cannot change: train in a new model_dir."
    return (f"{complaint} To grow or shrink the vocabulary, write a checkpoint for a new "
            f"model_dir: `tpu-estimator-embedding checkpoint convert {checkpoint} NEW_MODEL_DIR/"
            f"{os.path.basename(checkpoint)} --resize {table_of(name)}={rows}`.")


def _explain(key: str, checkpoint: str) -> str | None:
    saved = [name for name, _ in tf.train.list_variables(checkpoint)]
    owners = [name for name in saved if key.startswith(f"{name}/")]
    if not owners:
        return None
    owner = min(owners, key=len)  # longer names are themselves slots, such as T/Adam
    slots = sorted(name for name in saved if name.startswith(f"{owner}/"))
    return (f"`checkpoint` must have the slot {key!r} of {owner!r}, got {slots} in "
            f"{checkpoint}. It was written with another optimizer, or with another use_tpu: "
            "slot names differ between the engine and the model's optimizer. To keep the "
            "tables and the model and start their slots anew, train in a new model_dir with "
            f"warm_start_from={checkpoint!r}.")
