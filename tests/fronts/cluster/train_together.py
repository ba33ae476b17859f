# SPDX-License-Identifier: Apache-2.0
"""A program whose workers train on their own batches.

    tpu-estimator-embedding cluster --ps 2 -- --synchronous train_together.py MODEL_DIR STEPS
        STRATEGY [OPTION...]

Options: `pipelined`; `saves`, a checkpoint every 3 seconds; `deaths`, at a step each: the chief
kills itself between the updates of two servers, and the first worker when it has trained. With
deaths, a worker has the same batch in every step, as its input begins again when it restarts.
"""

import functools
import json
import os
import pathlib
import signal
import sys

import numpy as np
import tensorflow.compat.v1 as tf

from tests.fronts.cluster import train
from tpu_estimator_embedding.estimator.cluster import synchronous_step

MOST_WORKERS, NUM_BATCHES = 5, 4
SAMPLES = train.BATCH_SIZE * MOST_WORKERS * NUM_BATCHES
RANDOM = np.random.RandomState(1)
IDS = {"first": RANDOM.randint(0, 11, [SAMPLES, 3]), "second": RANDOM.randint(0, 11, [SAMPLES, 2]),
       "history": RANDOM.randint(1, 9, [SAMPLES, 2])}
LABELS = (IDS["first"].sum(1) % 3).astype(np.float32)


def batches_of(workers, batch_size, num_batches=NUM_BATCHES):
    """Returns a dataset of the samples of some workers, again and again, in batches."""
    rows = np.concatenate([
        np.arange(train.BATCH_SIZE) + (batch * MOST_WORKERS + worker) * train.BATCH_SIZE
        for batch in range(num_batches) for worker in workers])
    dataset = tf.data.Dataset.from_tensor_slices(
        ({name: ids[rows] for name, ids in IDS.items()}, LABELS[rows]))
    return dataset.repeat().batch(batch_size, drop_remainder=True).map(lambda ids, label: (
        {name: tf.sparse.from_dense(values) for name, values in ids.items()}, label))


def own_input(params, num_batches):
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return batches_of([0 if task["type"] == "chief" else 1 + task["index"]],
                      params["batch_size"], num_batches)


def die_once(mark):
    """Kills this process, but not again after its restart."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Death(tf.train.SessionRunHook):
    """Kills this process once it has trained up to a step."""

    def __init__(self, step, model_dir):
        self._step, self._mark = step, pathlib.Path(model_dir) / "worker_died"

    def begin(self):
        self._global_step = tf.train.get_global_step()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        if run_values.results >= self._step:
            die_once(self._mark)


def die_within_update(at_step, model_dir):
    """Kills this process at a step when the first server is updated and the second is not."""
    mark, update_host = pathlib.Path(model_dir) / "chief_died", synchronous_step._update_host
    first = []

    def die(step):
        if step == at_step:
            die_once(mark)
        return step

    def update(engine, workers, ids, host, *steps):
        if host == 0:
            first[:] = update_host(engine, workers, ids, host, *steps)
            return first
        with tf.control_dependencies(first):
            step = tf.numpy_function(die, [tf.train.get_global_step().read_value()], tf.int64)
        with tf.control_dependencies([step]):
            return update_host(engine, workers, ids, host, *steps)

    synchronous_step._update_host = update


def main(model_dir, steps, strategy, *options):
    tf.logging.set_verbosity(tf.logging.INFO)
    hooks = []
    if "deaths" in options:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        if task["type"] == "chief":
            die_within_update(int(steps) // 4, model_dir)
        if task == {"type": "worker", "index": 0}:
            hooks.append(Death(int(steps) // 2, model_dir))
    input_fn = functools.partial(own_input, num_batches=1 if "deaths" in options else NUM_BATCHES)
    tf.estimator.train_and_evaluate(
        train.new_estimator(model_dir, strategy, 3 if "saves" in options else 600,
                            pipelined="pipelined" in options),
        tf.estimator.TrainSpec(input_fn, max_steps=int(steps), hooks=hooks),
        tf.estimator.EvalSpec(input_fn, steps=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
