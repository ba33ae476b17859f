# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingV0: TensorFlow's numbers, and training under the TPUStrategy stub."""

import importlib
import pathlib
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding_base, tpu_embedding_v2_utils

from tests.fronts.low_level.tensorflows_own import load_tensorflows_own
from tests.fronts.mid_level.keras_layers.step_programs import KERASES
from tests.subprocesses import start
from tpu_estimator_embedding import mid_level

VALUES = np.random.default_rng(0).uniform(-1, 1, [6, 2]).astype(np.float32)
DENSE = tf.constant([[3, 0], [5, 1]])
RAGGED = tf.ragged.constant([[1, 0, 5], [], [2], [4, 4]])
WEIGHTS = tf.ragged.constant([[1.0, -2.0, 0.5], [], [0.0], [3.0, 1.0]])
SPARSE, SPARSE_WEIGHTS = RAGGED.to_sparse(), WEIGHTS.to_sparse()
CUBE = tf.SparseTensor([[0, 0, 1], [0, 1, 0], [1, 2, 3]], [3, 4, 5], [2, 3, 4])


def theirs(config):
    """Returns TensorFlow's own object, made without the TPU that it asks for."""
    embedding = object.__new__(load_tensorflows_own("tpu_embedding_v1").TPUEmbeddingV0)
    tpu_embedding_base.TPUEmbeddingBase.__init__(embedding, config, None)
    embedding._built = False
    return embedding


def lookup(make, api, value, weights, combiner, options):
    """Returns the activations, and the gradient of the table by a fixed weighting of them."""
    table = api.TableConfig(6, 2, tf.compat.v1.constant_initializer(VALUES), combiner=combiner)
    embedding = make({"a": [api.FeatureConfig(table, **options)]})
    [variable] = embedding.embedding_tables.values()
    with tf.GradientTape() as tape:
        tape.watch(variable)
        [activations] = embedding.embedding_lookup(
            {"a": [value]}, weights if weights is None else {"a": [weights]})["a"]
        loss = tf.reduce_sum(activations ** 2 + activations)
    return activations.numpy(), tf.convert_to_tensor(tape.gradient(loss, variable)).numpy()


@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
@pytest.mark.parametrize("value, weights, options", [
    (DENSE, None, {}), (SPARSE, None, {}), (SPARSE, SPARSE_WEIGHTS, {}), (RAGGED, None, {}),
    (RAGGED, WEIGHTS, {}), (CUBE, None, {}), (RAGGED, WEIGHTS, {"output_shape": [2, 2]}),
    (RAGGED, None, {"output_shape": [4, 2]}),
    *((value, None, {"max_sequence_length": length}) for value in (SPARSE, RAGGED)
      for length in (2, 5))])
def test_lookups_and_gradients_are_those_of_tensorflow(value, weights, options, combiner):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Positions beyond the end")
        found = lookup(lambda config: mid_level.TPUEmbeddingV0(config, None), mid_level, value,
                       weights, combiner, options)
    expected = lookup(theirs, tpu_embedding_v2_utils, value, weights, combiner, options)
    for mine, upstreams in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, upstreams, rtol=1e-6, atol=1e-7)


def test_filling_up_a_ragged_sequence_warns():
    table = mid_level.TableConfig(6, 2)
    embedding = mid_level.TPUEmbeddingV0(
        {"a": mid_level.FeatureConfig(table, max_sequence_length=3)}, None)
    with pytest.warns(UserWarning, match="Positions beyond the end of feature 'a' hold row 0"):
        embedding({"a": RAGGED})


def test_checkpoint_restores_for_serving(tmp_path):
    config = {"a": mid_level.FeatureConfig(mid_level.TableConfig(6, 2, name="t"))}
    trained = mid_level.TPUEmbeddingV0(config, mid_level.Adagrad())
    trained.build()
    path = tf.train.Checkpoint(embedding=trained).save(str(tmp_path / "model"))
    served = mid_level.TPUEmbeddingForServing(config, mid_level.Adagrad())
    served.build()
    tf.train.Checkpoint(embedding=served).restore(path).assert_consumed()
    np.testing.assert_array_equal(served({"a": tf.range(6)})["a"],
                                  trained({"a": tf.range(6)})["a"])


@pytest.mark.parametrize("make, api", [
    (lambda config: mid_level.TPUEmbeddingV0(config, None), mid_level),
    (theirs, tpu_embedding_v2_utils)])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("name", KERASES)
def test_fit_trains_tables_that_keras_2_finds_in_an_attribute(name, is_held, make, api):
    keras = importlib.import_module(name)

    class Model(keras.Model):
        def call(self, ids):
            return self.dense(self.embedding.embedding_lookup({"a": ids})["a"])

    model = Model()
    model.embedding = make({"a": api.FeatureConfig(api.TableConfig(6, 2))})
    model.dense = keras.layers.Dense(1)
    [table] = model.embedding.embedding_tables.values()
    if is_held:
        model.tables = [table]
    before = table.numpy()
    model.compile("sgd", "mse")
    model.fit(np.arange(6), np.ones([6, 1]), verbose=0)
    is_trained = is_held and keras.__version__ < "3"
    assert any(variable is table for variable in model.trainable_variables) == is_trained
    assert np.any(table.numpy() != before) == is_trained


@pytest.mark.long
def test_replicas_train_as_one_does():
    program = pathlib.Path(__file__).with_name("v0_program.py")
    printed = []
    for cores in (1, 2):
        done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", "--quiet", "--cores",
                      str(cores), program])
        assert done.returncode == 0, done.stderr
        first, *table = done.stdout.splitlines()
        assert first.startswith(f"{cores} {cores} tpu_estimator_embedding.")
        printed.append(table)
    assert printed[0] == printed[1]
