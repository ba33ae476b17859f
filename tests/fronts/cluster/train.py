# SPDX-License-Identifier: Apache-2.0
"""An unmodified TPUEstimator program: two tables, one of two features, and a sequence.

    tpu-estimator-embedding cluster --ps 2 train.py MODEL_DIR STEPS STRATEGY \
        [SECONDS_PER_STEP [SECONDS_PER_CHECKPOINT]]
"""

import json
import os
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

BATCH_SIZE = 8


def is_task(variable):
    """Whether this process is the task that a variable names, such as `worker 0`."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    return f"{task.get('type')} {task.get('index')}" == os.environ.get(variable)


def model_fn(features, labels, mode, params):
    net = tf.concat([features["first"], features["second"], features["history"][:, 0]], 1)
    weight = tf.get_variable("weight", [12, 1], initializer=tf.constant_initializer(0.1))
    loss = tf.reduce_mean((tf.matmul(net, weight)[:, 0] - labels) ** 2)
    # Small, so that stale gradients of asynchronous workers do not diverge.
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.01))
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


def input_fn(params):
    random = np.random.RandomState(1)
    ids = {"first": random.randint(0, 11, [80, 3]), "second": random.randint(0, 11, [80, 2]),
           "history": random.randint(1, 9, [80, 2])}
    labels = (ids["first"].sum(1) % 3).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((ids, labels)).repeat().batch(
        params["batch_size"], drop_remainder=True)
    if is_task("TASK_WITH_WRONG_ID"):
        dataset = dataset.enumerate().map(lambda step, batch: (
            {**batch[0], "first": batch[0]["first"] + 90 * tf.cast(step > 20, tf.int64)}, batch[1]))
    return dataset.map(lambda rows, label: (
        {name: tf.sparse.from_dense(values) for name, values in rows.items()}, label))


def embedding_config_spec(strategy, **options):
    from tensorflow.python.tpu import tpu_embedding  # there once the package is installed

    tables = {
        "words": tpu_embedding.TableConfig(
            11, 4, initializer=tf.constant_initializer(0.5), combiner="sum",
            optimization_parameters=tpu_embedding.AdagradParameters(0.1)),
        "items": tpu_embedding.TableConfig(
            9, 4, initializer=tf.constant_initializer(0.25), combiner="mean",
            optimization_parameters=tpu_embedding.AdamParameters(0.1))}
    features = {"first": tpu_embedding.FeatureConfig("words"),
                "second": tpu_embedding.FeatureConfig("words"),
                "history": tpu_embedding.FeatureConfig("items", max_sequence_length=2)}
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict=tables, feature_to_config_dict=features, partition_strategy=strategy,
        **options)


def new_estimator(model_dir, strategy, seconds_per_checkpoint=600, pipelined=False, **kwargs):
    return tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(
            model_dir=model_dir, save_checkpoints_secs=seconds_per_checkpoint,
            keep_checkpoint_max=20),  # an evaluator may be slow
        train_batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE,
        embedding_config_spec=embedding_config_spec(
            strategy, pipeline_execution_with_tensor_core=pipelined), **kwargs)


class Pause(tf.train.SessionRunHook):
    """Makes steps as slow as those of a larger model until the file `hurry` is there."""

    def __init__(self, seconds, model_dir):
        self._seconds = seconds
        self._hurry = os.path.join(model_dir, "hurry")

    def after_run(self, run_context, run_values):
        if not os.path.exists(self._hurry):
            time.sleep(self._seconds)


def main(model_dir, steps, strategy, seconds_per_step="0", seconds_per_checkpoint="600"):
    tf.logging.set_verbosity(tf.logging.INFO)
    if is_task("TASK_WITHOUT_KERNELS"):
        os.environ["TPU_ESTIMATOR_EMBEDDING_KERNELS"] = "off"
    if "SECONDS_WITHOUT_STEP" in os.environ:  # after which the watchdog asks the servers
        from tpu_estimator_embedding.estimator.cluster import servers
        servers.LINE_SECONDS = float(os.environ["SECONDS_WITHOUT_STEP"])
    estimator = new_estimator(model_dir, strategy, float(seconds_per_checkpoint))
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=int(steps),
                                          hooks=[Pause(float(seconds_per_step), model_dir)]),
        tf.estimator.EvalSpec(input_fn, steps=2, start_delay_secs=1, throttle_secs=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
