# SPDX-License-Identifier: Apache-2.0
# === getattr with a constant name of a namespace: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
estimator = getattr(tf_estimator.tpu, "TPUEstimator")(model_fn)
# === getattr of tensorflow: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow as tf
estimator = tf_estimator.v2.ModeKeys
# === getattr of contrib with a default: TEE101 TEE105
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
tpu = tf_tpu
# === getattr with a computed name of a namespace: TEE101 TEE105
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
optimizer = getattr(tf_tpu.experimental, name + "Parameters")(0.1)
# === getattr with a computed name of tensorflow: TEE203:2:10
import tensorflow.compat.v1 as tf
module = getattr(tf, name)
# === getattr with a computed name of something else: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
optimizer = getattr(tf.train, name)
mode = tf_estimator.ModeKeys.TRAIN
# === hasattr as a test of the version: TEE203:2:4
import tensorflow as tf
if hasattr(tf, "contrib"):
    pass
# === import_module: TEE105 TEE107
import importlib
from tpu_estimator_embedding import tf_tpu

tpu_embedding = tf_tpu.tpu_embedding
# === import_module of a computed name stays: TEE203:2:10
import importlib
module = importlib.import_module(f"tensorflow.{name}")
# === __import__: TEE204:1:7
tpu = __import__("tensorflow.contrib.tpu")
# === string annotation: TEE105 TEE107
from tpu_estimator_embedding import TPUEstimator, tf_estimator
import tensorflow.compat.v1 as tf

def build(mode: "tf_estimator.ModeKeys") -> "dict[str, TPUEstimator]":
    return {}
# === annotated variable: TEE105 TEE107
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
spec: "tf_estimator.EstimatorSpec | None" = None
# === string that names the legacy API: TEE204:2:22
import tensorflow.compat.v1 as tf
patcher = mock.patch("tensorflow.estimator.tpu.TPUEstimator")
# === prose in strings, docstrings and comments stays
import tensorflow.compat.v1 as tf

def build():
    """Builds a tf.estimator.tpu.TPUEstimator."""
    # tf.estimator.tpu.TPUEstimator
    raise ValueError("Use tf.estimator.tpu.TPUEstimator here.")
# === gin: TEE101 TEE105 TEE111:4:43
import gin
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
TPUEstimator = gin.external_configurable(
    tf_estimator.tpu.TPUEstimator, module="tf.estimator.tpu")
# === gin decorator: TEE101 TEE105
import gin
from tpu_estimator_embedding import RunConfig
import tensorflow.compat.v1 as tf

@gin.configurable
def run_config(tpu_config=gin.REQUIRED):
    return RunConfig(tpu_config=tpu_config)
# === TensorFlow 1.x: TEE101 TEE103 TEE104 TEE105 TEE110:3:1
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

tf.flags.DEFINE_string("model_dir", None, "Where.")
mode = tf_estimator.ModeKeys.TRAIN
# === TensorFlow 1.x without alias: TEE101 TEE103 TEE104 TEE105 TEE110:4:11
import os
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tensorflow

tensorflow.disable_v2_behavior()

session = tensorflow.Session()
mode = tf_estimator.ModeKeys.TRAIN
# === TensorFlow 1.x by from imports: TEE102 TEE103 TEE104 TEE110:1:1
from tensorflow.compat.v1 import flags
from tensorflow.compat.v1.train import AdamOptimizer
from tensorflow.python.ops import math_ops
from tpu_estimator_embedding import tf_estimator as estimator
import tensorflow.compat.v1 as tensorflow_v1
tensorflow_v1.disable_v2_behavior()
# === TensorFlow 1.x that switches V2 off itself: TEE103 TEE110:2:1
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
logits = tf.layers.dense(x, 1)
# === TensorFlow 1.x has the V1 classes: TEE101 TEE103 TEE104 TEE105 TEE110:2:46
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
classifier = tf_estimator.DNNClassifier([8], tf.placeholder(tf.float32))
# === TensorFlow 1.x without anything of Estimator's: TEE103 TEE104 TEE110:2:10
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
logits = tf.layers.dense(x, 1)
# === TensorFlow 1.x with Keras: TEE101 TEE103 TEE104 TEE105 TEE110:3:10
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.keras.layers import Dense

tf.disable_v2_behavior()
logits = tf.layers.dense(Dense(3)(x), tf_estimator.ModeKeys)
# === TF2 program with the former spellings: TEE101 TEE105
from tpu_estimator_embedding import CrossShardOptimizer, TPUEstimatorSpec
import tensorflow as tf
optimizer = CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
spec = TPUEstimatorSpec(mode, loss=loss)
