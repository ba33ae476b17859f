# SPDX-License-Identifier: Apache-2.0
"""run --tf1: `import tensorflow` is TensorFlow 1.x."""

import sys

import pytest

from tests import subprocesses

RUN = [sys.executable, "-m", "tpu_estimator_embedding", "run"]

# As programs were written in 2018: no compat.v1 anywhere.
PROGRAM = """
import os
import sys
import tensorflow as tf
import tensorflow.keras
from tensorflow import keras
from tensorflow.contrib.cluster_resolver import TPUClusterResolver
from tensorflow.contrib.tpu.python.tpu import tpu_config
from tensorflow.keras import layers
from tensorflow.python.framework import ops

flags = tf.flags
flags.DEFINE_string("model_dir", None, "Where the checkpoints go.")
flags.DEFINE_integer("steps", 1, "How many.")
FLAGS = flags.FLAGS


def input_fn(params):
    ids = tf.data.Dataset.from_tensor_slices([[0], [1], [2], [3]]).repeat()
    dataset = ids.map(lambda row: ({"item": row}, tf.to_float(row % 2)))
    return dataset.batch(params["batch_size"], drop_remainder=True)


def model_fn(features, labels, mode, params):
    if not isinstance(features["item"], tf.Tensor) or tf.executing_eagerly():
        raise TypeError(features)
    inputs = tf.feature_column.input_layer(features, params["columns"])
    output = tf.layers.dense(inputs, 1, name="output") + layers.Dense(1)(inputs)
    loss = tf.losses.mean_squared_error(labels, output)
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.1))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def main(unused_argv):
    columns = [tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("item", 4), 4, combiner="sum")]
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        columns, tf.tpu.experimental.AdagradParameters(0.5))
    config = tpu_config.RunConfig(
        cluster=TPUClusterResolver(tpu=["grpc://localhost:1"]), model_dir=FLAGS.model_dir,
        tf_random_seed=1, session_config=tf.ConfigProto(allow_soft_placement=True),
        tpu_config=tpu_config.TPUConfig(iterations_per_loop=5))
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn=model_fn, config=config, use_tpu=True, train_batch_size=4, eval_batch_size=4,
        params={"columns": columns}, embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=FLAGS.steps)
    loss = estimator.evaluate(input_fn, steps=1)["loss"]
    tf.logging.info("evaluated")
    with tf.Session() as session:
        print(session.run(tf.constant(7)), loss < 0.05, tf.VERSION == tf.__version__,
              tf.gfile.Exists(FLAGS.model_dir), tensorflow.keras is keras is tf.keras,
              ops.Graph is tf.Graph, sorted(os.listdir(FLAGS.model_dir))[0])


if __name__ == "__main__":
    tf.app.run()
"""


