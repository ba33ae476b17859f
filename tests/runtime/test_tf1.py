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


def test_names_come_and_go():
    done = subprocesses.run_python(SEVERAL)
    assert done.stdout == "True True True True True True True\nTrue False False\n"


@pytest.mark.parametrize("line, sentence", [
    ("import tensorflow as tf; tf.Session()",
     "tf.Session is a name of TensorFlow 1.x. Run the program with `run --tf1`"),
    ("import tensorflow as tf; tf.train.AdamOptimizer()",
     "tf.train.AdamOptimizer is a name of TensorFlow 1.x."),
    ("import tensorflow as tf; tf.estimator.inputs.numpy_input_fn",
     "tf.estimator.inputs is a name of TensorFlow 1.x."),
    ("import tensorflow as tf; tf.zeros([2]).shape[0].value",
     "In TensorFlow 2, sizes of a shape are ints without `.value`. Run the program with"),
    ("from tensorflow.contrib.tpu import keras_to_tpu_model", ""),  # says it itself
    ("from tensorflow.python.framework import ops; ops.no_such_name", ""),
    ("import tensorflow.compat.v1 as tf; tf.no_such_name", ""),
    ("import tensorflow as tf; tf.no_such_name", ""), ("[].no_such_name", ""),
    ("import no_such_module", "")])
def test_error_that_ends_a_program_names_the_fix(line, sentence):
    # In one process each would be the end; the hint is looked up as the end of one would.
    from tpu_estimator_embedding import install
    from tpu_estimator_embedding.runtime import hints
    install()
    with pytest.raises((AttributeError, ImportError)) as error:
        exec(line, {})
    assert hints.hint(error.value).startswith(sentence)
    assert sentence or not hints.hint(error.value)


def test_hint_follows_the_traceback(tmp_path):
    (tmp_path / "train.py").write_text("import tensorflow as tf\ntf.Session()\n")
    done = subprocesses.start([*RUN, "train.py"], cwd=tmp_path)
    assert done.returncode == 1
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("AttributeError: module 'tensorflow' has no attribute 'Session'")
    assert hint.startswith("tpu-estimator-embedding: tf.Session is a name of TensorFlow 1.x.")
