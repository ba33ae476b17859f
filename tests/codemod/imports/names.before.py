# SPDX-License-Identifier: Apache-2.0
# === nothing of the legacy API
import tensorflow as tf
model = tf.keras.Model()
# === names deep in an expression keep comments and formatting
import tensorflow.compat.v1 as tf
estimator = tf.estimator.tpu.TPUEstimator(  # the estimator
    model_fn ,
    config = tf.estimator.tpu.RunConfig( ),   # its configuration
    )
# === attributes behind a name
import tensorflow.compat.v1 as tf
modes = [tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2.value]
# === parenthesized chain
import tensorflow.compat.v1 as tf
spec = (tf.estimator
        .tpu
        .TPUEstimatorSpec)(mode)
# === parameter shadows tensorflow
import tensorflow.compat.v1 as tf

def parse(tf):
    return tf.estimator.ModeKeys
# === local variable shadows tensorflow
import tensorflow.compat.v1 as tf

def parse(data):
    tf = data.frame()
    return tf.estimator.ModeKeys
# === comprehension variable shadows tensorflow
import tensorflow.compat.v1 as tf
names = [tf.estimator for tf in modules]
# === reassigned tensorflow is reported
import tensorflow.compat.v1 as tf
tf = wrap(tf)
mode = tf.estimator.ModeKeys.TRAIN
# === this package's name is taken by a variable
import tensorflow.compat.v1 as tf

def build(RunConfig):
    return tf.estimator.tpu.RunConfig(RunConfig)
# === this package's name is taken by a subclass
import tensorflow.compat.v1 as tf

class TPUEstimator(tf.estimator.tpu.TPUEstimator):
    pass
# === this package's module is taken by a variable
import tensorflow.compat.v1 as tf
tf_estimator = None
mode = tf.estimator.ModeKeys.TRAIN
# === two RunConfigs
import tensorflow.compat.v1 as tf
configs = [tf.estimator.RunConfig(), tf.estimator.tpu.RunConfig()]
# === variable of a namespace
import tensorflow as tf
tpu_estimator = tf.compat.v1.estimator.tpu
config = tpu_estimator.RunConfig(tpu_config=tpu_estimator.TPUConfig())
# === variable of a class
import tensorflow.compat.v1 as tf
ESTIMATOR = tf.estimator.tpu.TPUEstimator
estimator = ESTIMATOR(model_fn)
# === variable of a variable
import tensorflow.compat.v1 as tf
est = tf.estimator
tpu = est.tpu
config = tpu.TPUConfig()
# === variable of contrib goes
import tensorflow.compat.v1 as tf
contrib = tf.contrib
estimator = contrib.tpu.TPUEstimator(model_fn)
# === variable of contrib stays where not all of it is known
import tensorflow.compat.v1 as tf
contrib = tf.contrib
estimator = contrib.tpu.TPUEstimator(model_fn)
layer = contrib.layers.fully_connected(x, 3)
# === variable with an annotation
from types import ModuleType
import tensorflow.compat.v1 as tf
est: ModuleType = tf.estimator
mode = est.ModeKeys.TRAIN
# === unknown name below a variable
import tensorflow.compat.v1 as tf
contrib_tpu = tf.contrib.tpu
model = contrib_tpu.keras_to_tpu_model(model)
# === namespace as an argument
import tensorflow.compat.v1 as tf
register(tf.estimator, tf.estimator.tpu.experimental)
# === tensorflow as an argument is reported
import tensorflow.compat.v1 as tf
register(tf)
# === program that feeds a TPU by hand is reported once
from tensorflow.python.tpu.ops import tpu_ops as ops
a = ops.infeed_dequeue(d, s)
b = ops.outfeed_enqueue(a)
# === function of the same name as one that feeds a TPU
from feeds import outfeed_enqueue
outfeed_enqueue(a)
# === values that may be TensorFlow are reported
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
# === attribute of an object
import tensorflow.compat.v1 as tf

class Api:
    def __init__(self):
        self.tpu = tf.estimator.tpu

    def config(self):
        return self.tpu.RunConfig()
# === class attribute
import tensorflow.compat.v1 as tf

class Api:
    estimator = tf.estimator
    mode = estimator.ModeKeys.TRAIN
# === default argument and annotation
import tensorflow.compat.v1 as tf

def model_fn(features, mode: tf.estimator.ModeKeys = tf.estimator.ModeKeys.TRAIN) -> tf.estimator.tpu.TPUEstimatorSpec:
    return features, mode
# === decorator
import tensorflow.compat.v1 as tf

@register(tf.estimator.tpu.TPUEstimator)
@tf.estimator.add_metrics
def build():
    pass
# === partial
import functools
import tensorflow.compat.v1 as tf
make = functools.partial(tf.estimator.tpu.TPUEstimator, use_tpu=True)
# === lambda
import tensorflow.compat.v1 as tf
make = lambda **kwargs: tf.estimator.tpu.RunConfig(**kwargs)
# === subclass
import tensorflow.compat.v1 as tf