@pytest.mark.slow
def test_program_of_2018_trains(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocesses.start([*RUN, "--tf1", "train.py", "--model_dir=model",
                               "--steps", "80"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7 True True True True True checkpoint\n"
    assert "disable_resource_variables" not in done.stderr


SEVERAL = """
import sys
sys.argv = ["program"]
from tpu_estimator_embedding.runtime import tf1
import tensorflow as before
import tpu_estimator_embedding
tpu_estimator_embedding.install()
tf1.use()
import tensorflow as tf
import tensorflow.compat.v2 as v2
import tensorflow.compat.v1 as v1
from tensorflow.train import Example
print(tf is not before, tf.Session is v1.Session,
      v2.keras.layers.Dense is before.keras.layers.Dense, v2 is before.compat.v2,
      tf.compat.v1 is v1, tf.estimator.tpu is v1.estimator.tpu, tf.contrib is v1.contrib)
tpu_estimator_embedding.uninstall()
import tensorflow
print(tensorflow is before, hasattr(tensorflow, "Session"), hasattr(tensorflow, "contrib"))
"""


@pytest.mark.long
def test_names_come_and_go():
    done = subprocesses.run_python(SEVERAL)
    assert done.stdout == "True True True True True True True\nTrue False False\n"


# Every form of import, after which nothing of TensorFlow 2 shows up. `before` was imported before
# the program, when `tensorflow` was TensorFlow 2.
BEFORE = """
import tensorflow.data
import tensorflow.train as train_2
from tensorflow.summary import create_file_writer


def late():
    from tensorflow.train import AdamOptimizer
    import tensorflow.data as data
    return AdamOptimizer, data.Dataset
"""

FORMS = """
import sys
sys.argv = ["program"]
import before
import tpu_estimator_embedding
from tpu_estimator_embedding.runtime import tf1
original = sys.modules["tensorflow"]
tpu_estimator_embedding.install()
tf1.use()

import importlib
import pickle
import threading
import unittest.mock
import tensorflow.train
import tensorflow.data as data
from tensorflow.data import Dataset
import tensorflow as tf
v1 = tf.compat.v1
print("modules", all(
    getattr(tf, name) is sys.modules[f"tensorflow.{name}"] is importlib.import_module(
        f"tensorflow.{name}") is getattr(v1, name) is sys.modules[f"tensorflow.compat.v1.{name}"]
    for name in "data gfile io layers logging losses metrics nn summary tpu train".split()))
print("dataset", Dataset is data.Dataset is tf.data.Dataset is before.late()[1],
      hasattr(Dataset, "make_one_shot_iterator"), before.late()[0] is tf.train.AdamOptimizer)

from tensorflow.app import run
from tensorflow.gfile import Exists
from tensorflow.initializers import random_uniform, truncated_normal
from tensorflow.layers import Dense, dense
from tensorflow.logging import INFO, set_verbosity
from tensorflow.losses import get_total_loss, mean_squared_error
from tensorflow.metrics import accuracy
from tensorflow.nn import rnn_cell
from tensorflow.nn.rnn_cell import LSTMCell
from tensorflow.python_io import TFRecordWriter
from tensorflow.saved_model import simple_save
from tensorflow.saved_model.builder import SavedModelBuilder
from tensorflow.train import Saver
from tensorflow.estimator.tpu import TPUEstimator
from tensorflow.tpu.experimental import AdagradParameters, embedding_column
from tensorflow import Session, flags
import tensorflow.keras.backend as K
from tensorflow.keras.layers import Dense as KerasDense
print("names", run is v1.app.run, Exists is v1.gfile.Exists, dense is v1.layers.dense,
      set_verbosity is v1.logging.set_verbosity, get_total_loss is v1.losses.get_total_loss,
      accuracy is v1.metrics.accuracy, LSTMCell is rnn_cell.LSTMCell is v1.nn.rnn_cell.LSTMCell,
      TFRecordWriter is v1.python_io.TFRecordWriter, simple_save is v1.saved_model.simple_save,
      Saver is v1.train.Saver, KerasDense is v1.keras.layers.Dense,
      K.get_session is v1.keras.backend.get_session, flags.FLAGS is v1.flags.FLAGS)
print("package", *{name.__module__.partition(".")[0] for name in (
    TPUEstimator, AdagradParameters, tf.tpu.experimental.AdagradParameters)})

# Both of these folders have modules of TensorFlow, too.
from tensorflow.distribute import MirroredStrategy
from tensorflow.distribute.experimental import ParameterServerStrategy
from tensorflow.lite import TFLiteConverter
from tensorflow.lite.python import lite
import tensorflow.tools.docs
from tensorflow.python.training.saver import Saver as PrivateSaver
print("private", MirroredStrategy is v1.distribute.MirroredStrategy,
      ParameterServerStrategy is v1.distribute.experimental.ParameterServerStrategy,
      TFLiteConverter is v1.lite.TFLiteConverter is lite.TFLiteConverter, PrivateSaver is Saver,
      tf.tools.docs is sys.modules["tensorflow.tools.docs"])

import tensorflow.compat.v2 as v2
import tensorflow.compat.v2.train
from tensorflow.compat.v2.data import Dataset as Dataset2
import tensorflow.compat.v1.train as train_1
print("compat", v2.data.Dataset is Dataset2 is original.data.Dataset is not Dataset,
      tf.data.Dataset is Dataset, train_1 is tf.train is tensorflow.train,
      v2.function is original.function, hasattr(v2, "Session"))

names = {}
exec("from tensorflow import *", names)
print("star", names["Session"] is Session, names["train"] is tf.train, "placeholder" in names)

seen = []
def look():
    from tensorflow.train import MomentumOptimizer
    import tensorflow.summary as summary
    seen.append((MomentumOptimizer is v1.train.MomentumOptimizer, summary is tf.summary,
                 hasattr(summary, "FileWriter")))
threads = [threading.Thread(target=look) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", seen == [(True, True, True)] * 4)

def converted(value):
    seen.append(getattr(tf, "Session", None) is Session and hasattr(tf.data, "get_output_shapes"))
    return value
tf.data.Dataset.range(1).map(converted)
print("autograph", seen[-1])

print("pickle", all(pickle.loads(pickle.dumps(value)) is value for value in (
    Dataset, Saver, Session, KerasDense, LSTMCell, TPUEstimator, tf.train.Example, tf.float32)))
for name in ("Session", "logging"):
    kept = getattr(tf, name)
    with unittest.mock.patch.object(tf, name, 2):
        print(getattr(tf, name), end=" ")
    print(getattr(tf, name) is kept)
for wrong in ("examples.tutorials", "nonsense", "train.nonsense"):
    try:
        importlib.import_module(f"tensorflow.{wrong}")
    except ModuleNotFoundError as error:
        print(error)

# Packages that are written for TensorFlow 2 still see it, also in functions that import it later.
code = "def read():\\n    import tensorflow as tf\\n    return tf.where, tf.data, tf.Session"
for package in ("tensorflow.python.x", "tf_keras.x", "tensorflow_estimator.x", "mine.x"):
    names = {"__name__": package}
    exec(code.replace(", tf.Session", ""), names)
    print(package, names["read"]() == (original.where, original.data))

tpu_estimator_embedding.uninstall()
import tensorflow
import tensorflow.train
import tensorflow.data
print("after", tensorflow is original, tensorflow.data.Dataset is before.tensorflow.data.Dataset,
      hasattr(tensorflow.train, "AdamOptimizer"), hasattr(tensorflow, "Session"))
"""

SHOWN = """\
modules True
dataset True True True
names True True True True True True True True True True True True True
package tpu_estimator_embedding
private True True True True True
compat True True True True False
star True True True
threads True
autograph True
pickle True
2 True
2 True
No module named 'tensorflow.examples'
No module named 'tensorflow.nonsense'
No module named 'tensorflow.train.nonsense'
tensorflow.python.x True
tf_keras.x True
tensorflow_estimator.x True
mine.x False
after True True False False
"""


@pytest.mark.long
def test_every_form_of_import_gives_tensorflow_1(tmp_path):
    (tmp_path / "before.py").write_text(BEFORE)
    (tmp_path / "forms.py").write_text(FORMS)
    done = subprocesses.start([sys.executable, "forms.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN


# Two files: `run` starts the program, which runs the other one in this and in a new process.
MAIN = """
import multiprocessing
import runpy

def work(queue):
    from tensorflow.train import Saver
    import tensorflow.data
    queue.put((Saver.__name__, hasattr(tensorflow.data.Dataset, "make_one_shot_iterator")))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(timeout=120))
    process.join()
    runpy.run_path("part.py")
    runpy.run_module("part")
"""

PART = """
from tensorflow.train import AdamOptimizer
import tensorflow as tf
print(__name__, AdamOptimizer is tf.train.AdamOptimizer, tf.Session.__name__)
"""


@pytest.mark.long
def test_other_processes_and_files_see_tensorflow_1(tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "part.py").write_text(PART)
    done = subprocesses.start([*RUN, "--tf1", "main.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "('Saver', True)\n<run_path> True Session\npart True Session\n"


@pytest.mark.parametrize("line, sentence", [
    ("import tensorflow as tf; tf.Session()",
     "tf.Session is a name of TensorFlow 1.x. Run the program with `run --tf1`"),
    ("import tensorflow as tf; tf.train.AdamOptimizer()",
     "tf.train.AdamOptimizer is a name of TensorFlow 1.x."),
    ("import tensorflow as tf; tf.estimator.inputs.numpy_input_fn",
     "tf.estimator.inputs is a name of TensorFlow 1.x."),
    ("import tensorflow as tf; tf.zeros([2]).shape[0].value",
     "In TensorFlow 2, sizes of a shape are ints without `.value`. Run the program with"),
    ("from tensorflow.contrib import tpu; tpu.keras_to_tpu_model()", ""),  # says it itself
    ("from tensorflow.python.framework import ops; ops.no_such_name", ""),
    ("import tensorflow.compat.v1 as tf; tf.no_such_name", ""),
    ("import tensorflow as tf; tf.no_such_name", ""), ("[].no_such_name", ""),
    ("import no_such_module", "")])
def test_error_that_ends_a_program_names_the_fix(line, sentence):
    # In one process each would be the end; the hint is looked up as the end of one would.
    from tpu_estimator_embedding import install
    from tpu_estimator_embedding.runtime import program_runner
    install()
    with pytest.raises((AttributeError, ImportError)) as error:
        exec(line, {})
    assert program_runner.hint(error.value).startswith(sentence)
    assert sentence or not program_runner.hint(error.value)


@pytest.mark.slow
def test_hint_follows_the_traceback(tmp_path):
    (tmp_path / "train.py").write_text("import tensorflow as tf\ntf.Session()\n")
    done = subprocesses.start([*RUN, "train.py"], cwd=tmp_path)
    assert done.returncode == 1
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("AttributeError: module 'tensorflow' has no attribute 'Session'")
    assert hint.startswith("tpu-estimator-embedding: tf.Session is a name of TensorFlow 1.x.")
