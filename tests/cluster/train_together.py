# SPDX-License-Identifier: Apache-2.0
"""A program whose workers have the same batch in every step, each its own.

    tpu-estimator-embedding cluster --ps 2 -- --synchronous train_together.py MODEL_DIR STEPS
        STRATEGY [STEP]

The first worker kills itself once it has trained up to STEP.
"""

import json
import os
import pathlib
import signal
import sys

import numpy as np
import tensorflow.compat.v1 as tf

from tests.cluster import train

RANDOM = np.random.RandomState(1)
IDS = {"first": RANDOM.randint(0, 11, [80, 3]), "second": RANDOM.randint(0, 11, [80, 2]),
       "history": RANDOM.randint(1, 9, [80, 2])}
LABELS = (IDS["first"].sum(1) % 3).astype(np.float32)


def batches_of(workers, batch_size):
    """Returns a dataset of the samples of some workers, again and again, in batches."""
    rows = np.concatenate([np.arange(train.BATCH_SIZE) + worker * train.BATCH_SIZE
                           for worker in workers])
    dataset = tf.data.Dataset.from_tensor_slices(
        ({name: ids[rows] for name, ids in IDS.items()}, LABELS[rows]))
    return dataset.repeat().batch(batch_size, drop_remainder=True).map(lambda ids, label: (
        {name: tf.sparse.from_dense(values) for name, values in ids.items()}, label))


def own_input(params):
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return batches_of([0 if task["type"] == "chief" else 1 + task["index"]],
                      params["batch_size"])


class Death(tf.train.SessionRunHook):
    """Kills this process at a step, but not again after its restart."""

    def __init__(self, step, model_dir):
        self._step, self._mark = step, pathlib.Path(model_dir) / "died"

    def begin(self):
        self._global_step = tf.train.get_global_step()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        if run_values.results >= self._step and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main(model_dir, steps, strategy, step_of_death=None):
    tf.logging.set_verbosity(tf.logging.INFO)
    is_worker = json.loads(os.environ["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    hooks = [Death(int(step_of_death), model_dir)] if step_of_death and is_worker else []
    tf.estimator.train_and_evaluate(
        train.new_estimator(model_dir, strategy),
        tf.estimator.TrainSpec(own_input, max_steps=int(steps), hooks=hooks),
        tf.estimator.EvalSpec(own_input, steps=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
