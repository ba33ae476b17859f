# SPDX-License-Identifier: Apache-2.0
# === getattr with a constant name of a namespace
import tensorflow.compat.v1 as tf
estimator = getattr(tf.estimator.tpu, "TPUEstimator")(model_fn)
# === getattr of tensorflow
import tensorflow as tf
estimator = getattr(tf, "estimator").ModeKeys
# === getattr of contrib with a default
import tensorflow.compat.v1 as tf
tpu = getattr(tf.contrib, "tpu", None)
# === getattr with a computed name of a namespace
import tensorflow.compat.v1 as tf
optimizer = getattr(tf.tpu.experimental, name + "Parameters")(0.1)
# === getattr with a computed name of tensorflow
import tensorflow.compat.v1 as tf
module = getattr(tf, name)
# === getattr with a computed name of something else
import tensorflow.compat.v1 as tf
optimizer = getattr(tf.train, name)
mode = tf.estimator.ModeKeys.TRAIN
# === hasattr as a test of the version
import tensorflow as tf
if hasattr(tf, "contrib"):
    pass
# === import_module
import importlib
tpu_embedding = importlib.import_module("tensorflow.python.tpu.tpu_embedding")
# === import_module of a computed name stays
import importlib
module = importlib.import_module(f"tensorflow.{name}")
# === __import__
tpu = __import__("tensorflow.contrib.tpu")
# === string annotation
import tensorflow.compat.v1 as tf

def build(mode: "tf.estimator.ModeKeys") -> "dict[str, tf.estimator.tpu.TPUEstimator]":
    return {}
# === annotated variable
import tensorflow.compat.v1 as tf
spec: "tf.estimator.EstimatorSpec | None" = None
# === string that names the legacy API
import tensorflow.compat.v1 as tf
patcher = mock.patch("tensorflow.estimator.tpu.TPUEstimator")
# === prose in strings, docstrings and comments stays
import tensorflow.compat.v1 as tf

def build():
    """Builds a tf.estimator.tpu.TPUEstimator."""
    # tf.estimator.tpu.TPUEstimator
    raise ValueError("Use tf.estimator.tpu.TPUEstimator here.")
# === gin
import gin
import tensorflow.compat.v1 as tf
TPUEstimator = gin.external_configurable(
    tf.estimator.tpu.TPUEstimator, module="tf.estimator.tpu")
# === gin decorator
import gin
import tensorflow.compat.v1 as tf

@gin.configurable
def run_config(tpu_config=gin.REQUIRED):
    return tf.estimator.tpu.RunConfig(tpu_config=tpu_config)
# === TensorFlow 1.x
import tensorflow as tf

tf.flags.DEFINE_string("model_dir", None, "Where.")
mode = tf.estimator.ModeKeys.TRAIN
# === TensorFlow 1.x without alias
import os
import tensorflow

session = tensorflow.Session()
mode = tensorflow.estimator.ModeKeys.TRAIN
# === TensorFlow 1.x by from imports
from tensorflow import flags
from tensorflow.train import AdamOptimizer
from tensorflow.python.ops import math_ops
from tensorflow import estimator
# === TensorFlow 1.x that switches V2 off itself
import tensorflow as tf
tf.disable_v2_behavior()
logits = tf.layers.dense(x, 1)
# === TensorFlow 1.x has the V1 classes
import tensorflow as tf
classifier = tf.estimator.DNNClassifier([8], tf.placeholder(tf.float32))
# === TensorFlow 1.x without anything of Estimator's
import tensorflow as tf
logits = tf.layers.dense(x, 1)
# === TensorFlow 1.x with Keras
import tensorflow as tf
from tensorflow.keras.layers import Dense
logits = tf.layers.dense(Dense(3)(x), tf.estimator.ModeKeys)
# === TF2 program with the former spellings
import tensorflow as tf
optimizer = tf.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
spec = tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss)
