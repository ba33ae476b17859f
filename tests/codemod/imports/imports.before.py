# SPDX-License-Identifier: Apache-2.0
# === import tensorflow under its own name
import tensorflow
mode = tensorflow.estimator.ModeKeys.TRAIN
# === import as
import tensorflow as tf
spec = tf.estimator.tpu.TPUEstimatorSpec
# === compat v1 as tf
import tensorflow.compat.v1 as tf
config = tf.estimator.tpu.TPUConfig(iterations_per_loop=10)
# === compat v1 from
from tensorflow.compat import v1 as tf
config = tf.estimator.tpu.TPUConfig(10)
# === compat v1 by attribute
import tensorflow as tf
tf1 = tf.compat.v1
config = tf1.estimator.tpu.TPUConfig(10)
other = tf1.train.AdamOptimizer(0.1)
# === compat v2 has other classes
import tensorflow.compat.v2 as tf
classifier = tf.estimator.DNNClassifier([8], columns)
# === compat v1 canned estimator
import tensorflow.compat.v1 as tf
classifier = tf.estimator.DNNClassifier([8], columns)
# === from import of a class
from tensorflow.compat.v1.estimator.tpu import TPUEstimator
estimator = TPUEstimator(model_fn)
# === from import of a class under another name
from tensorflow.compat.v1.estimator.tpu import TPUEstimator as Est, RunConfig
estimator = Est(model_fn, config=RunConfig())
# === from import of a namespace
from tensorflow.compat.v1 import estimator
mode = estimator.ModeKeys.EVAL
# === from import of several things, some of which stay
from tensorflow.compat.v1 import estimator, layers, train
train.AdamOptimizer(layers.dense(estimator.ModeKeys.EVAL))
# === parenthesized from import with comments
from tensorflow.compat.v1.estimator.tpu import (
    TPUEstimator,  # the estimator
    TPUEstimatorSpec,
)
TPUEstimator(TPUEstimatorSpec)
# === aliased import of a module
import tensorflow.compat.v1.estimator as est
mode = est.ModeKeys.PREDICT
# === unaliased import of a module
import tensorflow.contrib.tpu
estimator = tensorflow.contrib.tpu.TPUEstimator(model_fn)
# === unaliased import of a module beside other uses
import tensorflow.python.tpu.tpu_embedding
table = tensorflow.python.tpu.tpu_embedding.TableConfig(10, 2)
values = tensorflow.constant([1])
# === several modules in one import
import os, tensorflow.contrib.tpu as contrib_tpu, sys
estimator = contrib_tpu.TPUEstimator(model_fn, os.getcwd(), sys.argv)
# === two statements in a line
import os; from tensorflow.contrib import tpu; import sys
estimator = tpu.TPUEstimator(os, sys)
# === private module
from tensorflow.python.tpu import tpu_embedding
table = tpu_embedding.TableConfig(10, 2, combiner="sum")
# === private module of columns
from tensorflow.python.tpu import feature_column_v2 as columns
column = columns.embedding_column_v2(words, 8)
# === names of a private module
from tensorflow.python.tpu.tpu_embedding import TableConfig, AdagradParameters, INFERENCE
table = TableConfig(10, 2, optimization_parameters=AdagradParameters(0.1))
# === private module of Estimator
from tensorflow.python.estimator import model_fn as model_fn_lib
mode = model_fn_lib.ModeKeys.TRAIN
# === private name of Estimator that is not public
from tensorflow.python.estimator import model_fn as model_fn_lib
key = model_fn_lib.LOSS_METRIC_KEY
# === tensorflow_estimator itself
import tensorflow_estimator as tfe
mode = tfe.estimator.ModeKeys.TRAIN
# === private module of tensorflow_estimator
from tensorflow_estimator.python.estimator.tpu import tpu_estimator
from tensorflow_estimator.python.estimator.tpu.tpu_config import TPUConfig
estimator = tpu_estimator.TPUEstimator(model_fn, config=TPUConfig())
# === contrib tpu as a module
from tensorflow.contrib import tpu as contrib_tpu
optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
# === contrib tpu python modules
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator
config = tpu_config.RunConfig(tpu_config=tpu_config.TPUConfig())
# === contrib cluster resolver
from tensorflow.contrib.cluster_resolver import TPUClusterResolver
resolver = TPUClusterResolver("me")
# === contrib data by module
from tensorflow.contrib import data as contrib_data
dataset = dataset.apply(contrib_data.map_and_batch(parse, 8))
# === contrib name that TensorFlow has elsewhere
import tensorflow.compat.v1 as tf
dataset = dataset.apply(tf.contrib.data.map_and_batch(parse, 8))
step = tf.contrib.framework.get_or_create_global_step()
# === contrib name in a private module of today
import tensorflow.compat.v1 as tf
table = tf.contrib.lookup.index_table_from_file("words.txt")
# === contrib name that nothing has
from tensorflow.contrib.layers import optimize_loss
train_op = optimize_loss(loss)
# === contrib name that this package has
from tensorflow.contrib.layers import xavier_initializer
from tensorflow.contrib import layers as contrib_layers, training
import tensorflow.compat.v1 as tf
initializer = xavier_initializer(), contrib_layers.l2_regularizer(0.1)
hparams = training.HParams(tf.contrib.training.HParams())
# === contrib name that needs tf-slim
from tensorflow.contrib import slim
net = slim.fully_connected(net, 8)
# === contrib Estimator
from tensorflow.contrib import estimator as contrib_estimator
head = contrib_estimator.multi_class_head(3)
estimator = contrib_estimator.add_metrics(estimator, metrics)
hook = contrib_estimator.stop_if_no_increase_hook(estimator, "auc", 3)
# === star import of a legacy module
from tensorflow.python.tpu.tpu_embedding import *
table = TableConfig(10, 2, optimization_parameters=AdamParameters(0.1))
print(len(table))
# === star import of contrib
from tensorflow.contrib.tpu import *
estimator = TPUEstimator(model_fn, config=RunConfig(tpu_config=TPUConfig()))
# === star import whose names are unknown
from tensorflow.python.tpu.tpu_embedding import *
table = TableConfig(10, 2)
other = somewhere_else(table)
# === several star imports
from tensorflow.python.tpu.tpu_embedding import *
from mylib.helpers import *
from tensorflow.python.tpu.tpu_embedding_gradient import *

