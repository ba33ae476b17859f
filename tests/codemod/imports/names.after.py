# SPDX-License-Identifier: Apache-2.0
# === nothing of the legacy API
import tensorflow as tf
model = tf.keras.Model()
# === names deep in an expression keep comments and formatting: TEE101 TEE105
from tpu_estimator_embedding import RunConfig, TPUEstimator
import tensorflow.compat.v1 as tf
estimator = TPUEstimator(  # the estimator
    model_fn ,
    config = RunConfig( ),   # its configuration
    )
# === attributes behind a name: TEE101 TEE105
from tpu_estimator_embedding import InputPipelineConfig
import tensorflow.compat.v1 as tf
modes = [InputPipelineConfig.PER_HOST_V2.value]
# === parenthesized chain: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimatorSpec
import tensorflow.compat.v1 as tf
spec = (TPUEstimatorSpec)(mode)
# === parameter shadows tensorflow: TEE213:4:12
import tensorflow.compat.v1 as tf

def parse(tf):
    return tf.estimator.ModeKeys
# === local variable shadows tensorflow: TEE213:5:12
import tensorflow.compat.v1 as tf

def parse(data):
    tf = data.frame()
    return tf.estimator.ModeKeys
# === comprehension variable shadows tensorflow
import tensorflow.compat.v1 as tf
names = [tf.estimator for tf in modules]
# === reassigned tensorflow is reported: TEE202:3:8 TEE211:2:11
import tensorflow.compat.v1 as tf
tf = wrap(tf)
mode = tf.estimator.ModeKeys.TRAIN
# === this package's name is taken by a variable: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

def build(RunConfig):
    return tf_estimator.tpu.RunConfig(RunConfig)
# === this package's name is taken by a subclass: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

class TPUEstimator(tf_estimator.tpu.TPUEstimator):
    pass
# === this package's module is taken by a variable: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator as tee_tf_estimator
import tensorflow.compat.v1 as tf
tf_estimator = None
mode = tee_tf_estimator.ModeKeys.TRAIN
# === two RunConfigs: TEE101 TEE105
from tpu_estimator_embedding import RunConfig, tf_estimator
import tensorflow.compat.v1 as tf
configs = [tf_estimator.RunConfig(), RunConfig()]
# === variable of a namespace: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow as tf
tpu_estimator = tf_estimator.tpu
config = tpu_estimator.RunConfig(tpu_config=tpu_estimator.TPUConfig())
# === variable of a class: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf
ESTIMATOR = TPUEstimator
estimator = ESTIMATOR(model_fn)
# === variable of a variable: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
est = tf_estimator
tpu = est.tpu
config = tpu.TPUConfig()
# === variable of contrib goes: TEE101 TEE105 TEE108
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf
estimator = TPUEstimator(model_fn)
# === variable of contrib stays where not all of it is known: TEE101 TEE105 TEE201:2:11 TEE201:4:9
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf
contrib = tf.contrib
estimator = TPUEstimator(model_fn)
layer = contrib.layers.fully_connected(x, 3)
# === variable with an annotation: TEE101 TEE105
from types import ModuleType
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
est: ModuleType = tf_estimator
mode = est.ModeKeys.TRAIN
# === unknown name below a variable: TEE101 TEE105 TEE201:3:9
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
contrib_tpu = tf_tpu
model = contrib_tpu.keras_to_tpu_model(model)
# === namespace as an argument: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
register(tf_estimator, tf_estimator.tpu.experimental)
# === tensorflow as an argument is reported: TEE211:2:10
import tensorflow.compat.v1 as tf
register(tf)
# === program that feeds a TPU by hand is reported once: TEE102 TEE212:2:5
from tpu_estimator_embedding.tf_tpu import tpu_ops as ops
a = ops.infeed_dequeue(d, s)
b = ops.outfeed_enqueue(a)
# === function of the same name as one that feeds a TPU
from feeds import outfeed_enqueue
outfeed_enqueue(a)
# === values that may be TensorFlow are reported: TEE213:12:8 TEE213:13:10 TEE213:14:8 TEE213:16:12 TEE213:9:16
from pk.compat import tf
from pk import compat
import mylib

class Model:
    def __init__(self, tf):
        self.tf = tf
    def make(self):
        return self.tf.estimator.tpu.TPUEstimator(), self.estimator.train()

modules = {"tf": tf}
mode = modules["tf"].estimator.ModeKeys.TRAIN
layers = find_tensorflow().contrib.layers
spec = compat.tf.estimator.EstimatorSpec, mylib.estimator.EstimatorSpec
def config(tf=tf):
    return tf.estimator.RunConfig()
# === attribute of an object: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

class Api:
    def __init__(self):
        self.tpu = tf_estimator.tpu

    def config(self):
        return self.tpu.RunConfig()
# === class attribute: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

class Api:
    estimator = tf_estimator
    mode = estimator.ModeKeys.TRAIN
# === default argument and annotation: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimatorSpec, tf_estimator
import tensorflow.compat.v1 as tf

def model_fn(features, mode: tf_estimator.ModeKeys = tf_estimator.ModeKeys.TRAIN) -> TPUEstimatorSpec:
    return features, mode
# === decorator: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator, tf_estimator
import tensorflow.compat.v1 as tf

@register(TPUEstimator)
@tf_estimator.add_metrics
def build():
    pass
# === partial: TEE101 TEE105
import functools
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf
make = functools.partial(TPUEstimator, use_tpu=True)
# === lambda: TEE101 TEE105
from tpu_estimator_embedding import RunConfig
import tensorflow.compat.v1 as tf
make = lambda **kwargs: RunConfig(**kwargs)
# === subclass: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf

