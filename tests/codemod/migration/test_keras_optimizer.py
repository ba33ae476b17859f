# SPDX-License-Identifier: Apache-2.0
"""`--dense-optimizer keras`: its numbers against those of tf.train, and what is refused."""

import re
import types

import libcst as cst
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.codemod.migration.test_to_tf2 import PROGRAM
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.migration import keras_optimizer
from tpu_estimator_embedding.migration.keras_optimizer import OPTIMIZERS
from tpu_estimator_embedding.migration.rewrite import rewrite
from tpu_estimator_embedding.trainer.dense_optimizer import DenseOptimizer

STEPS, RATE = 20, 0.05
CALLS = [
    "GradientDescentOptimizer(rate)", "MomentumOptimizer(rate, 0.9)",
    "MomentumOptimizer(rate, momentum=0.9, use_nesterov=True, name='Own')",
    "AdagradOptimizer(rate)", "AdagradOptimizer(rate, 0.5, use_locking=True)",
    "AdamOptimizer(rate)", "AdamOptimizer(rate, 0.8, 0.99, 1e-3)",
    "RMSPropOptimizer(rate)", "RMSPropOptimizer(rate, 0.8, momentum=0.5, epsilon=1e-3)",
    "RMSPropOptimizer(rate, centered=True, momentum=0.5)",
    "FtrlOptimizer(rate)", "FtrlOptimizer(rate, l1_regularization_strength=0.01, "
    "l2_regularization_strength=0.02, l2_shrinkage_regularization_strength=0.01)",
    "AdadeltaOptimizer(rate)", "AdadeltaOptimizer(rate, rho=0.8, epsilon=1e-6)"]


def written(text):
    call = cst.parse_expression(f"tf.train.{text}")
    return keras_optimizer.written(call, cst.Module([]).code_for_node)


def keras_of(text, rate=RATE):
    """Returns the optimizer as the written program gives it to its Trainer, and the difference."""
    found = written(text)
    names = {"tf_v2": types.SimpleNamespace(keras=tf_keras)}
    exec(found.definitions, names)
    optimizer = DenseOptimizer(
        lambda learning_rate, params: eval(found.call, {**names, "learning_rate": learning_rate}),
        lambda step, params: tf.cast(rate, tf.float32), {}, names["DENSE_SLOTS"])
    return optimizer, found.difference


def legacy_of(text, rate=RATE):
    return eval(f"train.{text}", {"train": tf.compat.v1.train, "rate": rate})


class Slots:
    """Reads slots of a legacy optimizer as a checkpoint has them."""

    def __init__(self, optimizer):
        self.values = {variable.name.removesuffix(":0"): variable.numpy()
                       for variable in optimizer.variables()}

    def __call__(self, name):
        return self.values[name]


def gradient(step):
    return tf.constant(np.random.default_rng(step).normal(size=[4, 3]), tf.float32)


@pytest.mark.parametrize("text", CALLS)
def test_keras_goes_on_from_the_legacy_slots_within_the_stated_tolerance(text):
    legacy, name = legacy_of(text), f"kernel_{CALLS.index(text)}"  # slots get separate names
    old = tf.Variable(tf.ones([4, 3]), name=name)
    for step in range(5):
        legacy.apply_gradients([(gradient(step), old)])
    keras, difference = keras_of(text)
    step = tf.Variable(0, dtype=tf.int64)
    new = tf.Variable(old, name=name)
    keras.build([new])
    keras.restore_estimator_slots(Slots(legacy), 5)
    for number in range(5, 5 + STEPS):
        legacy.apply_gradients([(gradient(number), old)])
        keras.apply([gradient(number)], [new], step)
    assert int(step) == STEPS
    [rtol] = re.findall(r"rtol (1e-\d) after 20 steps", difference)
    np.testing.assert_allclose(new.numpy(), old.numpy(), rtol=float(rtol), atol=1e-6)
    assert np.abs(old.numpy() - 1).max() > 1e-5