table = TableConfig(10, 2)
gradients = get_gradients_through_compute_gradients(optimizer, loss, activations)
help = helper(3)
# === comments inside an import
if True:
    # The engine.
    from tensorflow.python.tpu.tpu_embedding import (
        TableConfig,  # of a table
        # of a mode
        TRAINING,
    )  # for training
# === star import of tensorflow
from tensorflow.compat.v1 import *
mode = estimator.ModeKeys.TRAIN
# === import in a function
def main():
    import tensorflow.compat.v1 as tf
    return tf.estimator.ModeKeys.TRAIN
# === import of a name in a function
def main():
    from tensorflow.compat.v1.estimator import ModeKeys
    return ModeKeys.TRAIN
# === try and except ImportError
try:
    from tensorflow.contrib import tpu as contrib_tpu
except ImportError:
    from tensorflow.compat.v1 import tpu as contrib_tpu
optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
# === try and except with None
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    tf = None
mode = tf.estimator.ModeKeys.TRAIN
# === try with two spellings of tensorflow
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    import tensorflow as tf
mode = tf.estimator.ModeKeys.TRAIN
# === try with only an import to remove
import tensorflow.compat.v1 as tf
try:
    from tensorflow import contrib
except ImportError:
    pass
estimator = contrib.tpu.TPUEstimator(model_fn)
# === type checking only
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from tensorflow.compat.v1.estimator.tpu import TPUEstimator

def train(estimator: "TPUEstimator") -> None:
    estimator.train(input_fn)
# === type checking with an annotation that spells tensorflow
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import tensorflow.compat.v1 as tf

def train(estimator: "tf.estimator.tpu.TPUEstimator") -> "list[tf.Tensor]":
    return estimator.train(input_fn)
# === one-line suite
if True: import tensorflow.contrib.tpu as tpu
estimator = tpu.TPUEstimator(model_fn)
# === module of the program that is named as tensorflow
from .tensorflow import estimator
from . import tensorflow as tf
mode = tf.estimator.ModeKeys, estimator.tpu
# === other modules named estimator
from my_company import estimator
from estimator import tpu
mode = estimator.ModeKeys, tpu.TPUEstimator
# === license, docstring and future import stay on top
# Copyright

"""What it does."""

from __future__ import annotations

import os
import tensorflow.compat.v1 as tf

mode = tf.estimator.ModeKeys.TRAIN, os.sep
# === comments above the first import stay with it
import os

# pylint: disable=wrong-import-order
import tensorflow.compat.v1 as tf

mode = tf.estimator.ModeKeys.TRAIN
# === first tensorflow import is in a block
import os
if os.environ.get("V1"):
    import tensorflow.compat.v1 as tf
else:
    import tensorflow.compat.v1 as tf
mode = tf.estimator.ModeKeys.TRAIN
# === keras imported above is loaded after this package
from tensorflow.keras import layers
from tensorflow.compat.v1 import estimator

model = layers.Dense(2), estimator.ModeKeys
# === Keras 3
import keras
import tensorflow.compat.v1 as tf
mode = tf.estimator.ModeKeys.TRAIN
# === layers of TensorFlow need Keras 2 where only TPUEstimator is imported
import tensorflow.compat.v1 as tf

def model_fn(features):
    return tf.layers.dense(features, 1)

estimator = tf.estimator.tpu.TPUEstimator(model_fn)
