# SPDX-License-Identifier: Apache-2.0
"""A TPUEstimator program with tf-slim's layers and training ops, against NumPy."""

import json
import sys

import numpy as np
import pytest

from tests.subprocesses import run_python, start

BATCH, STEPS, RATE, DECAY, WEIGHT_DECAY = 8, 3, 0.5, 0.75, 0.02

PROGRAM = """
import json, sys, tempfile
import numpy as np
import tpu_estimator_embedding
tpu_estimator_embedding.install()
import tensorflow.compat.v1 as tf
from tensorflow.contrib import slim
from tensorflow.contrib.framework.python.ops import arg_scope
tf.disable_v2_behavior()

def input_fn(params):
    random = np.random.default_rng(0)
    x = random.normal(1, 2, [STEPS * BATCH, 3]).astype(np.float32)
    y = random.normal(size=[STEPS * BATCH, 1]).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(params["batch_size"], True)

def constant(shape):
    return tf.constant_initializer(np.linspace(-1, 1, np.prod(shape)).reshape(shape))

def train_with_slim(loss):
    for penalty in tf.losses.get_regularization_losses():
        loss += penalty
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(RATE))
    return loss, slim.learning.create_train_op(loss, optimizer)

def train_with_layers(loss):
    return loss, tf.contrib.layers.optimize_loss(
        loss, tf.train.get_global_step(), RATE, clip_gradients=100.0,
        optimizer=lambda rate: tf.tpu.CrossShardOptimizer(
            tf.contrib.opt.MomentumWOptimizer(WEIGHT_DECAY, rate, 0.0)))

def model_fn(features, labels, mode, params):
    is_slim = params["train"] is train_with_slim
    with slim.arg_scope([slim.batch_norm], is_training=mode == "train", decay=DECAY, center=False):
        with arg_scope([slim.fully_connected], biases_initializer=None, activation_fn=None,
                       weights_regularizer=slim.l2_regularizer(WEIGHT_DECAY)):
            hidden = slim.fully_connected(features, 2, normalizer_fn=slim.batch_norm,
                                          weights_initializer=constant([3, 2]), scope="hidden")
            outputs = slim.fully_connected(hidden, 1, weights_initializer=constant([2, 1]),
                                           scope="outputs")
    loss = tf.reduce_mean((outputs - labels) ** 2)
    if mode == "eval":
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss)
    loss, train_op = params["train"](loss)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

results = {}
for replicas in (1, 2):
    for train in (train_with_slim, train_with_layers):
        estimator = tf.estimator.tpu.TPUEstimator(
            model_fn, tempfile.mkdtemp(), use_tpu=True, train_batch_size=BATCH,
            eval_batch_size=BATCH, params={"train": train}, config=tf.estimator.tpu.RunConfig(
                tpu_config=tf.estimator.tpu.TPUConfig(1, num_shards=replicas)))
        estimator.train(input_fn, steps=STEPS)
        metrics = estimator.evaluate(input_fn, steps=STEPS)
        results[f"{train.__name__} {replicas}"] = {
            "loss": float(metrics["loss"]), "step": int(metrics["global_step"]),
            **{name: estimator.get_variable_value(name).tolist() for name in (
                "hidden/weights", "outputs/weights", "hidden/BatchNorm/moving_mean",
                "hidden/BatchNorm/moving_variance")}}
print(json.dumps(results))
"""


def initial(shape):
    return np.linspace(-1, 1, np.prod(shape)).reshape(shape)


def gradients(x, y, w, v):
    """Returns the gradients of mean((norm(x w) v - y)²), and the moments of x w."""
    z = x @ w
    mean, variance = z.mean(0), z.var(0)
    scale = 1 / np.sqrt(variance + 1e-3)
    hidden = (z - mean) * scale
    error = 2 * (hidden @ v - y) / len(x)
    towards = error @ v.T
    back = scale * (towards - towards.mean(0) - hidden * (towards * hidden).mean(0))
    return x.T @ back, hidden.T @ error, mean, variance * len(x) / (len(x) - 1)


def expected(train, replicas):
    """Trains in NumPy: the mean of the replicas' gradients, and the moments of the first one."""
    random = np.random.default_rng(0)
    x = random.normal(1, 2, [STEPS, BATCH, 3])
    y = random.normal(size=[STEPS, BATCH, 1])
    w, v, mean, variance = initial([3, 2]), initial([2, 1]), np.zeros(2), np.ones(2)
    for batch, labels in zip(x, y, strict=True):
        parts = [gradients(*part, w, v) for part in zip(
            np.split(batch, replicas), np.split(labels, replicas), strict=True)]
        dw, dv = (np.mean([part[i] for part in parts], axis=0) for i in (0, 1))
        if train == "train_with_slim":  # the gradient of the regularization
            w, v = w - RATE * (dw + WEIGHT_DECAY * w), v - RATE * (dv + WEIGHT_DECAY * v)
        else:  # decoupled
            w, v = w * (1 - WEIGHT_DECAY) - RATE * dw, v * (1 - WEIGHT_DECAY) - RATE * dv
        mean = DECAY * mean + (1 - DECAY) * parts[0][2]
        variance = DECAY * variance + (1 - DECAY) * parts[0][3]
    x, y = x.reshape(-1, 3), y.reshape(-1, 1)
    loss = (((x @ w - mean) / np.sqrt(variance + 1e-3) @ v - y) ** 2).mean()
    return {"loss": loss, "step": STEPS, "hidden/weights": w, "outputs/weights": v,
            "hidden/BatchNorm/moving_mean": mean, "hidden/BatchNorm/moving_variance": variance}


@pytest.mark.long
def test_slim_model_trains_with_one_and_two_replicas():
    done = run_python(f"BATCH, STEPS, RATE, DECAY, WEIGHT_DECAY = "
                      f"{BATCH, STEPS, RATE, DECAY, WEIGHT_DECAY}\n{PROGRAM}")
    check(done.stdout, 4)


@pytest.mark.long
@pytest.mark.parametrize("environment", [{}, {"TF_USE_LEGACY_KERAS": "1"}], ids=["unset", "legacy"])
def test_slim_model_runs_with_either_keras(environment, tmp_path):
    """On TensorFlow 2.15 its layers belong to `keras`, and `tf.keras` may be `tf_keras`."""
    text = PROGRAM
    for old, new in (("import tpu_estimator_embedding\ntpu_estimator_embedding.install()\n", ""),
                     ("(train_with_slim, train_with_layers)", "(train_with_slim,)"),
                     ("(1, 2)", "(1,)")):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "program.py").write_text(
        f"BATCH, STEPS, RATE, DECAY, WEIGHT_DECAY = {BATCH, STEPS, RATE, DECAY, WEIGHT_DECAY}\n"
        f"{text}")
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", tmp_path / "program.py"],
                 **environment)
    assert done.returncode == 0, done.stderr
    check(done.stdout, 1)


def check(output, cases):
    """Compares what the program printed last with NumPy."""
    results = json.loads(output.splitlines()[-1])
    assert len(results) == cases
    for case, found in results.items():
        train, replicas = case.split()
        wanted = expected(train, int(replicas))
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert np.asarray(found[name]) == pytest.approx(value, rel=1e-4, abs=1e-5), (case, name)
