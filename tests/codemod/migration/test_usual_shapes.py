# SPDX-License-Identifier: Apache-2.0
"""Usual shapes of a model_fn: migrated with equal numbers, or left with the edit to make."""

import ast
import textwrap

import libcst as cst
import pytest

from tests.codemod.migration.closed_world import RETURN, TRAIN_OP, UPDATES
from tests.codemod.migration.test_to_tf2 import PROGRAM, migrated
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.rewrite import rewrite

MODEL_FN = PROGRAM[PROGRAM.index("def model_fn"):PROGRAM.index("\n\ndef main")]
RATE = "    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)\n"
TRAINED = MODEL_FN[MODEL_FN.index("    # The rate"):MODEL_FN.index(RETURN)]
CHOICE = """\
    if params["optimizer"] == "adam":
        optimizer = tf.train.AdamOptimizer(rate * 0.1, beta1=params["beta"])
    elif FLAGS.momentum:
        optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    else:
        raise ValueError("Unknown optimizer %s" % params["optimizer"])
"""
HELPERS = '''

def get_optimizer(name, rate, momentum=0.9):
    """Returns an optimizer."""
    if name == "adam":
        return tf.train.AdamOptimizer(rate)
    if name == "momentum":
        return tf.train.MomentumOptimizer(rate, momentum)
    raise ValueError(name)


def get_train_op(loss, params):
    step = tf.train.get_global_step()
    optimizer = get_optimizer(params["optimizer"], 0.1)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        return optimizer.minimize(loss, step)


def get_rate(step):
    return get_decay()(0.1, step)
'''
CLIPPED = """\
        grads, variables = zip(*optimizer.compute_gradients(loss))
        grads, _ = tf.clip_by_global_norm(grads, params["clip"])
        train_op = optimizer.apply_gradients(zip(grads, variables), global_step=step)"""

