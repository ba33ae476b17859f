# SPDX-License-Identifier: Apache-2.0
"""Programs of usual shapes, run as they are and migrated: equal tables, slots and variables."""

import pathlib
import sys
import textwrap
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.codemod.migration.test_usual_shapes import CHOICE, HELPERS
from tpu_estimator_embedding.migration.rewrite import rewrite

FOLDER = pathlib.Path(__file__).parent / "shapes"
BEFORE = (FOLDER / "before.py").read_text()
MODEL_FN = BEFORE[BEFORE.index("def model_fn"):BEFORE.index("\n\ndef main")]
OPTIMIZER = "    optimizer = tf.train.AdagradOptimizer(rate)\n"
MINIMIZE = "    train_op = optimizer.minimize(loss, global_step=step)\n"
TRAINED = MODEL_FN[MODEL_FN.index("    step = "):MODEL_FN.index(MINIMIZE)] + MINIMIZE
NORMALIZED = ("    logits = tf.layers", "    net = tf.layers.batch_normalization(\n"
              "        net, training=mode == tf.estimator.ModeKeys.TRAIN)\n    logits = tf.layers")
UPDATES = "tf.get_collection(tf.GraphKeys.UPDATE_OPS)"
PARAMS = ('"hp": HPARAMS}', '"hp": HPARAMS, "optimizer": "adam", "beta": 0.8}')
CLIPPED = """\
    variables = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), params["hp"]["clip"])
    train_op = optimizer.apply_gradients(zip(grads, variables), global_step=step)
"""
IN_CLASS = "".join(f"    {line}".rstrip() + "\n" for line in MODEL_FN.replace(
    "model_fn(", "model_fn(self, ").replace("decay(0.1", "decay(self.rate").splitlines())

# Case -> what is replaced in the program.
CASES = {
    "filled by mode, with a choice and clipping": [
        ("    if mode == tf.estimator.ModeKeys.PREDICT", "    loss = train_op = None\n"
         "    if mode == tf.estimator.ModeKeys.PREDICT"),
        (OPTIMIZER, CHOICE.replace("FLAGS.momentum", "len(HPARAMS) > 1")), PARAMS,
        (MINIMIZE, CLIPPED)],
    "partial, helper, group": [
        ("mode, params):", "mode, params, base=0.5):"), ("decay(0.1", "decay(base"),
        ("        model_fn, config", "        functools.partial(model_fn, base=0.1), config"),
        (OPTIMIZER, "    optimizer = get_optimizer('adam', rate)\n"), NORMALIZED,
        (MINIMIZE, f"{MINIMIZE}    train_op = tf.group(train_op, *{UPDATES})\n")],
    "method, all variables, clipped pairs": [
        (MODEL_FN, "class Model:\n    def __init__(self, rate):\n        self.rate = rate\n\n"
         + IN_CLASS),
        ("    estimator = ", "    model = Model(0.1)\n    estimator = "),
        ("        model_fn, config", "        model.model_fn, config"),
        ("    " + MINIMIZE, "        pairs = [\n"
         "            (tf.clip_by_value(g * 0.5, -0.01, 0.01), v) for g, v in\n"
         "                 optimizer.compute_gradients(loss, tf.trainable_variables())]\n"
         "        train_op = optimizer.apply_gradients(pairs, step)\n")],
    "two lists, a class, a collection, a Keras layer": [
        ("    net = tf.concat", "    net = tf.keras.layers.Dense(4, name='own', "
         "kernel_initializer=tf.constant_initializer(0.2))(net)\n    net = tf.concat"),
        ("def model_fn", "class Tower(object):\n    def __init__(self, units):\n"
         "        self.units = units\n\n    def __call__(self, net):\n"
         "        self.out = tf.layers.dense(\n            net, self.units, "
         "kernel_initializer=tf.constant_initializer(0.3),\n            "
         "kernel_regularizer=tf.keras.regularizers.l2(0.01))\n        return self.out\n\n\n"
         "def model_fn"),
        ("    logits = tf.layers", "    net = Tower(4)(net)\n    logits = tf.layers"),
        ("    step = ", "    loss += tf.add_n(tf.get_collection("
         "tf.GraphKeys.REGULARIZATION_LOSSES))\n    step = "),
        (MINIMIZE, "    pairs = optimizer.compute_gradients(loss)\n"
         "    grads = [tf.clip_by_value(g, -0.01, 0.01) for g, _ in pairs]\n"
         "    variables = [v for _, v in pairs]\n"
         "    train_op = optimizer.apply_gradients(zip(grads, variables), step)\n")],
    "losses of all variables": [
        NORMALIZED,
        ("    step = ", "    loss += 0.01 * tf.add_n([\n        tf.nn.l2_loss(v) for v in "
         "tf.trainable_variables()\n        if 'bias' not in v.name and not v.name.lower()"
         ".endswith('beta:0')])\n    loss += 0.02 * sum(tf.reduce_sum(tf.abs(v)) "
         "for v in tf.trainable_variables())\n    step = "),
        (MINIMIZE, f"    with tf.control_dependencies({UPDATES}):\n    {MINIMIZE}")],
    "builder, helper": [
        (MODEL_FN, "def builder(base, name):\n" + textwrap.indent(MODEL_FN.replace(
            "decay(0.1", "decay(base").replace(
                OPTIMIZER, "    optimizer = get_optimizer(name, rate)\n"), "    ")
         + "    return model_fn\n"),
        ("    estimator = ", "    model_fn = builder(base=0.2, name='adam')\n    estimator = ")],
    "train_op of a helper": [
        (TRAINED, "    train_op = get_train_op(loss, params)\n"), NORMALIZED, PARAMS],
}


def run(text, folder, monkeypatch):
    program = types.ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", program)
    exec(compile(text, "program.py", "exec"), program.__dict__)
    return program.main(str(folder)), program.input_fn


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_migrated_program_gives_equal_numbers(case, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    text = BEFORE.replace("import numpy", "import functools\n\nimport numpy", 1) + HELPERS
    for old, new in CASES[case]:
        assert old in text
        text = text.replace(old, new)
    legacy, input_fn = run(rewrite(text).data.decode(), tmp_path / "old", monkeypatch)
    expected = legacy.evaluate(input_fn, steps=2)
    reader = tf.train.load_checkpoint(str(tmp_path / "old"))
    saved = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
             if not name.startswith("tpu_estimator_embedding/")}
    migrated = rewrite(text, to="tf2")
    assert [one for one in migrated.findings if one.about.kind in ("left", "decision")] == []
    trainer, input_fn = run(migrated.data.decode(), tmp_path / "new", monkeypatch)
    assert set(trainer.get_variable_names()) == set(saved)
    for name, value in saved.items():
        np.testing.assert_allclose(trainer.get_variable_value(name), value, rtol=1e-5, atol=1e-7,
                                   err_msg=name)
    results = trainer.evaluate(input_fn, steps=2)
    assert results == pytest.approx(expected, rel=1e-5)
    assert abs(saved["hidden/kernel"]).max() > 0