class Ranking(TPUEstimator):
    def train(self, *args, **kwargs):
        return super(Ranking, self).train(*args, **kwargs)
# === isinstance: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator, tf_estimator
import tensorflow.compat.v1 as tf
if isinstance(estimator, (tf_estimator.Estimator, TPUEstimator)):
    pass
# === dictionary and f-string: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
modes = {tf_estimator.ModeKeys.TRAIN: f"{tf_estimator.ModeKeys.TRAIN} mode"}
# === embedding columns: TEE101 TEE105
from tpu_estimator_embedding import (
    EmbeddingConfigSpec,
    FtrlParameters,
    embedding_column,
    shared_embedding_columns,
)
import tensorflow.compat.v1 as tf
column = embedding_column(words, 8, combiner="sum")
shared = shared_embedding_columns([a, b], 8)
spec = EmbeddingConfigSpec(
    feature_columns=[column, *shared],
    optimization_parameters=FtrlParameters(0.1))
# === feature columns of TensorFlow stay
import tensorflow.compat.v1 as tf
column = tf.feature_column.embedding_column(words, 8)
# === TF2 embedding names: TEE101 TEE105
from tpu_estimator_embedding import mid_level
import tensorflow as tf
table = mid_level.TableConfig(10, 2)
optimizer = mid_level.Adagrad(0.1)
# === TF2 embedding name without a counterpart: TEE201:2:12
import tensorflow as tf
combiner = tf.tpu.experimental.embedding.CustomCombiner()
# === strategies and resolvers: TEE101 TEE105
from tpu_estimator_embedding import TPUClusterResolver, tf_tpu
import tensorflow as tf
resolver = TPUClusterResolver("local")
tf.config.experimental_connect_to_cluster(resolver)
tf_tpu.experimental.initialize_tpu_system(resolver)
strategy = tf_tpu.TPUStrategy(resolver)
old = tf_tpu.experimental.TPUStrategy(resolver)
# === resolver through a variable of a module that stays: TEE101 TEE105
from tpu_estimator_embedding import TPUClusterResolver
import tensorflow as tf
resolvers = tf.distribute.cluster_resolver
resolver = TPUClusterResolver("local"), resolvers.SimpleClusterResolver
# === computations: TEE101 TEE105
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
outputs = tf_tpu.rewrite(computation, inputs)
with tf_tpu.bfloat16_scope():
    total = tf_tpu.cross_replica_sum(x)
# === exporters, receivers, hooks: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
exporter = tf_estimator.LatestExporter("latest", receiver)
receiver = tf_estimator.export.ServingInputReceiver(features, features)
hook = tf_estimator.experimental.stop_if_no_increase_hook(estimator, "auc", 10)
train = tf.train.LoggingTensorHook(tensors, every_n_iter=1)
# === inputs: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
input_fn = tf_estimator.inputs.numpy_input_fn({"x": x}, y)
# === name that Estimator does not have any more: TEE201:2:14
import tensorflow.compat.v1 as tf
classifier = tf.estimator.BoostedTreesClassifier(columns, 10)
# === import of a name that Estimator does not have any more: TEE201:1:1
from tensorflow.compat.v1.estimator import BoostedTreesClassifier
# === device assignment: TEE102
from tpu_estimator_embedding.tf_tpu import device_assignment
from tpu_estimator_embedding.tf_tpu import device_assignment as contrib_assignment
# === module whose name is that of a function: TEE201:1:1
from tensorflow.python.tpu import device_assignment
# === session with an address: TEE101 TEE105 TEE209:2:6
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
with tf.Session(FLAGS.master, config=config) as session:
    session.run(tf_tpu.initialize_system())
# === session with an address by its keyword: TEE101 TEE105 TEE209:2:6
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
with tf.Session(config=config, target=FLAGS.master) as session:
    session.run(tf_tpu.initialize_system())
# === session of this machine: TEE101 TEE105
from tpu_estimator_embedding import tf_tpu
import tensorflow.compat.v1 as tf
with tf.Session("", config=config) as session:
    session.run(tf_tpu.initialize_system())
# === global statement: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf

def main():
    global MODE
    MODE = tf_estimator.ModeKeys.TRAIN
# === walrus and star expressions: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
if (mode := tf_estimator.ModeKeys.TRAIN) and [*tf_estimator.ModeKeys.TRAIN]:
    pass
# === deleted name: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
mode = tf_estimator.ModeKeys.TRAIN
del tf
# === the same name in two scopes: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow as tf2

def old():
    import tensorflow.compat.v1 as tf2
    return tf_estimator.LinearClassifier

def new():
    return tf_estimator.v2.LinearClassifier
# === conditional expression: TEE101 TEE105
from tpu_estimator_embedding import tf_estimator
import tensorflow.compat.v1 as tf
api = tf_estimator if old else make()
mode = api.ModeKeys.TRAIN
# === variable that is sometimes something else is reported: TEE201:2:7 TEE202:5:13
import tensorflow.compat.v1 as tf
api = tf.contrib
if new:
    api = make()
estimator = api.tpu.TPUEstimator(model_fn)
# === loop variable: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator, tf_estimator
import tensorflow.compat.v1 as tf
for estimator_class in (tf_estimator.Estimator, TPUEstimator):
    estimator_class(model_fn)
# === program that is migrated in part: TEE101 TEE105
from tpu_estimator_embedding import TPUEstimator
from tpu_estimator_embedding import RunConfig
import tensorflow.compat.v1 as tf

estimator = TPUEstimator(model_fn, config=RunConfig())
other = TPUEstimator(model_fn)
