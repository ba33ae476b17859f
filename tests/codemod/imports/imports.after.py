# SPDX-License-Identifier: Apache-2.0
# === import tensorflow under its own name: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow
mode = tf_estimator.ModeKeys.TRAIN
# === import as: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimatorSpec
import tensorflow as tf
spec = TPUEstimatorSpec
# === compat v1 as tf: TEE101 TEE105
from tpu_estimator_embedding import TPUConfig
import tensorflow.compat.v1 as tf
config = TPUConfig(iterations_per_loop=10)
# === compat v1 from: TEE101 TEE105
from tpu_estimator_embedding import TPUConfig
from tensorflow.compat import v1 as tf
config = TPUConfig(10)
# === compat v1 by attribute: TEE101 TEE105
from tpu_estimator_embedding import TPUConfig
import tensorflow as tf
tf1 = tf.compat.v1
config = TPUConfig(10)
other = tf1.train.AdamOptimizer(0.1)
# === compat v2 has other classes: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v2 as tf
classifier = tf_estimator.v2.DNNClassifier([8], columns)
# === compat v1 canned estimator: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
classifier = tf_estimator.DNNClassifier([8], columns)
# === from import of a class: TEE102
from tpu_estimator_embedding import TPUEstimator
estimator = TPUEstimator(model_fn)
# === from import of a class under another name: TEE102
from tpu_estimator_embedding import TPUEstimator as Est, RunConfig
estimator = Est(model_fn, config=RunConfig())
# === from import of a namespace: TEE102
from tpu_estimator_embedding import tf_estimator as estimator
mode = estimator.ModeKeys.EVAL
# === from import of several things, some of which stay: TEE102
from tpu_estimator_embedding import tf_estimator as estimator
from tensorflow.compat.v1 import layers, train
train.AdamOptimizer(layers.dense(estimator.ModeKeys.EVAL))
# === parenthesized from import with comments: TEE102
from tpu_estimator_embedding import (
    TPUEstimator,  # the estimator
    TPUEstimatorSpec,
)
TPUEstimator(TPUEstimatorSpec)
# === aliased import of a module: TEE102
from tpu_estimator_embedding import tf_estimator as est
mode = est.ModeKeys.PREDICT
# === unaliased import of a module: TEE101 TEE105 TEE106
from tpu_estimator_embedding import TPUEstimator

estimator = TPUEstimator(model_fn)
# === unaliased import of a module beside other uses: TEE101 TEE105 TEE106
from tpu_estimator_embedding import TableConfig
import tensorflow
table = TableConfig(10, 2)
values = tensorflow.constant([1])
# === several modules in one import: TEE102
import os
from tpu_estimator_embedding import tf_tpu as contrib_tpu
import sys
estimator = contrib_tpu.TPUEstimator(model_fn, os.getcwd(), sys.argv)
# === two statements in a line: TEE102
import os; from tpu_estimator_embedding import tf_tpu as tpu; import sys
estimator = tpu.TPUEstimator(os, sys)
# === private module: TEE102
from tpu_estimator_embedding.tf_tpu import tpu_embedding
table = tpu_embedding.TableConfig(10, 2, combiner="sum")
# === private module of columns: TEE102
from tpu_estimator_embedding.tf_tpu import feature_column_v2 as columns
column = columns.embedding_column_v2(words, 8)
# === names of a private module: TEE102
from tpu_estimator_embedding import TableConfig, AdagradParameters, tf_tpu
INFERENCE = tf_tpu.tpu_embedding.INFERENCE
table = TableConfig(10, 2, optimization_parameters=AdagradParameters(0.1))
# === private module of Estimator: TEE102
from tpu_estimator_embedding import tf_estimator as model_fn_lib
mode = model_fn_lib.ModeKeys.TRAIN
# === private name of Estimator that is not public: TEE102 TEE201:2:7
from tpu_estimator_embedding import tf_estimator as model_fn_lib
key = model_fn_lib.LOSS_METRIC_KEY
# === tensorflow_estimator itself: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow_estimator as tfe
mode = tf_estimator.ModeKeys.TRAIN
# === private module of tensorflow_estimator: TEE102
from tpu_estimator_embedding.tf_tpu import tpu_estimator
from tpu_estimator_embedding import TPUConfig
estimator = tpu_estimator.TPUEstimator(model_fn, config=TPUConfig())
# === contrib tpu as a module: TEE102
from tpu_estimator_embedding import tf_tpu as contrib_tpu
optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
# === contrib tpu python modules: TEE102
from tpu_estimator_embedding.tf_tpu import tpu_config, tpu_estimator
config = tpu_config.RunConfig(tpu_config=tpu_config.TPUConfig())
# === contrib cluster resolver: TEE102
from tpu_estimator_embedding import TPUClusterResolver
resolver = TPUClusterResolver("me")
# === contrib data by module: TEE101 TEE105 TEE106
from tensorflow.compat.v1.data import experimental

dataset = dataset.apply(experimental.map_and_batch(parse, 8))
# === contrib name that TensorFlow has elsewhere: TEE101
import tensorflow.compat.v1 as tf
dataset = dataset.apply(tf.data.experimental.map_and_batch(parse, 8))
step = tf.train.get_or_create_global_step()
# === contrib name in a private module of today: TEE101 TEE105
from tensorflow.python.ops import lookup_ops
import tensorflow.compat.v1 as tf
table = lookup_ops.index_table_from_file("words.txt")
# === contrib name that nothing has: TEE201:1:1
from tensorflow.contrib.layers import optimize_loss
train_op = optimize_loss(loss)
# === contrib name that this package has: TEE101 TEE102 TEE105 TEE106
from tpu_estimator_embedding.compat.contrib.layers import xavier_initializer
from tpu_estimator_embedding.compat.contrib import hparams as tee_hparams, layers
import tensorflow.compat.v1 as tf
initializer = xavier_initializer(), layers.l2_regularizer(0.1)
hparams = tee_hparams.HParams(tee_hparams.HParams())
# === contrib name that needs tf-slim: TEE201:1:1 TEE201:2:7
from tensorflow.contrib import slim
net = slim.fully_connected(net, 8)
# === contrib Estimator: TEE101 TEE105 TEE106
from tpu_estimator_embedding import tf_estimator
from tpu_estimator_embedding.compat.contrib import heads

