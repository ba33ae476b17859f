# SPDX-License-Identifier: Apache-2.0
"""What to say when a checkpoint has other slots than the tables of this program."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def explained_restore(model_dir: str) -> Iterator[None]:
    """Turns a missing slot in the checkpoint of `model_dir` into a ValueError that says so.

    The engine and a model's optimizer share the slot names of some optimizers (Adagrad),
    but not of all (Adam), so a checkpoint of one may lack the slots of the other.
    """
    try:
        yield
    except tf.errors.NotFoundError as error:
        key = re.search(r"Key (\S+) not found in checkpoint", error.message or "")
        checkpoint = tf.train.latest_checkpoint(model_dir)
        if key is None or checkpoint is None:
            raise
        explanation = _explain(key[1], checkpoint)
        if explanation is None:
            raise
        raise ValueError(explanation) from error


def _explain(key: str, checkpoint: str) -> str | None:
    saved = [name for name, _ in tf.train.list_variables(checkpoint)]
    owners = [name for name in saved if key.startswith(f"{name}/")]
    if not owners:
        return None
    owner = min(owners, key=len)  # the longer ones are slots themselves, such as T/Adam
    slots = sorted(name for name in saved if name.startswith(f"{owner}/"))
    return (f"`checkpoint` must have the slot {key!r} of {owner!r}, got {slots} in "
            f"{checkpoint}. It was written with another optimizer, or with another use_tpu: "
            "slot names differ between the engine and the model's optimizer. To keep the "
            "tables and the model and start their slots anew, train in a new model_dir with "
            f"warm_start_from={checkpoint!r}.")
