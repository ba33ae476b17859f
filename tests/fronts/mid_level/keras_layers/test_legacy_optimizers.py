# SPDX-License-Identifier: Apache-2.0
"""Layers take Keras' legacy optimizers, with the arithmetic of tables and the rate of Keras."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import FTRL, SGD, Adagrad, Adam, FeatureConfig, TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class

IS_215 = tf.__version__.startswith("2.15")


@pytest.fixture(name="keras")
def keras_2():
    return importlib.import_module("keras" if IS_215 else "tf_keras")


def new_layer(keras, optimizer):
    table = TableConfig(7, 2, tf.compat.v1.ones_initializer(), combiner="sum", name="t")
    return embedding_layer_class(keras)({"a": FeatureConfig(table)}, optimizer)


def train(layer, step):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer({"a": tf.ragged.constant([[3, 4], [3, step]])})["a"])
    layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))


def values(layer):
    return [variable.numpy() for variable in layer._tables.variables.values()]


def numbers(optimizer):  # some of which Keras rounds to float32
    return {name: value for name, value in vars(optimizer).items() if isinstance(value, float)}


PAIRS = {
    "SGD": (lambda legacy: legacy.SGD(0.5), SGD(0.5)),
    "Adagrad": (lambda legacy: legacy.Adagrad(0.5, initial_accumulator_value=0.25),
                Adagrad(0.5, initial_accumulator_value=0.25)),
    "Adam": (lambda legacy: legacy.Adam(0.5, beta_1=0.8, beta_2=0.9, epsilon=1e-3),
             Adam(0.5, beta_1=0.8, beta_2=0.9, epsilon=1e-3)),
    "Ftrl": (lambda legacy: legacy.Ftrl(0.5, l1_regularization_strength=0.1, beta=0.2),
             FTRL(0.5, l1_regularization_strength=0.1, beta=0.2))}


@pytest.mark.parametrize("name", PAIRS)
def test_tables_train_as_with_the_optimizer_of_tables(keras, name):
    make, word = PAIRS[name]
    layers = [new_layer(keras, make(keras.optimizers.legacy)), new_layer(keras, word)]
    for step in range(3):
        for layer in layers:
            train(layer, step)
    for actual, expected in zip(*map(values, layers), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    again = type(layers[0]).from_config(layers[0].get_config())
    assert type(again._settings.optimizer) is type(word)
    assert numbers(again._settings.optimizer) == pytest.approx(numbers(word), rel=1e-6)


def test_rate_is_that_of_keras_when_the_step_runs(keras):
    optimizer = keras.optimizers.legacy.SGD(1.0)
    layer = new_layer(keras, optimizer)
    step = tf.function(lambda: train(layer, 0))
    step()
    optimizer.learning_rate = 0.25  # as LearningRateScheduler does
    step()
    assert values(layer)[0][0].tolist() == [1.0 - 1.0 - 0.25] * 2


def test_schedule_counts_the_steps_of_the_optimizer(keras):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [1.0, 0.25])
    optimizer = keras.optimizers.legacy.SGD(schedule)
    layer = new_layer(keras, optimizer)
    train(layer, 0)
    optimizer.iterations.assign(1)
    train(layer, 0)
    assert values(layer)[0][0].tolist() == [1.0 - 1.0 - 0.25] * 2
    with pytest.raises(ValueError, match="`learning_rate` of SGD must be a number, to be saved"):
        layer.get_config()


@pytest.mark.parametrize("make, sentence", [
    (lambda legacy: legacy.RMSprop(), "`optimizer` must be one of SGD, Adagrad, Adam, Ftrl of"),
    (lambda legacy: legacy.SGD(momentum=0.9), "Momentum of SGD must be 0.0, .* got 0.9"),
    (lambda legacy: legacy.SGD(decay=0.1), "Decay of SGD must be 0.0, .* got 0.1"),
    (lambda legacy: legacy.Adam(amsgrad=True), "Amsgrad of Adam must be False, .* got True"),
    (lambda legacy: legacy.Adam(clipnorm=1.0), "Clipnorm of Adam must be None, .* got 1.0"),
    (lambda legacy: legacy.Adagrad(clipvalue=1.0), "Clipvalue of Adagrad must be None, .* got"),
    (lambda legacy: legacy.Adagrad(epsilon=1.0), "Epsilon of Adagrad must be 1e-07, .* got 1.0"),
    (lambda legacy: legacy.Ftrl(l2_shrinkage_regularization_strength=0.1),
     "`l2_shrinkage_regularization_strength` of Ftrl must be 0.0")])
def test_settings_that_tables_have_not_are_refused(keras, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        new_layer(keras, make(keras.optimizers.legacy))


def test_optimizers_of_today_are_refused(keras):
    with pytest.raises(ValueError, match="of tf.keras.optimizers.legacy, got <.*SGD"):
        new_layer(keras, keras.optimizers.SGD(0.1))
