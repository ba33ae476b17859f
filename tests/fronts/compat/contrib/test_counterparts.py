# SPDX-License-Identifier: Apache-2.0
"""Heads, initializers and regularizers of tf.contrib: the numbers they stand for."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1


def evaluated(tensor):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(tensor)


@pytest.mark.parametrize("make, logits, labels, loss", [
    (lambda contrib: contrib.regression_head(), [[1.0], [4.0]], [[0.0], [2.0]], (1 + 4) / 2),
    (lambda contrib: contrib.binary_classification_head(), [[0.0], [0.0]], [[0], [1]], np.log(2)),
    (lambda contrib: contrib.multi_class_head(4), [[0.0] * 4] * 2, [[0], [3]], np.log(4))])
def test_loss_of_a_head_is_a_mean(make, logits, labels, loss):
    with tf.Graph().as_default():
        v1.train.create_global_step()
        spec = make(tf.contrib.estimator).create_estimator_spec(
            features={}, mode="train", logits=tf.constant(logits), labels=tf.constant(labels),
            train_op_fn=lambda loss: tf.no_op())
        assert evaluated(spec.loss) == pytest.approx(loss)


def test_regularizers():
    with tf.Graph().as_default():
        weights = tf.constant([1.0, -3.0])
        layers = tf.contrib.layers
        assert evaluated(layers.l1_regularizer(0.5)(weights)) == 2
        assert evaluated(layers.l2_regularizer(0.5)(weights)) == 2.5
        assert layers.l2_regularizer(0.0)(weights) is None
        with pytest.raises(ValueError, match="^Setting a scale less than 0 on a regularizer"):
            layers.l1_regularizer(-1.0)
        v1.get_variable("w", [2], regularizer=layers.l2_regularizer(1e-3))
        assert len(v1.losses.get_regularization_losses()) == 1


@pytest.mark.parametrize("initializer, limit, deviation", [
    ("xavier_initializer", np.sqrt(6 / 300), np.sqrt(2 / 300)),
    ("variance_scaling_initializer", None, np.sqrt(2 / 100))])
def test_initializers(initializer, limit, deviation):
    with tf.Graph().as_default():
        values = evaluated(getattr(tf.contrib.layers, initializer)(seed=1)([100, 200]))
    assert values.std() == pytest.approx(deviation, rel=0.02)
    assert limit is None or np.abs(values).max() == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize("begin_norm_axis", [-1, 1])
def test_layer_norm(begin_norm_axis):
    inputs = np.random.default_rng(0).normal(3.0, 2.0, [4, 3, 8]).astype(np.float32)
    with tf.Graph().as_default(), v1.variable_scope("bert"):
        outputs = tf.contrib.layers.layer_norm(
            tf.constant(inputs), begin_norm_axis=begin_norm_axis, begin_params_axis=-1)
        again = tf.contrib.layers.layer_norm(tf.constant(inputs), scale=False, scope="again",
                                             activation_fn=tf.nn.relu, trainable=False)
        assert [variable.op.name for variable in v1.trainable_variables()] == [
            "bert/LayerNorm/beta", "bert/LayerNorm/gamma"]
        assert v1.global_variables()[-1].op.name == "bert/again/beta"
        found, positive = evaluated([outputs, again])
    axes = tuple(range(begin_norm_axis % 3, 3))
    expected = (inputs - inputs.mean(axes, keepdims=True)) / inputs.std(axes, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert positive.min() == 0