head = heads.multi_class_head(3)
estimator = tf_estimator.add_metrics(estimator, metrics)
hook = tf_estimator.experimental.stop_if_no_increase_hook(estimator, "auc", 3)
# === star import of a legacy module: TEE102
from tpu_estimator_embedding import AdamParameters, TableConfig
table = TableConfig(10, 2, optimization_parameters=AdamParameters(0.1))
print(len(table))
# === star import of contrib: TEE102 TEE205:1:1
from tpu_estimator_embedding import RunConfig, TPUConfig, TPUEstimator
estimator = TPUEstimator(model_fn, config=RunConfig(tpu_config=TPUConfig()))
# === star import whose names are unknown: TEE102 TEE205:1:1
from tpu_estimator_embedding import TableConfig
table = TableConfig(10, 2)
other = somewhere_else(table)
# === several star imports: TEE102
from tpu_estimator_embedding import TableConfig
from mylib.helpers import *
from tpu_estimator_embedding import tf_tpu
get_gradients_through_compute_gradients = tf_tpu.tpu_embedding_gradient.get_gradients_through_compute_gradients

table = TableConfig(10, 2)
gradients = get_gradients_through_compute_gradients(optimizer, loss, activations)
help = helper(3)
# === comments inside an import: TEE102
if True:
    # The engine.
    # of a table
    # of a mode
    from tpu_estimator_embedding import TableConfig, tf_tpu
    TRAINING = tf_tpu.tpu_embedding.TRAINING  # for training
# === star import of tensorflow: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
from tensorflow.compat.v1 import *
mode = tf_estimator.ModeKeys.TRAIN
# === import in a function: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator

def main():
    import tensorflow.compat.v1 as tf
    return tf_estimator.ModeKeys.TRAIN
# === import of a name in a function: TEE102
def main():
    from tpu_estimator_embedding.tf_estimator import ModeKeys
    return ModeKeys.TRAIN
# === try and except ImportError: TEE102
try:
    from tpu_estimator_embedding import tf_tpu as contrib_tpu
except ImportError:
    from tpu_estimator_embedding import tf_tpu as contrib_tpu
optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
# === try and except with None: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    tf = None
mode = tf_estimator.ModeKeys.TRAIN
# === try with two spellings of tensorflow: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    import tensorflow as tf
mode = tf_estimator.ModeKeys.TRAIN
# === try with only an import to remove: TEE101 TEE105 TEE106
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf
try:
    pass
except ImportError:
    pass
estimator = TPUEstimator(model_fn)
# === type checking only: TEE102
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from tpu_estimator_embedding import TPUEstimator

def train(estimator: "TPUEstimator") -> None:
    estimator.train(input_fn)
# === type checking with an annotation that spells tensorflow: TEE105 TEE107
from typing import TYPE_CHECKING
from tpu_estimator_embedding import TPUEstimator
if TYPE_CHECKING:
    import tensorflow.compat.v1 as tf

def train(estimator: "TPUEstimator") -> "list[tf.Tensor]":
    return estimator.train(input_fn)
# === one-line suite: TEE102
if True: from tpu_estimator_embedding import tf_tpu as tpu
estimator = tpu.TPUEstimator(model_fn)
# === module of the program that is named as tensorflow: TEE213:3:8
from .tensorflow import estimator
from . import tensorflow as tf
mode = tf.estimator.ModeKeys, estimator.tpu
# === other modules named estimator
from my_company import estimator
from estimator import tpu
mode = estimator.ModeKeys, tpu.TPUEstimator
# === license, docstring and future import stay on top: TEE101 TEE105
# Copyright

"""What it does."""

from __future__ import annotations

import os
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

mode = tf_estimator.ModeKeys.TRAIN, os.sep
# === comments above the first import stay with it: TEE101 TEE105
import os

from tpu_estimator_embedding import tf_estimator
# pylint: disable=wrong-import-order
import tensorflow.compat.v1 as tf

mode = tf_estimator.ModeKeys.TRAIN
# === first tensorflow import is in a block: TEE101 TEE105
import os
from tpu_estimator_embedding import tf_estimator
if os.environ.get("V1"):
    import tensorflow.compat.v1 as tf
else:
    import tensorflow.compat.v1 as tf
mode = tf_estimator.ModeKeys.TRAIN
# === keras imported above is loaded after this package: TEE102 TEE105
import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)
from tensorflow.keras import layers
from tpu_estimator_embedding import tf_estimator as estimator

model = layers.Dense(2), estimator.ModeKeys
# === Keras 3: TEE101 TEE105 TEE210:1:1
from tpu_estimator_embedding import tf_estimator
import keras
import tensorflow.compat.v1 as tf
mode = tf_estimator.ModeKeys.TRAIN
# === layers of TensorFlow need Keras 2 where only TPUEstimator is imported: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator
import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)
import tensorflow.compat.v1 as tf

def model_fn(features):
    return tf.layers.dense(features, 1)

estimator = TPUEstimator(model_fn)