# Case -> what is replaced in PROGRAM, and what the text that is written has.
ACCEPTED = {
    "None for several": ("    # The rate", "    x = train_op = None\n    # The rate", ""),
    "None for a tuple": ("    # The rate", "    x, train_op = None, None\n    # The rate",
                         "x = None"),
    "mean over replicas": ("CrossShardOptimizer(optimizer)", "CrossShardOptimizer(optimizer, "
                           "reduction=tf.losses.Reduction.MEAN)", ""),
    "optimizer of a function": (RATE, "    optimizer = get_optimizer(params['name'], rate)\n",
                                "        optimizer = tf.train.AdamOptimizer(learning_rate)\n"),
    "optimizer of a function in a wrapper": (
        RATE, "    optimizer = tf.tpu.CrossShardOptimizer(get_optimizer(rate=rate, name='adam'))\n",
        "tf.train.AdamOptimizer(learning_rate)"),
    "train_op of a function": (TRAINED, "    train_op = get_train_op(loss, params)\n",
                               "tf.train.MomentumOptimizer(learning_rate, 0.9)"),
    "train_op of a function in the spec": (
        TRAINED + RETURN, RETURN.replace("=train_op", "=get_train_op(loss, params)"),
        "tf.train.MomentumOptimizer(learning_rate, 0.9)"),
    "conditions": (RATE, CHOICE, "    return dense_rate\n"),
    "conditional expression": (
        RATE, "    optimizer = (tf.train.AdamOptimizer(rate) if params['x']\n"
        "                 else tf.train.AdagradOptimizer(rate))\n",
        "tf.train.AdagradOptimizer(learning_rate)\n    return optimizer"),
    "all variables": (TRAIN_OP, "        variables = tf.trainable_variables()\n" + TRAIN_OP.replace(
        "=step", "=step, var_list=variables"), "momentum=0.9)"),
    "scope without updates": (UPDATES, UPDATES.replace("UPDATE_OPS", "UPDATE_OPS, scope='x'"), ""),
    "group": (UPDATES + TRAIN_OP + "\n" + RETURN, TRAIN_OP[4:] + "\n    train_op = tf.group("
              "train_op, *tf.get_collection(tf.GraphKeys.UPDATE_OPS))\n" + RETURN, "momentum=0.9)"),
    "group of lists": (
        UPDATES + TRAIN_OP, "    train_op = tf.group([optimizer.minimize(loss, step)] + "
        "tf.get_collection(tf.GraphKeys.UPDATE_OPS))", "momentum=0.9)"),
    "clipped": (TRAIN_OP, CLIPPED, "        params = self.params\n"),
    "clipped in one": (
        TRAIN_OP, "        variables = tf.trainable_variables()\n"
        "        grads = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)[0]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "tf.clip_by_global_norm(gradients, 1.0)[0]\n"),
    "clipped pairs": (
        TRAIN_OP, "        pairs = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in\n"
        "                 optimizer.compute_gradients(loss) if g is not None]\n"
        "        train_op = optimizer.apply_gradients(pairs, step)",
        "return [changed.get(variable.ref()) for variable in variables]"),
    "partial": ("        model_fn, config", "        functools.partial(model_fn), config",
                "functools.partial(model_fn)"),
    "default": ("params):\n    net", "params, base=0.1):\n    net", ""),
    "metric function with a group": (
        "def model_fn", "def metric_fn(labels, logits):\n    mean = tf.metrics.mean(logits)\n"
        "    return {'mean': (mean[0], tf.group(mean[1]))}\n\n\ndef model_fn", "tf.group(mean[1])"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_usual_shapes_are_migrated(case):
    old, new, expected = ACCEPTED[case]
    assert old in PROGRAM
    result = rewrite("import functools\n" + PROGRAM.replace(old, new) + HELPERS, to="tf2")
    text = result.data.decode()
    assert [one for one in result.findings if one.code > "TEE4" and one.about.kind == "left"] == []
    ast.parse(text)
    assert expected in text
    assert "Trainer(" in text and "apply_gradients" not in text


STORED = "tf.compat.v1.keras.utils.get_or_create_layer("


@pytest.mark.parametrize("layers, written", [
    ("K.Dense(4, name='a')(net)", STORED + "'a', lambda: K.Dense(4, name='a'))(net)"),
    ("K.Dense(4, name='b')(K.Dense(4, name='a')(net))",
     f"{STORED}'b', lambda: K.Dense(4, name='b'))("
     f"{STORED}'a', lambda: K.Dense(4, name='a'))(net))"),
    ("K.Bidirectional(K.LSTM(4, name='b'), name='a')(net)",
     STORED + "'a', lambda: K.Bidirectional(K.LSTM(4, name='b'), name='a'))(net)"),
    ("K.Flatten()(K.LeakyReLU(0.1)(net))", "K.Flatten()(K.LeakyReLU(0.1)(net))"),
    ("K.Dense(params['units'], name='a')(net)",
     STORED + "'a', lambda: K.Dense(params['units'], name='a'))(net)"),
    ("K.Dense(4, 'relu' if mode == 'train' else None, name='a')(net)", None),
    ("K.Lambda(lambda x: 2.0 * x, name='a')(net)", None),
    ("(lambda x: K.Dense(4, name='a')(x))(net)", None),
    ("K.Dense(4, name='a')(tf.layers.dense(net, 4, name=\"a\"))", None),
    ("K.Dense(4, name='dense_1')(net)", None),
    ("K.Dense(4)(net)", None), ("K.Dense(4, name=FLAGS.name)(net)", None),
    ("K.Dense(4, name='a')(K.Dense(4, name='a')(net))", None),
    ("sum([K.Dense(4, name='a')(net) for one in range(2)])", None)])
def test_keras_layers_with_a_name_are_found_again(layers, written):
    layers, written = (one and one.replace("K.", "tf.keras.layers.") for one in (layers, written))
    program = PROGRAM.replace("    logits =", f"    net = {layers}\n    logits =")
    text, findings = migrated(program)
    assert ("TEE402" in {one.code for one in findings}) == (written is None)
    assert f"    net = {written or layers}\n" in text


@pytest.mark.parametrize("lines", [
    "def tower(x):\n        return tf.keras.layers.Dense(4, name='a')(x)\n"
    "    net = tower(net) + tower(net)",
    "units = 4 if mode == 'train' else 4\n    net = tf.keras.layers.Dense(units, name='a')(net)"])
def test_keras_layers_of_several_calls_are_not_made_one(lines):
    text, findings = migrated(PROGRAM.replace("    logits =", f"    {lines}\n    logits ="))
    assert "TEE402" in {one.code for one in findings} and "get_or_create_layer" not in text


def test_gradients_may_be_changed_under_a_variable_of_the_mode():
    inside = "        if is_training:\n" + textwrap.indent(CLIPPED, "    ")
    begin = "    is_training = mode == tf.estimator.ModeKeys.TRAIN\n"
    text = rewrite(PROGRAM.replace(TRAIN_OP, inside).replace(
        "params):\n    net", f"params):\n{begin}    net"), to="tf2").data.decode()
    body = text.partition("def transform_gradients")[2].partition("return ")[0]
    assert "clip_by_global_norm" in body and "is_training" not in body


def test_variables_of_comprehensions_are_not_the_gradients():
    begin = "    sizes = [grads + 1 for grads in map(lambda variables: variables, (1, 2))]\n"
    result = rewrite(PROGRAM.replace(TRAIN_OP, CLIPPED).replace(
        "params):\n    net", f"params):\n{begin}    net"), to="tf2")
    assert [one for one in result.findings if one.code > "TEE4" and one.about.kind == "left"] == []
    forward, _, changing = result.data.decode().partition("def transform_gradients")
    assert begin.strip() in forward and "clip_by_global_norm" in changing


def test_another_use_of_the_gradients_is_named():
    text = PROGRAM.replace(TRAIN_OP, CLIPPED.replace("grads, _", "grads, norm") + (
        "\n        tf.summary.scalar('norm', norm)"))
    [about] = [one.message for one in rewrite(text, to="tf2").findings if one.code == "TEE402"]
    assert "`norm` is made of the gradients, and is used here as well: delete this use" in about


def test_every_place_of_a_variable_that_is_not_the_functions_own_counts():
    module = cst.parse_module("def f(a):\n    global g\n    g = [a for a in g]\n")
    names, [function] = Names(module), module.body
    assert [node.value for node in names.places_of(function, "g")] == ["g"] * 3
    assert len(names.places_of(function, "a")) == 1


# Case -> what is replaced in PROGRAM, and a word of the edit that the report names.
REFUSED = {
    "sum over replicas": ("CrossShardOptimizer(optimizer)", "CrossShardOptimizer(optimizer, "
                          "reduction=tf.losses.Reduction.SUM)", "delete them"),
    "mean of another module": ("CrossShardOptimizer(optimizer)", "CrossShardOptimizer(optimizer, "
                               "reduction=other.losses.Reduction.MEAN)", "delete them"),
    "var_list": (TRAIN_OP, TRAIN_OP.replace("=step", "=step, var_list=[a]"), "delete it"),
    "grad_loss": (TRAIN_OP, TRAIN_OP.replace("=step", "=step, grad_loss=scale"),
                  "multiply the gradients by it in `transform_gradients`"),
    "scope": (UPDATES, "    logits = tf.layers.batch_normalization(logits)\n" + UPDATES.replace(
        "UPDATE_OPS", "UPDATE_OPS, scope='x'"), "delete the scope"),
    "function of another module": (TRAIN_OP, "        train_op = other.make(loss)",
                                   "the call of `minimize` or `apply_gradients` into model_fn"),
    "optimizer of another module": (RATE, "    optimizer = other.make(rate)\n",
                                    "make the optimizer in model_fn"),
    "model_fn of another module": ("        model_fn, config", "        x.model_fn, config",
                                   "which must be given to `migrate`, too"),
    "model_fn of an unknown object": ("        model_fn, config", "        made.model_fn, config",
                                      "pass its method"),
    "arguments by place": ("        model_fn, config",
                           "        functools.partial(model_fn, 1), config", "by name"),
    "second train_op": (
        RETURN, "    train_op = tf.group(train_op, other.minimize(loss))\n" + RETURN, "train_step"),
    "averages": (RETURN, "    train_op = ema.apply(tf.trainable_variables())\n" + RETURN,
                 "moving averages"),
    "gradients in a summary": (
        TRAIN_OP, CLIPPED.replace("        grads, _", "        tf.summary.scalar('a', grads[0])\n"
                                  "        grads, _"), "transform_gradients"),
    "mode in a change of gradients": (
        TRAIN_OP, CLIPPED.replace('params["clip"]', "1.0 if mode == 'train' else 2.0"),
        "transform_gradients"),
    "no step": (TRAIN_OP, "        train_op = optimizer.minimize(loss)", "pass `global_step="),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_edit(case):
    old, new, edit = REFUSED[case]
    assert old in PROGRAM
    program = "import functools\nimport other, x\n" + PROGRAM.replace(old, new)
    result = rewrite(program, to="tf2")
    assert result.data == rewrite(program).data
    assert edit in " ".join(one.message for one in result.findings if one.code == "TEE402")


def test_messages_quote_the_text_of_the_program():
    program = PROGRAM.replace(".compat.v1 as", " as").replace(
        "tf.estimator.tpu", "tf.contrib.tpu").replace(
            "tf.tpu.CrossShardOptimizer(optimizer)",
            "tf.contrib.tpu.CrossShardOptimizer(optimizer, tf.losses.Reduction.SUM)")
    found = rewrite(program, is_tf1=True, to="tf2").findings
    assert "`tf.contrib.tpu.CrossShardOptimizer(" in " ".join(
        one.message for one in found if one.code == "TEE402")


def test_one_replica_normalizes_the_whole_batch():
    normalized = PROGRAM.replace("tf.layers.dense(net, 1)", "tf.layers.batch_normalization(net)")
    config = "save_checkpoints_steps=50"
    for shards, codes in (("num_shards=1", set()), ("num_shards=2", {"TEE405"})):
        result = rewrite(normalized.replace(
            config, f"{config}, tpu_config=tf.estimator.tpu.TPUConfig({shards})"), to="tf2")
        assert {one.code for one in result.findings} & {"TEE405"} == codes


@pytest.mark.parametrize("line, name", [
    ("tf.contrib.layers.fully_connected(x, 1)", "tf_slim.fully_connected"),
    ("from tensorflow.contrib.framework import arg_scope", "tf_slim.arg_scope"),
    ("from tensorflow.contrib import slim\nslim.conv2d(x, 1)", "tf_slim.conv2d")])
def test_names_of_tf_slim_are_named(line, name):
    found = rewrite(f"import tensorflow as tf\n{line}\n", is_tf1=True).findings
    assert f"write `{name}`" in " ".join(one.message for one in found if one.code == "TEE201")


@pytest.mark.slow
def test_a_method_stays_in_its_class():
    method = textwrap.indent(MODEL_FN, "    ").replace("model_fn(", "model_fn(self, ").replace(
        "exponential_decay(0.1", "exponential_decay(self.rate")
    program = PROGRAM.replace(
        MODEL_FN, "class Model:\n    def __init__(self, rate):\n        self.rate = rate\n\n"
        + method)
    program = program.replace("        model_fn, config", "        model.model_fn, config").replace(
        "    estimator = tf", "    model = Model(0.1)\n    estimator = tf")
    text, findings = migrated(program)
    assert {one.code for one in findings} == {"TEE401", "TEE403"}
    [model] = [one for one in ast.parse(text).body if isinstance(one, ast.ClassDef)]
    assert [one.name for one in model.body] == [
        "__init__", "model_fn", "dense_learning_rate", "make_optimizer"]
    assert "model.make_optimizer, model.dense_learning_rate" in text
    _, findings = migrated(program.replace(
        "    estimator.train", "    model.rate = 1\n    estimator.train"))
    assert "TEE410" in {one.code for one in findings}


@pytest.mark.slow
def test_a_helper_that_others_call_stays():
    text, _ = migrated(PROGRAM.replace(RATE, "    optimizer = get_optimizer('adam', rate)\n")
                       + HELPERS + "\n\nprint(get_optimizer)\n")
    assert "def get_optimizer(" in text and "def get_train_op(" in text


def test_a_name_that_means_something_else_in_model_fn_is_not_moved():
    helper = ("\n\nSCALE = 2.0\n\n\ndef make(rate):\n"
              "    return tf.train.AdamOptimizer(rate * SCALE)\n")
    program = PROGRAM.replace(RATE, "    SCALE = 1.0\n    optimizer = make(rate)\n") + helper
    text, findings = migrated(program)
    assert "TEE402" in {one.code for one in findings}
    assert text == rewrite(program).data.decode()
