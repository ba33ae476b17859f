# SPDX-License-Identifier: Apache-2.0
"""Keras 2 and v1 layers within model_fn, as programs for TPUs used them.

One model is built in each way, on the same values: all learn the same, and predict
and evaluate alike.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, linear
from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, run_config
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

v1 = tf.compat.v1
NAMES = ["a", "b", "c", "s", "w"]
DENSE = ["a", "b", "c", "w"]
UNITS = 4


def sin_initializer(shape, dtype=None, partition_info=None, **kwargs):
    """The same values for every way of building the model."""
    return tf.reshape(tf.sin(tf.range(np.prod(shape), dtype=tf.float32)), shape)


def hidden(layers, **options):
    return layers.Dense(UNITS, "relu", kernel_initializer=sin_initializer, **options)


def column_by_column(embeddings, features, rows, x):
    """A layer for every column, and a functional model of inputs made of their outputs."""
    layers = tf.keras.layers
    outputs = [layers.DenseFeatures(embeddings[name], name=f"take_{name}")(features)
               for name in DENSE]
    inputs = [layers.Input(tensor=tensor) for tensor in [*outputs, rows, x]]
    net = layers.Concatenate()(inputs)
    net = hidden(layers)(net)
    net = layers.Dropout(0.0)(net)
    return layers.Dense(1, kernel_initializer=sin_initializer)(net)


def all_columns(embeddings, features, rows, x):
    """One layer for all columns, and a Sequential model."""
    layers = tf.keras.layers
    taken = layers.DenseFeatures([embeddings[name] for name in DENSE])(features)
    model = tf.keras.Sequential([
        hidden(layers), layers.Dense(1, kernel_initializer=sin_initializer)])
    return model(tf.concat([taken, rows, x], 1))


def subclassed(embeddings, features, rows, x):
    """A model of the program's own class, which is built where it is called."""
    class Tower(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.net = hidden(tf.keras.layers)
            self.out = tf.keras.layers.Dense(1, kernel_initializer=sin_initializer)

        def call(self, inputs):
            return self.out(self.net(inputs))

    layer = tf.keras.layers.DenseFeatures([embeddings[name] for name in DENSE])
    return Tower()(tf.concat([layer(features), rows, x], 1))


def new_program(build):
    embeddings = columns.new_columns(NAMES, initializer=sin_initializer)

    def model_fn(features, labels, mode, params):
        sequence, lengths = tf.keras.experimental.SequenceFeatures([embeddings["s"]])(features)
        mask = tf.sequence_mask(lengths, 3, tf.float32)[:, :, tf.newaxis]
        rows = tf.reduce_sum(sequence * mask, 1)
        predicted = build(embeddings, features, rows, features["x"])[:, 0]
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"p": predicted})
        loss = tf.reduce_mean(tf.square(predicted - labels))
        if mode == "eval":
            return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
                lambda p: {"mean": v1.metrics.mean(p)}, [predicted]))
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.AdagradOptimizer(0.1))
        return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, v1.train.get_global_step()))

    return EmbeddingConfigSpec(list(embeddings.values()), AdagradParameters(0.1)), model_fn


DATA = linear.random_data(NAMES, [4, 4, 4])


def input_fn(params):
    return linear.to_dataset(DATA, params["batch_size"])


def run(model_dir, build, num_shards=None):
    spec, model_fn = new_program(build)
    config = run_config(upstream.tpu_config.TPUConfig(num_shards=num_shards))
    estimator = new_estimator(model_dir, model_fn, spec=spec, batch_size=4, config=config)
    estimator.train(input_fn, max_steps=100)
    assert estimator.get_variable_value("global_step") == 3
    metrics = estimator.evaluate(input_fn)
    predictions = [prediction["p"] for prediction in estimator.predict(input_fn)]
    return {"loss": metrics["loss"], "mean": metrics["mean"], "p": predictions}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run(tmp_path_factory.mktemp("all"), all_columns)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`tf.layers:UserWarning")
@pytest.mark.parametrize("build, num_shards", [
    (column_by_column, None), (column_by_column, 2), (subclassed, None)])
def test_every_way_of_building_a_model_learns_the_same(tmp_path, expected, build, num_shards):
    result = run(tmp_path, build, num_shards)
    assert np.std(expected["p"]) > 0.01
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=2e-5, atol=1e-5, err_msg=name)


def initial_kernels(model_dir, seed, **options):
    """Returns the first values of two kernels without seeds."""
    def model_fn(features, labels, mode, params):
        net = v1.layers.dense(features["x"], UNITS, name="hidden")
        loss = tf.reduce_sum(tf.keras.layers.Dense(UNITS, name="out")(net))
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.0))
        return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, v1.train.get_global_step()))

    def features(params):
        return tf.data.Dataset.from_tensors(({"x": tf.ones([2, UNITS])}, tf.ones([2])))

    config = run_config(tf_random_seed=seed)
    estimator = new_estimator(model_dir, model_fn, config=config, embedding_config_spec=None,
                              **options)
    estimator.train(features, steps=1)
    return np.stack([estimator.get_variable_value(f"{name}/kernel") for name in ("hidden", "out")])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`tf.layers:UserWarning")
def test_layers_start_from_the_seed_of_the_run_config(tmp_path):
    """As in TensorFlow 1.x; Keras 2 gives each initializer a seed of Python's `random`."""
    first = initial_kernels(tmp_path / "1", 3)
    assert not np.array_equal(*first)
    np.testing.assert_array_equal(initial_kernels(tmp_path / "2", 3), first)
    np.testing.assert_array_equal(initial_kernels(tmp_path / "3", 3, use_tpu=False), first)
    assert not np.array_equal(initial_kernels(tmp_path / "4", 4), first)
    assert not np.array_equal(initial_kernels(tmp_path / "5", None),
                              initial_kernels(tmp_path / "6", None))


@pytest.mark.filterwarnings("ignore:`tf.layers:UserWarning")
def test_seeds_that_the_program_gave_keras_stay(tmp_path):
    def after_setting(seed, run_seed):
        tf.keras.utils.set_random_seed(seed)
        return initial_kernels(tmp_path / f"{seed}_{run_seed}", run_seed)

    try:
        np.testing.assert_array_equal(after_setting(1, 3), after_setting(1, 4))
    finally:
        sys.modules[f"{tf.keras.Model.__module__.partition('.')[0]}.src.backend"] \
            ._SEED_GENERATOR.generator = None