def test_every_optimizer_is_compared():
    assert {text.partition("(")[0] for text in CALLS} == OPTIMIZERS.keys()


def test_momentum_keeps_the_rate_of_each_gradient_in_keras():
    rate, step = tf.Variable(0.1), tf.Variable(0, dtype=tf.int64)
    legacy = legacy_of("MomentumOptimizer(rate, 0.9)", rate)
    keras, _ = keras_of("MomentumOptimizer(rate, 0.9)", rate)
    old, new = (tf.Variable(tf.zeros([4, 3])) for _ in range(2))
    keras.build([new])
    legacy.apply_gradients([(gradient(0), old)])
    keras.apply([gradient(0)], [new], step)
    rate.assign(0.05)
    before = old.numpy()
    legacy.apply_gradients([(tf.zeros([4, 3]), old)])
    keras.apply([tf.zeros([4, 3])], [new], step)
    np.testing.assert_allclose(new.numpy() - before, 2 * (old.numpy() - before), rtol=1e-5)


def test_rmsprop_begins_from_other_values():
    legacy, keras = legacy_of("RMSPropOptimizer(rate)"), keras_of("RMSPropOptimizer(rate)")[0]
    old, new = (tf.Variable(tf.zeros([4, 3])) for _ in range(2))
    legacy.apply_gradients([(gradient(0), old)])
    keras.build([new])
    keras.apply([gradient(0)], [new], tf.Variable(0, dtype=tf.int64))
    np.testing.assert_allclose(np.abs(new.numpy()), RATE / np.sqrt(0.1), rtol=1e-4)
    np.testing.assert_allclose(
        new.numpy() / old.numpy(), np.sqrt(1 + 0.9 / (0.1 * gradient(0).numpy() ** 2)), rtol=1e-4)


@pytest.mark.parametrize("stage", ["tf2", "layers"])
def test_program_gets_a_keras_optimizer_and_the_report_its_difference(stage):
    result = rewrite(PROGRAM, to=stage, dense_optimizer="keras")
    text = result.data.decode()
    compile(text, "program.py", "exec")
    assert "tf_v2.keras.optimizers.SGD(learning_rate, momentum=0.9)" in text
    assert "DENSE_SLOTS = {'momentums': 'Momentum'}" in text
    assert "dense_slots=DENSE_SLOTS)" in text and "import tensorflow.compat.v2 as tf_v2\n" in text
    assert "MomentumOptimizer" not in text
    [message] = [found.message for found in result.findings if found.code == "TEE406"]
    assert message.startswith("`MomentumOptimizer` is now `tf.keras.optimizers.SGD`: ")


@pytest.mark.parametrize("old, new, reason", [
    ("tf.train.Momentum", "tf.train.ProximalAdagrad", "has no counterpart in tf_keras"),
    ("rate, momentum=0.9", "rate, momentum=0.9, speed=2", "argument 'speed'"),
    ("rate, momentum=0.9", "rate, momentum=0.9, name=params['name']", "not a constant"),
])
def test_other_optimizers_are_refused_and_the_program_stays_at_stage_1(old, new, reason):
    program = PROGRAM.replace(old, new)
    result = rewrite(program, to="tf2", dense_optimizer="keras")
    [found] = [one for one in result.findings if one.code == "TEE407"]
    assert reason in found.message
    assert result.data == rewrite(program).data
    assert "Optimizer(" in program.splitlines()[found.line - 1]


def test_stages_without_a_keras_optimizer_refuse_it(capsys):
    with pytest.raises(ValueError, match="`dense_optimizer` must be 'legacy' at a stage"):
        rewrite(PROGRAM, to="keras3", dense_optimizer="keras")
    with pytest.raises(SystemExit):
        cli.main(["migrate", "--dense-optimizer", "keras", "program.py"])
    assert "--dense-optimizer keras needs --to tf2 or --to layers" in capsys.readouterr().err