class Ranking(tf.estimator.tpu.TPUEstimator):
    def train(self, *args, **kwargs):
        return super(Ranking, self).train(*args, **kwargs)
# === isinstance
import tensorflow.compat.v1 as tf
if isinstance(estimator, (tf.estimator.Estimator, tf.estimator.tpu.TPUEstimator)):
    pass
# === dictionary and f-string
import tensorflow.compat.v1 as tf
modes = {tf.estimator.ModeKeys.TRAIN: f"{tf.estimator.ModeKeys.TRAIN} mode"}
# === embedding columns
import tensorflow.compat.v1 as tf
column = tf.tpu.experimental.embedding_column(words, 8, combiner="sum")
shared = tf.tpu.experimental.shared_embedding_columns([a, b], 8)
spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
    feature_columns=[column, *shared],
    optimization_parameters=tf.tpu.experimental.FtrlParameters(0.1))
# === feature columns of TensorFlow stay
import tensorflow.compat.v1 as tf
column = tf.feature_column.embedding_column(words, 8)
# === TF2 embedding names
import tensorflow as tf
table = tf.tpu.experimental.embedding.TableConfig(10, 2)
optimizer = tf.tpu.experimental.embedding.Adagrad(0.1)
# === TF2 embedding name without a counterpart
import tensorflow as tf
combiner = tf.tpu.experimental.embedding.CustomCombiner()
# === strategies and resolvers
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
old = tf.distribute.experimental.TPUStrategy(resolver)
# === resolver through a variable of a module that stays
import tensorflow as tf
resolvers = tf.distribute.cluster_resolver
resolver = resolvers.TPUClusterResolver("local"), resolvers.SimpleClusterResolver
# === computations
import tensorflow.compat.v1 as tf
outputs = tf.tpu.rewrite(computation, inputs)
with tf.tpu.bfloat16_scope():
    total = tf.tpu.cross_replica_sum(x)
# === exporters, receivers, hooks
import tensorflow.compat.v1 as tf
exporter = tf.estimator.LatestExporter("latest", receiver)
receiver = tf.estimator.export.ServingInputReceiver(features, features)
hook = tf.estimator.experimental.stop_if_no_increase_hook(estimator, "auc", 10)
train = tf.train.LoggingTensorHook(tensors, every_n_iter=1)
# === inputs
import tensorflow.compat.v1 as tf
input_fn = tf.estimator.inputs.numpy_input_fn({"x": x}, y)
# === name that Estimator does not have any more
import tensorflow.compat.v1 as tf
classifier = tf.estimator.BoostedTreesClassifier(columns, 10)
# === import of a name that Estimator does not have any more
from tensorflow.compat.v1.estimator import BoostedTreesClassifier
# === device assignment
from tensorflow.python.tpu.device_assignment import device_assignment
from tensorflow.contrib.tpu import device_assignment as contrib_assignment
# === module whose name is that of a function
from tensorflow.python.tpu import device_assignment
# === session with an address
import tensorflow.compat.v1 as tf
with tf.Session(FLAGS.master, config=config) as session:
    session.run(tf.tpu.initialize_system())
# === session with an address by its keyword
import tensorflow.compat.v1 as tf
with tf.Session(config=config, target=FLAGS.master) as session:
    session.run(tf.tpu.initialize_system())
# === session of this machine
import tensorflow.compat.v1 as tf
with tf.Session("", config=config) as session:
    session.run(tf.tpu.initialize_system())
# === global statement
import tensorflow.compat.v1 as tf

def main():
    global MODE
    MODE = tf.estimator.ModeKeys.TRAIN
# === walrus and star expressions
import tensorflow.compat.v1 as tf
if (mode := tf.estimator.ModeKeys.TRAIN) and [*tf.estimator.ModeKeys.TRAIN]:
    pass
# === deleted name
import tensorflow.compat.v1 as tf
mode = tf.estimator.ModeKeys.TRAIN
del tf
# === the same name in two scopes
import tensorflow as tf2

def old():
    import tensorflow.compat.v1 as tf2
    return tf2.estimator.LinearClassifier

def new():
    return tf2.estimator.LinearClassifier
# === conditional expression
import tensorflow.compat.v1 as tf
api = tf.estimator if old else make()
mode = api.ModeKeys.TRAIN
# === variable that is sometimes something else is reported
import tensorflow.compat.v1 as tf
api = tf.contrib
if new:
    api = make()
estimator = api.tpu.TPUEstimator(model_fn)
# === loop variable
import tensorflow.compat.v1 as tf
for estimator_class in (tf.estimator.Estimator, tf.estimator.tpu.TPUEstimator):
    estimator_class(model_fn)
# === program that is migrated in part
from tpu_estimator_embedding import TPUEstimator
import tensorflow.compat.v1 as tf

estimator = TPUEstimator(model_fn, config=tf.estimator.tpu.RunConfig())
other = tf.estimator.tpu.TPUEstimator(model_fn)
