# SPDX-License-Identifier: Apache-2.0
"""`--to tf2`: what a program does is written exactly, or reported with its line; never dropped."""

import inspect
import pathlib
import re
import runpy

import pytest

from tests.codemod.migration.test_to_tf2 import PROGRAM
from tests.docs import ROOT
from tpu_estimator_embedding import (
    EmbeddingConfigSpec,
    RunConfig,
    TPUConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    tf_estimator,
)
from tpu_estimator_embedding.migration import constructor_arguments
from tpu_estimator_embedding.migration.codes import OPEN
from tpu_estimator_embedding.migration.constructor_arguments import ARGUMENTS
from tpu_estimator_embedding.migration.estimator_uses import METHODS
from tpu_estimator_embedding.migration.rewrite import rewrite, rewrite_files
from tpu_estimator_embedding.trainer import Trainer

MINIMIZE = "optimizer.minimize(loss, global_step=step)"
TRAIN_OP = f"        train_op = {MINIMIZE}"
UPDATES = "    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):\n"
RETURN = "    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)"
FORWARD = "    # The rate falls."
RATE = "    optimizer = tf.train.Mom"
TRAIN = "    estimator.train(input_fn, max_steps=100)"
HELPER = "\n\ndef helper(value=None):\n    tf.assign(value, 1.0)\n    return value\n" + """

def remember(kept, value):
    kept.append(value)

def pass_on(kept, value):
    change(kept, value)

def change(kept, value):
    kept['x'] = value

def chosen():
    return REGISTRY['x']

def spec_of(mode, loss):
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss,
        evaluation_hooks=[hook],
        scaffold_fn=scaffold,
        host_call=(function, [loss]),
        train_op=tf.no_op())

HISTORY = []
FLOOR = 0.5

def history():
    return HISTORY

def same(kept):
    return kept

def kept_in(value, kept=HISTORY):
    kept.append(value)
"""


def found(old, new):
    """Returns the text, and (code, line of the program, message) of what is open or a note."""
    assert old in PROGRAM
    program = PROGRAM.replace(old, new) + HELPER
    result = rewrite(program, to="tf2")
    lines = program.splitlines()
    return result.data.decode(), [
        (one.code, lines[one.line - 1].strip(), one.message) for one in result.findings
        if one.about.kind in OPEN or one.code == "TEE411"]


# What is between the loss and the train_op, and where the report points to.
TRAINING = {
    "scaled loss": (MINIMIZE, "optimizer.minimize(loss * 10.0, step)", "loss * 10.0"),
    "second loss": (TRAIN_OP, "        total = loss + 1.0\n"
                    "        train_op = optimizer.minimize(total, step)", "minimize(total"),
    "gradients scaled by a function": (
        TRAIN_OP, "        grads = [(half(g), v) for g, v in optimizer.compute_gradients(loss)]\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "half(g)"),
    "gradients scaled by what model_fn has": (
        TRAIN_OP, "        grads = [(g * loss, v) for g, v in optimizer.compute_gradients(loss)]\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "g * loss"),
    "gradients by their places": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        first = grads[0] * 0.5\n        grads = [first, *list(grads)]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "filtered gradients": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        grads = [one for one in grads if 'dense' in one[1].name]\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "'dense' in"),
    "gradients changed in place": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        grads[0] = (grads[0][0] * 2.0, grads[0][1])\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "grads[0] ="),
    "gradients appended to": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        grads.pop()\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "grads.pop()"),
    "gradients changed by a function": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        halve(grads)\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "halve(grads)"),
    "gradients changed by another name": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        same = grads\n        same[:] = [(g * 0.5, v) for g, v in same]\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "same = grads"),
    "gradients in a loop": (
        TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
        "        for index, (g, v) in enumerate(grads): pass\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "in enumerate(grads)"),
    "clipped gradients": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        grads, _ = tf.clip_by_global_norm(grads, norm_of(grads))\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "tf.clip_by_global_norm"),
    "gradients that are counted": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        grads = [g / len(grads) for g in grads]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "variables that are counted": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        number = len(tf.trainable_variables())\n"
        "        grads = [g / number for g in grads]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "mean of the norms of gradients": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        norms = [tf.norm(g) for g in list(grads)]\n"
        "        scale = tf.reduce_mean(norms)\n"
        "        grads = [g / scale for g in grads]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "number of gradients as a sum": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        number = tf.add_n([tf.ones([]) for g in grads])\n"
        "        grads = [g / number for g in grads]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "gradients by name": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        by_name = {v.name: g for g, v in zip(grads, variables)}\n"
        "        number = len(by_name)\n"
        "        grads = [g / number for g in grads]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), step)",
        "zip(grads, variables)"),
    "gradients beside the first of pairs": (
        TRAIN_OP, "        pairs = optimizer.compute_gradients(loss)\n"
        "        grads, firsts = [g * 0.5 for g, _ in pairs], [g for g, _ in pairs]\n"
        "        train_op = optimizer.apply_gradients(zip(grads, firsts), step)", "firsts"),
    "some variables of pairs": (
        TRAIN_OP, "        pairs = optimizer.compute_gradients(loss)\n"
        "        some = [v for g, v in pairs if g is not None]\n"
        "        train_op = optimizer.apply_gradients(zip([g for g, _ in pairs], some), step)",
        "some"),
    "variables of other pairs": (
        TRAIN_OP, "        pairs = optimizer.compute_gradients(loss)\n"
        "        grads = [g for g, _ in pairs]\n"
        "        pairs = list(reversed(pairs))\n"
        "        train_op = optimizer.apply_gradients(zip(grads, [v for _, v in pairs]), step)",
        "pairs"),
    "variables under the name of gradients": (
        TRAIN_OP, "        pairs = optimizer.compute_gradients(loss)\n"
        "        gradients = [v for _, v in pairs]\n"
        "        grads, _ = zip(*pairs)\n"
        "        train_op = optimizer.apply_gradients(zip(grads, gradients), step)", "gradients"),
    "variables twice": (
        TRAIN_OP, "        grads, variables = zip(*optimizer.compute_gradients(loss))\n"
        "        train_op = optimizer.apply_gradients(zip(variables, variables), step)",
        "zip(variables, variables)"),
    "gradients of a second optimizer": (
        TRAIN_OP, "        other = tf.train.AdamOptimizer(0.1)\n"
        "        grads = other.compute_gradients(loss)\n"
        "        train_op = optimizer.apply_gradients(grads, step)", "compute_gradients"),
    "list of variables": (MINIMIZE, "optimizer.minimize(loss, step, var_list=some)", "var_list"),
    "aggregation method": (MINIMIZE, "optimizer.minimize(loss, step, aggregation_method=2)",
                           "aggregation_method"),
    "dependency on an assignment": (
        UPDATES, "    with tf.control_dependencies([tf.assign_add(counter, 1.0)]):\n",
        "assign_add"),
    "dependency on an assertion": (
        UPDATES, "    with tf.control_dependencies([tf.assert_equal(a, b)]):\n", "assert_equal"),
    "no step": (MINIMIZE, "optimizer.minimize(loss)", "minimize(loss)"),
    "step counted by hand": (
        TRAIN_OP, "        train_op = optimizer.minimize(loss)\n"
        "    train_op = tf.assign_add(step, 1)", "tf.assign_add"),
    "other step": (MINIMIZE, "optimizer.minimize(loss, tf.get_variable('step', []))",
                   "get_variable"),
    "moving averages": (
        RETURN, "    ema = tf.train.ExponentialMovingAverage(0.9)\n"
        "    with tf.control_dependencies([train_op]):\n"
        "        train_op = ema.apply(variables)\n" + RETURN, "ema.apply"),
    "group": (RETURN, "    train_op = tf.group(train_op, other)\n" + RETURN, "tf.group"),
    "cond": (TRAIN_OP, f"        train_op = tf.cond(loss > 1, lambda: {MINIMIZE}, tf.no_op)",
             "tf.cond"),
    "function of the module": (MINIMIZE, "helper(optimizer)", "helper(optimizer)"),
    "loss assigned again": (RETURN, "    loss = loss * 2.0\n" + RETURN, "loss = loss * 2.0"),
    "loss bound by a loop": (RETURN, "    for loss in [loss * 2.0]:\n        pass\n" + RETURN,
                             MINIMIZE),
    "loss bound by an expression": (
        RETURN, "    if (loss := loss * 2.0) is None:\n        pass\n" + RETURN, MINIMIZE),
    "condition on a flag": (TRAIN_OP, "        if FLAGS.x:\n    " + TRAIN_OP, "if FLAGS.x"),
    "loop": (TRAIN_OP, "        for _ in range(2):\n    " + TRAIN_OP, "for _ in range(2)"),
    "spec under a condition": (RETURN, "    if FLAGS.x:\n    " + RETURN, "if FLAGS.x"),
    "conditional value": (RETURN, RETURN.replace("=train_op", "=train_op if FLAGS.x else None"),
                          "train_op if FLAGS.x"),
    "own optimizer": ("tf.train.MomentumOptimizer(rate, momentum=0.9)", "OwnOptimizer(rate)",
                      "OwnOptimizer"),
    "wrapped optimizer": (RATE, "    optimizer = wrap(tf.train.AdamOptimizer(0.1))\n" + RATE,
                          "wrap(tf.train"),
    "sum over replicas": ("CrossShardOptimizer(optimizer)",
                          "CrossShardOptimizer(optimizer, reduction=SUM)", "reduction=SUM"),
    "rate without a name": ("tf.train.MomentumOptimizer(rate, momentum=0.9)",
                            "tf.train.AdamOptimizer(beta1=0.5)", "beta1=0.5"),
    "rate from a list": (
        "    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)",
        "    values = [0.1]\n    values.append(0.2)\n"
        "    rate = tf.train.piecewise_constant(step, [10], values)", "values.append"),
    "rate in a loop": (RATE, "    for _ in range(3):\n        rate = rate * 0.5\n" + RATE,
                       "for _ in range(3)"),
    "arguments of the spec": (RETURN, RETURN.replace("loss=loss", "**given"), "**given"),
    "* parameters": ("params):\n    net", "*args, **params):\n    net", "def model_fn"),
    "own parameters": ("params):\n    net", "params, rate_0):\n    net", "def model_fn"),
    "decorator": ("def model_fn", "@wrapped\ndef model_fn", "@wrapped"),
    "wrapper": ("        model_fn, config", "        wrap(model_fn), config", "TPUEstimator("),
    "lambda": ("        model_fn, config", "        lambda *args: model_fn(*args), config",
               "TPUEstimator("),
    "bound twice": ("def main", "model_fn = wrap(model_fn)\n\n\ndef main", "model_fn, config"),
    "mode assigned": ("    net = tf.f", "    mode = params['mode']\n    net = tf.f",
                      "def model_fn"),
    "train_op on the line of its condition": (
        TRAIN_OP, f"        if mode == tf.estimator.ModeKeys.TRAIN: train_op = {MINIMIZE}",
        "train_op=train_op"),
    **{f"rate bound by {line!r}": (RATE, f"    {line}\n" + RATE, "tf.train.Mom") for line in (
        "if params['x']: rate = 0.5", "other = 1; rate = 0.5", "features['x'], rate = 1, 0.5",
        "(rate, a), b = (0.5, 1), 1", "print(rate := 0.5)", "for rate in (0.5,): pass",
        "with tf.name_scope('x') as rate: pass", "def rate(): pass")},
    "rate of params that a function changes": (
        RATE, "    change(params)\n    rate = params['rate']\n"
        "    def change(values):\n        again(1, values=values)\n"
        "    def again(number, values):\n        values['rate'] = 2.0\n" + RATE,
        "values['rate'] = 2.0"),
    "rate of params changed by another name": (
        RATE, "    rate = params['rate']\n    same = params\n    same.pop('rate')\n" + RATE,
        "same.pop"),
    "argument of the module with the name of a parameter": (
        "momentum=0.9", "momentum=learning_rate", "momentum=learning_rate"),
    "rate of the module with the name of a parameter": (
        "exponential_decay(0.1, step", "exponential_decay(0.1, global_step",
        "tf.train.MomentumOptimizer"),
    "argument that needs a variable with the name of a parameter": (
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)",
        "    learning_rate = params['rate']\n    momentum = 1.0 - learning_rate\n"
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=momentum)",
        "learning_rate = params['rate']"),
    "rate that needs another variable called global_step": (
        "    rate = tf.train.exponential_decay(0.1, step",
        "    global_step = params['x']\n"
        "    rate = tf.train.exponential_decay(global_step, tf.train.get_global_step()",
        "global_step = params['x']"),
    "other spec": (RETURN, RETURN.replace("tf.estimator.tpu.", "other."), "other.TPUEstimatorSpec"),
    "other Estimator": ("    estimator = tf.estimator.tpu.TPUEstimator",
                        "    import other\n    estimator = other.TPUEstimator",
                        "other.TPUEstimator"),
    "name that is imported": (FORWARD, "    Outputs = loss", "def model_fn"),
    "name that is defined": ("def main():\n", "def main(make_optimizer=None):\n", "def main"),
    "name that the Trainer is given": (
        "    estimator = tf", "    embedding_config = FLAGS.x\n    print(embedding_config)\n"
        "    estimator = tf", "def main"),
    "rate in a variable": (RATE, "    rate = tf.get_variable('rate', [])\n" + RATE,
                           "tf.get_variable('rate'"),
}


@pytest.mark.parametrize("case", TRAINING)
def test_training_of_an_unknown_shape_is_left_and_reported(case):
    old, new, line = TRAINING[case]
    text, open_ = found(old, new)
    assert text == rewrite(PROGRAM.replace(old, new) + HELPER).data.decode()
    assert "TEE402" in {code for code, _, _ in open_}
    assert line in " ".join(place for _, place, _ in open_)


def test_places_where_gradients_are_used_too_are_reported():
    _, open_ = found(TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
                     "        grads.pop()\n"
                     "        print(grads)\n"
                     "        train_op = optimizer.apply_gradients(grads, step)")
    assert {place for _, place, message in open_ if "are used here too" in message} == {
        "grads.pop()", "print(grads)"}


# What else a forward pass does, code of the report and the line that it points to.
EFFECTS = {
    "second optimizer": ("tf.train.AdamOptimizer(0.1).minimize(loss)", "TEE409", None),
    "summary": ("tf.summary.scalar('loss', loss)", "TEE412", None),
    "collection": ("tf.add_to_collection('x', loss)", "TEE409", None),
    "assign": ("tf.assign(variable, loss)", "TEE409", None),
    "assign method": ("tf.get_variable('v', []).assign(loss)", "TEE409", None),
    "assertion": ("tf.Assert(loss > 0, [loss])", "TEE409", None),
    "variable": ("bias = tf.Variable(0.0)", "TEE409", None),
    "all variables": ("loss += sum(map(tf.nn.l2_loss, tf.trainable_variables()))", "TEE409", None),
    "print": ("loss = tf.Print(loss, [loss])", "TEE409", None),
    "gradients": ("loss += tf.gradients(loss, net)[0]", "TEE409", None),
    "python": ("loss = tf.py_func(print, [loss], tf.float32)", "TEE409", None),
    "helper": ("helper(loss)", "TEE409", "tf.assign(value, 1.0)"),
    "method given to another function": (
        "class Model:\n        def one(self, value):\n            return tf.assign(value, 1.0)\n"
        "        def all(self, values):\n            return list(map(self.one, values))\n"
        "    Model().all([loss])", "TEE409", "return tf.assign(value, 1.0)"),
    "helper given to another function": ("loss = tf.cond(loss > 0, helper, helper)", "TEE409",
                                         "tf.assign(value, 1.0)"),
    "nested function": ("def inner():\n        return tf.assign(variable, 1.0)\n    inner()",
                        "TEE409", "return tf.assign(variable, 1.0)"),
    "other module": ("from helpers import build\n    loss = build(loss)", "TEE410",
                     "loss = build(loss)"),
    "function in params": ("loss = params['loss_fn'](loss)", "TEE410", None),
    "unknown name": ("loss = tf.raw_ops.Foo(loss)", "TEE410", None),
    "unknown method": ("loss = loss.foo()", "TEE410", None),
    "decorated function": ("@wrapped\n    def inner():\n        return 1\n    inner()", "TEE410",
                           "@wrapped"),
    "try": ("try:\n        loss = loss\n    except ValueError:\n        pass", "TEE410", "try:"),
    "global": ("global COUNT\n    COUNT = 1", "TEE410", "global COUNT"),
    "attribute": ("TASK.loss = loss", "TEE409", None),
    "element": ("LOSSES['x'] = loss", "TEE409", None),
    "list": ("LOSSES.append(loss)", "TEE409", None),
    "params changed": ("params.pop('x')", "TEE409", None),
    "params assigned": ("params['x'] = 1", "TEE409", None),
    "batch size": ("size = params['batch_size']", "TEE409", None),
    "batch size by another name": ("hp = params\n    size = hp.get('batch_size', 8)", "TEE410",
                                   "size = hp.get('batch_size', 8)"),
    "whether there is a batch size": ("size = 8 if 'batch_size' in params else 9", "TEE409", None),
    "context": ("replicas = params['context'].num_replicas", "TEE404", None),
    "dropout": ("loss += tf.reduce_sum(tf.nn.dropout(net, 0.5))", "TEE411", None),
    "metric": ("accuracy = tf.metrics.accuracy(labels, logits)", "TEE409", None),
    "size of a shape": ("size = loss.shape.dims\n    size = size[0].value", "TEE410",
                        "size = size[0].value"),
    "equality of tensors": ("net = net * tf.to_float(labels == 1)", "TEE409", None),
    "equality of a computed tensor": ("one = tf.round(loss)\n    net *= features['x'] != one",
                                      "TEE409", "net *= features['x'] != one"),
    "layer with dropout": ("net = tf.layers.Dropout(0.5)(net)", "TEE411", None),
    "averages": ("tf.train.ExponentialMovingAverage(0.9).apply([])", "TEE409", None),
    "function given to another": ("list(map(tf.assign, a, b))", "TEE409", None),
    "averages of Keras": (
        "net = tf.keras.utils.get_or_create_layer('a', tf.keras.layers.BatchNormalization)(net)",
        "TEE409", None),
    "seed": ("tf.set_random_seed(1)", "TEE409", None),
    "computed name": ("getattr(tf, 'assign')(variable, 1.0)", "TEE410", None),
    "default that calls share": ("def inner(kept=[]):\n        kept.append(1)\n    inner()",
                                 "TEE410", "def inner(kept=[]):"),
    "global list that a helper changes": (
        "remember(HISTORY, loss)", "TEE409", "kept.append(value)"),
    "global dict that a helper of a helper changes": (
        "pass_on(value=loss, kept=CACHE)", "TEE409", "kept['x'] = value"),
    "params by another name": ("pass_on(params, loss)", "TEE409", "kept['x'] = value"),
    "result of a call": ("loss = REGISTRY.get('x')(loss)", "TEE410", None),
    "result of a call in a variable": ("fn = params.get('x')\n    loss = fn(loss)", "TEE410",
                                       "loss = fn(loss)"),
    "result of a helper": ("loss = chosen()(loss)", "TEE410", None),
    "hooks of a spec in a helper": ("if mode == 'eval':\n        return spec_of(mode, loss)",
                                    "TEE404", "evaluation_hooks=[hook],"),
    "scaffold of a spec in a helper": ("if mode == 'eval':\n        return spec_of(mode, loss)",
                                       "TEE404", "scaffold_fn=scaffold,"),
    "host call of a spec in a helper": ("if mode == 'eval':\n        return spec_of(mode, loss)",
                                        "TEE404", "host_call=(function, [loss]),"),
    "train_op of a spec in a helper": ("if mode == 'eval':\n        return spec_of(mode, loss)",
                                       "TEE404", "train_op=tf.no_op())"),
}


@pytest.mark.parametrize("case", EFFECTS)
def test_effects_of_the_forward_pass_are_reported(case):
    new, code, line = EFFECTS[case]
    _, open_ = found(FORWARD, f"    {new}")
    assert (code, line or new) in {(code, place) for code, place, _ in open_}


def found_with_helper_of_rate(line=FORWARD):
    """Returns what is open where a function of the module, which makes a spec, gives the rate."""
    old, new = "MomentumOptimizer(rate,", "MomentumOptimizer(rate_of(step),"
    assert old in PROGRAM
    program = PROGRAM.replace(old, new).replace(FORWARD, line) + HELPER + (
        "\ndef rate_of(step):\n    spec_of(None, step)\n    return 0.1\n")
    lines = program.splitlines()
    return {(one.code, lines[one.line - 1].strip())
            for one in rewrite(program, to="tf2").findings if one.about.kind in OPEN}


def test_only_specs_of_other_functions_are_reported_where_a_function_gives_the_rate():
    reported = {line for code, line in found_with_helper_of_rate() if code == "TEE404"}
    assert reported >= {"evaluation_hooks=[hook],", "train_op=tf.no_op())"}
    assert RETURN.strip() not in reported


@pytest.mark.parametrize("case", ["metric", "equality of tensors"])
def test_effects_are_reported_where_a_function_gives_the_rate(case):
    new, code, line = EFFECTS[case]
    assert (code, line or new) in found_with_helper_of_rate(f"    {new}")


# Statements that change what outlives a call of the forward pass, in their last line.
LASTING = """
    a0, a1 = {}, HISTORY if FLAGS.x else []
    a1.append(loss)
    for b0 in REGISTRY.values():
        b0.append(loss)
    c0 = [HISTORY]
    c0[0].append(loss)
    d0 = history()
    d0['x'] = loss
    history().append(loss)
    e0 = same(kept=HISTORY)
    e0.clear()
    kept_in(loss)
    f0 = params['kept']
    f0.append(loss)
    g0 = HISTORY
    g0 += [loss]
    h0 = HISTORY
    h0 += features
    list(map(HISTORY.append, [loss]))
    i0 = HISTORY.append
    number = next(COUNTER)
"""


def test_changes_of_what_outlives_a_call_are_reported():
    _, open_ = found(FORWARD, LASTING)
    assert {line for code, line, _ in open_ if code == "TEE409"} == {
        "a1.append(loss)", "b0.append(loss)", "c0[0].append(loss)", "d0['x'] = loss",
        "history().append(loss)", "e0.clear()", "kept.append(value)", "f0.append(loss)",
        "g0 += [loss]", "h0 += features", "list(map(HISTORY.append, [loss]))",
        "i0 = HISTORY.append", "number = next(COUNTER)"}


@pytest.mark.parametrize("above, main", [
    ("RATE = 0.1\n", "    global RATE\n    RATE = 0.2\n"),
    ("RATE = {}\n", "    RATE['x'] = 0.2\n"),
    ("RATE = FLAGS\n", "    RATE.x = 0.2\n"),
    ("RATE = []\n", "    RATE.append(0.2)\n"),
    ("for RATE in (1, 2):\n    run(RATE)\n", "    pass\n")])
@pytest.mark.parametrize("old, new", [
    (FORWARD, "    loss = loss * RATE"), ("exponential_decay(0.1", "exponential_decay(RATE"),
    ("momentum=0.9", "momentum=RATE")])
def test_variables_of_the_module_that_change_between_calls_are_reported(above, main, old, new):
    program = PROGRAM.replace(old, new).replace("def model_fn", above + "\n\ndef model_fn").replace(
        TRAIN, main + TRAIN)
    lines = program.splitlines()
    [one] = [one for one in rewrite(program, to="tf2").findings if one.about.kind in OPEN]
    assert one.code == "TEE410" and "RATE" in lines[one.line - 1]
    assert "`RATE` is changed in" in one.message


TOWER = """
class Base(object):
    def __init__(self, units):
        self.units = units


def make():
    return Tower(8)


class Tower(Base):
    def __init__(self, units):
        super(Tower, self).__init__(units)
        self.calls = 0

    def __call__(self, net):
        self.out = tf.layers.dense(net, self.units)
        return self.out


"""


@pytest.mark.parametrize("old, new, number", [
    ("", "", 0),
    ("def model_fn", "TOWER = Tower(4)\n\n\ndef model_fn", 3),
    (TRAIN, "    keep(Tower)\n" + TRAIN, 3),
    ("(Base)", "(Base, Mixin)", 3),
    ("class Base(object)", "class Base(tf.keras.layers.Layer)", 3),
    ("class Tower", "@registered\nclass Tower", 3),
    ("self.out = ", "self.units.out = ", 1),
    ("self.calls = 0", "Tower.calls = 0", 3),
    ("self.calls = 0", "self.calls += [0]", 1),
    ("class Base(object):", "class Base(object):\n    units = Descriptor()\n", 3),
    (TRAIN, "    make()\n" + TRAIN, 3),
    ("self.calls = 0", "self.all.append(0)", 1)])
def test_attributes_of_objects_that_a_call_makes_are_not_reported(old, new, number):
    program = PROGRAM.replace("def model_fn", TOWER + "def model_fn").replace(
        FORWARD, "    loss += tf.reduce_sum(Tower(8)(net)) + tf.reduce_sum(make()(net))")
    assert old in program
    program = program.replace(old, new) if old else program
    found = [one for one in rewrite(program, to="tf2").findings if one.code == "TEE409"]
    assert len(found) == number


@pytest.mark.parametrize("key, codes", [
    ("tf.GraphKeys.REGULARIZATION_LOSSES", []), ("'regularization_losses'", []),
    ("tf.GraphKeys.LOSSES", ["TEE409"]), ("*keys", ["TEE409"])])
def test_collection_of_regularization_losses_is_as_in_a_graph(key, codes):
    _, open_ = found(FORWARD, f"    loss += tf.add_n(tf.get_collection({key}))")
    assert [code for code, _, _ in open_] == codes


def test_variables_of_the_module_that_stay_are_not_reported():
    program = PROGRAM.replace(FORWARD, "    loss = loss * RATE * len(KEPT)").replace(
        "def model_fn", "RATE = 0.1\nKEPT = []\nKEPT.append(1)\n\n\ndef model_fn").replace(
            TRAIN, "    RATE = 2.0\n    KEPT = [RATE]\n    KEPT.append(2)\n" + TRAIN)
    assert [one for one in rewrite(program, to="tf2").findings if one.about.kind in OPEN] == []


def test_replaced_spec_is_reported():
    _, open_ = found(RETURN, RETURN.replace("return ", "spec = ") + "\n    return spec._replace()")
    assert "TEE410" in {code for code, _, _ in open_}


def test_config_in_the_forward_pass_is_reported():
    _, open_ = found("params):\n    net", "params, config):\n    print(config.model_dir)\n    net")
    assert [code for code, _, _ in open_] == ["TEE409"]


def test_batch_normalization_without_update_ops_is_reported():
    program = PROGRAM.replace("tf.layers.dense(net, 1)", "tf.layers.batch_normalization(net)")
    result = rewrite(program.replace(UPDATES + TRAIN_OP, TRAIN_OP[4:]), to="tf2")
    assert {"TEE401", "TEE405", "TEE409"} <= {one.code for one in result.findings}


NORMALIZED = PROGRAM.replace("tf.layers.dense(net, 1)", "tf.layers.batch_normalization(net)")
READ = "tf.get_collection(tf.GraphKeys.UPDATE_OPS)"


@pytest.mark.parametrize("program", [
    NORMALIZED.replace(READ, "updates").replace(
        "    net = tf.f", f"    updates = {READ}\n    net = tf.f"),
    NORMALIZED.replace(UPDATES + TRAIN_OP, TRAIN_OP[4:]).replace(RETURN, UPDATES + "    " + RETURN),
    NORMALIZED.replace(UPDATES + TRAIN_OP, TRAIN_OP[4:]).replace(RATE, UPDATES + "    " + RATE),
    PROGRAM.replace(UPDATES + TRAIN_OP, TRAIN_OP[4:]).replace(
        "tf.layers.dense(net, 1)", "normalized(net)") + "\n\ndef normalized(net):\n"
    "    return tf.layers.batch_normalization(net)\n",
], ids=["read too early", "around the spec", "around the optimizer", "in another function"])
def test_batch_normalization_whose_updates_do_not_run_is_reported(program):
    lines = program.splitlines()
    [line] = [lines[one.line - 1] for one in rewrite(program, to="tf2").findings
              if one.code == "TEE409"]
    assert "tf.layers.batch_normalization(net)" in line


def test_batch_normalization_whose_updates_run_is_not_reported():
    program = NORMALIZED.replace(READ, "updates").replace(
        FORWARD, f"    updates = {READ}\n" + FORWARD)
    assert "TEE409" not in {one.code for one in rewrite(program, to="tf2").findings}


def test_own_function_called_get_global_step_is_kept():
    text, open_ = found("exponential_decay(0.1, step", "exponential_decay(0.1, get_global_step()")
    assert "exponential_decay(0.1, get_global_step(), 100" in text


@pytest.mark.parametrize("old, new", [
    ("def main():\n    config = ", "def other(folder):\n    config = "),
    ('    config = tf.estimator.tpu.RunConfig(model_dir="model"',
     "    folder = 'a'\n    config = tf.estimator.tpu.RunConfig(model_dir=folder"),
])
def test_config_of_another_place_is_reported(old, new):
    program = PROGRAM.replace(old, new)
    assert program != PROGRAM
    between = "\n\ndef main(config):" if "other" in new else "    folder = 'b'"
    program = program.replace("    estimator = ", between + "\n    estimator = ")
    [one] = [one for one in rewrite(program, to="tf2").findings if one.about.kind in OPEN]
    assert one.code == "TEE404" and "RunConfig" in one.message


def test_model_dir_of_the_config_holds_where_the_estimator_has_none():
    text, open_ = found("        model_fn, config", "        model_fn, model_dir=None, config")
    assert open_ == [] and 'model_dir="model"' in text


LAYER = 'tf.feature_column.input_layer(features, params["columns"]'


def test_own_function_called_input_layer_is_kept():
    own = "def input_layer(features, columns):\n    return 2.0 * features[columns]\n\n\n"
    program = PROGRAM.replace(LAYER, LAYER.removeprefix("tf.feature_column."))
    result = rewrite(program.replace("def model_fn", own + "def model_fn"), to="tf2")
    assert 'net = input_layer(features, params["columns"])' in result.data.decode()


def test_input_layer_with_keywords_is_written():
    text, open_ = found(LAYER, LAYER.replace('params["columns"]', 'feature_columns=c').replace(
        "features,", "features=features,"))
    assert open_ == [] and "net = activations_of(features, c)" in text


@pytest.mark.parametrize("old, new", [
    (LAYER, LAYER + ", trainable=False"), (LAYER, LAYER + ", **given"),
    ("    net = " + LAYER, "    look = tf.feature_column.input_layer\n"
     '    net = look(features, params["columns"]')])
def test_input_layer_of_another_shape_is_reported(old, new):
    _, open_ = found(old, new)
    assert [code for code, _, _ in open_] == ["TEE409"]
    assert "net =" in open_[0][1]


def test_names_of_other_modules_are_not_those_of_tensorflow():
    """The last word is that of a name that is rewritten, or whose call is removed."""
    old = PROGRAM.replace(
        "as tf\n", "as tf\nimport other as x\nfrom other import feature_column\n", 1)
    old = old.replace("tf.disable_v2_behavior()", "x.disable_eager_execution()").replace(
        FORWARD, "    net = x.DenseFeatures(columns)(features)\n"
        "    net = feature_column.input_layer(features, columns)\n"
        "    net = tf.keras.layers.DenseFeatures(feature_columns=columns)(features)").replace(
            "tf.tpu.CrossShard", "x.CrossShard")
    result = rewrite(old, to="tf2")
    assert "its optimizer is `x.CrossShardOptimizer(optimizer)`" in str(result.findings)
    text = rewrite(old.replace("x.CrossShard", "tf.tpu.CrossShard"), to="tf2").data.decode()
    assert "\nx.disable_eager_execution()\n" in text
    assert "    net = x.DenseFeatures(columns)(features)\n" in text
    assert "    net = feature_column.input_layer(features, columns)\n" in text
    assert "    net = activations_of(features, columns)\n" in text


def test_a_layer_of_columns_may_have_a_name():
    text = PROGRAM.replace(
        FORWARD, '    net = tf.keras.layers.DenseFeatures(columns, name="look")(features)')
    result = rewrite(text, to="tf2")
    assert "    net = activations_of(features, columns)\n" in result.data.decode()
    assert "DenseFeatures" not in result.data.decode()


@pytest.mark.parametrize("new", [
    "layer = tf.keras.layers.DenseFeatures(columns)\n    net = layer(features)",
    "net = tf.keras.layers.DenseFeatures(columns, trainable=False)(features)",
    "net = tf.keras.layers.DenseFeatures(columns, name=start())(features)"])
def test_layers_of_columns_of_another_shape_are_reported(new):
    _, open_ = found(FORWARD, f"    {new}")
    assert ("TEE409", new.splitlines()[0]) in [(code, line) for code, line, _ in open_]


@pytest.mark.parametrize("value, stays, codes", [
    ("RunConfig(model_dir=make())", False, []),  # which Trainer calls in its place
    ("RunConfig(model_dir='m', cluster=start())", True, []),
    ("RunConfig(model_dir='m', tpu_config=tf.estimator.tpu.TPUConfig(start()))", True, []),
    ("RunConfig(model_dir='m', cluster=registry.get('x'))", True, []),
    ("RunConfig(model_dir='m', cluster=other.TPUConfig(1))", True, []),
    ("RunConfig(model_dir='m', cluster=(name := 'x'))", True, []),
    ("RunConfig(model_dir=os.path.join('m', params.get('x')), cluster=len('x'))", False, []),
    ("RunConfig(model_dir=make())\n    print(config)", True, ["TEE404"])])
def test_configuration_with_an_effect_stays(value, stays, codes):
    text, open_ = found('RunConfig(model_dir="model", save_checkpoints_steps=50)', value)
    assert ("RunConfig(" in text, [code for code, _, _ in open_]) == (stays, codes)


@pytest.mark.parametrize("line, left", [
    ("tf.disable_v2_behavior(); start()", "\nstart()\n"),
    ("start(); tf.disable_v2_behavior()", "\nstart()\n"),
    ("handle = tf.disable_v2_behavior()", "\nhandle = tf.disable_v2_behavior()\n")])
def test_only_the_call_for_tf1_is_removed(line, left):
    text, open_ = found("tf.disable_v2_behavior()", line)
    assert open_ == [] and left in text


def test_other_uses_of_the_model_fn_are_reported():
    _, open_ = found(TRAIN, "    check(model_fn)\n" + TRAIN)
    assert [(code, line) for code, line, _ in open_] == [("TEE409", "check(model_fn)")]


# What is written exactly, with what the text has then.
EXACT = {
    "pair": (TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
             "        train_op = optimizer.apply_gradients(grads, global_step=step)", ""),
    "pair in one": (MINIMIZE, "optimizer.apply_gradients(optimizer.compute_gradients(loss), step)",
                    ""),
    "name": (MINIMIZE, "optimizer.minimize(loss, step, name='train', var_list=None)", ""),
    "gates": (MINIMIZE, "optimizer.minimize(loss, step, gate_gradients="
              "tf.train.Optimizer.GATE_NONE)", ""),
    "update ops in a variable": (
        UPDATES, "    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)\n"
        "    with tf.control_dependencies(updates):\n", ""),
    "None before": ("    step = tf", "    train_op = None\n    step = tf", ""),
    "mode": (UPDATES + TRAIN_OP, "    if mode == tf.estimator.ModeKeys.TRAIN:\n" + TRAIN_OP, ""),
    "condition of the rate": (
        RATE, "    if params['fast']:\n        rate = rate * 2.0\n"
        "    elif FLAGS.x:\n        rate *= 3.0\n" + RATE,
        "    if params['fast']:\n        rate = rate * 2.0\n    else:\n        if FLAGS.x:\n"
        "            rate *= 3.0\n    return rate\n"),
    "rate of a variable that the loss has too": (
        "    rate = tf.train.exponential_decay(0.1,",
        "    base = params['base']\n    loss = loss * base\n"
        "    rate = tf.train.exponential_decay(base,",
        "    base = params['base']\n    rate = tf.train.exponential_decay(base,"),
    "other variable called global_step": (
        "    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)",
        "    global_step = tf.cast(tf.train.get_global_step(), tf.float32)\n"
        "    rate = 0.1 / tf.sqrt(global_step)",
        "    global_step = tf.cast(global_step, tf.float32)\n"
        "    rate = 0.1 / tf.sqrt(global_step)\n    return rate\n"),
    "rate assigned again later": (
        UPDATES, "    rate = 5.0\n" + UPDATES,
        "    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)\n    return rate\n"),
    "argument of a variable": (
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)",
        "    momentum = params['momentum']\n"
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=momentum)",
        "    momentum = params['momentum']\n"
        "    return tf.train.MomentumOptimizer(learning_rate, momentum=momentum)\n"),
    "other branch": (
        FORWARD, "    if mode == tf.estimator.ModeKeys.TRAIN:\n        rate = 0.1\n"
        "    else:\n        loss = loss * 2.0",
        "    if mode == ModeKeys.TRAIN:\n        pass\n    else:\n        loss = loss * 2.0\n"),
    "loop of layers": (
        "    logits = tf.layers.dense(net, 1)", "    for units in (8, 4):\n"
        "        net = tf.layers.dense(net, units)\n    logits = tf.layers.dense(net, 1)",
        "    for units in (8, 4):\n        net = tf.layers.dense(net, units)\n"),
    "list that a helper changes": (
        FORWARD, "    kept = []\n    remember(kept, loss)\n    pass_on({}, loss)\n"
        "    pass_on(features, loss)", "remember(kept, loss)"),
    "layer that is called": (
        FORWARD, "    layer = tf.layers.Dense(2)\n    net = layer(tf.layers.Dense(2)(net))",
        "net = layer(tf.layers.Dense(2)(net))"),
    "own objects that change": (
        FORWARD, "    kept = [FLOOR]\n    kept += [loss]\n"
        "    more = same(kept) or sorted(HISTORY)\n"
        "    more.append(FLOOR)\n    rate = FLOOR\n    rate += FLOOR\n    def add(value):\n"
        "        kept.append(value)\n    add(loss)\n    names = FLAGS.names.split(',')\n"
        "    names.pop()", "names.pop()"),
    "attributes and keywords with the names of functions": (
        FORWARD, "    print(FLAGS.helper, helper=1)", "print(FLAGS.helper, helper=1)"),
    "metrics of an evaluation": (
        FORWARD, "    def evaluated(labels, logits):\n"
        "        return {'mean': tf.metrics.mean(logits)}\n"
        "    if mode == tf.estimator.ModeKeys.EVAL:\n"
        "        return tf.estimator.tpu.TPUEstimatorSpec(\n"
        "            mode, loss=loss, eval_metrics=(\n"
        "                lambda labels, logits: evaluated(labels, logits), [labels, logits]))",
        "tf.metrics.mean(logits)"),
    "sizes of shapes": (
        FORWARD, "    width = net.shape[1].value + net.get_shape()[-1].value"
        " + net.shape.dims[0].value",
        "    width = net.shape[1] + net.get_shape()[-1] + net.shape.dims[0]\n"),
    "equality of others": (
        FORWARD, "    if labels is None or labels == None or mode != 'train' or FLAGS.x == 1:\n"
        "        loss = loss * tf.to_float(tf.equal(labels, 1.0))", "mode != 'train'"),
    "features changed": (
        FORWARD, "    features['x'] = features.pop('y') * 2", "features.pop('y') * 2"),
}


@pytest.mark.parametrize("case", EXACT)
def test_known_shapes_are_written_exactly(case):
    old, new, expected = EXACT[case]
    text, open_ = found(old, new)
    assert open_ == []
    assert expected in text
    compile(text, "program.py", "exec")
    own = text.partition("\n\ndef helper")[0]
    assert "minimize" not in own and "train_op" not in own


@pytest.mark.parametrize("old, new, line", [
    ("max_steps=100", "max_steps=100, hooks=[hook]", "hooks=[hook]"),
    ("max_steps=100", "max_steps=100, saving_listeners=[one]", "saving_listeners"),
    (TRAIN, "    estimator.evaluate(input_fn, hooks=[hook])", "evaluate"),
    (TRAIN, "    estimator.train(*given)", "*given"),
    (TRAIN, "    estimator.train(lambda params, config: input_fn(params))", "params, config"),
    (TRAIN, "    def read(params, config): return 1\n    estimator.train(read)", "train(read)"),
    (TRAIN, "    run(estimator)", "run(estimator)"),
    (TRAIN, "    print(estimator.config)", "estimator.config"),
    (TRAIN, "    estimator.export_saved_model('a', receiver)", "export_saved_model"),
])
def test_uses_of_the_estimator_without_a_counterpart_are_reported(old, new, line):
    _, open_ = found(old, new)
    assert {code for code, _, _ in open_} == {"TEE404"}
    assert line in open_[0][1]


@pytest.mark.parametrize("first, is_another", [
    ("estimator = make()", True), ("with make() as estimator: pass", True),
    ("pass", False)])
def test_another_variable_of_the_name_of_the_estimator_is_none(first, is_another):
    program = f"{PROGRAM}\n\ndef other():\n    {first}\n    run(estimator, estimator.size)\n"
    found = [one.message for one in rewrite(program, to="tf2").findings if one.code == "TEE404"]
    assert any("the Estimator is given to `run`" in message for message in found) != is_another
    assert any("estimator.size" in message for message in found) != is_another


def test_several_replicas_are_reported_with_what_differs():
    _, open_ = found("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig("
                     "num_shards=2)")
    [(_, _, message)] = open_
    assert all(word in message for word in ("sum over the batch", "normalization", "clipping"))


@pytest.mark.parametrize("old, new, name", [
    ("save_checkpoints_steps=50", "session_config=make()", "session_config"),
    ("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig(2, 8)", "num_shards"),
    ("save_checkpoints_steps=50", "**given", "**given"),
    ("save_checkpoints_steps=50", "unknown=1", "unknown=1"),
    ("train_batch_size=64", "use_tpu=FLAGS.x", "use_tpu"),
])
def test_arguments_that_are_not_carried_over_are_reported(old, new, name):
    _, open_ = found(old, new)
    [(code, _, message)] = open_
    assert code == "TEE408" and name in message


def test_harmless_values_are_not_reported():
    _, open_ = found("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig("
                     "iterations_per_loop=100, num_shards=1, per_host_input_for_training="
                     "tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2), session_config=None")
    assert open_ == []


@pytest.mark.parametrize("constructor, functions", [
    ("TPUEstimator", [TPUEstimator.__init__]),
    ("RunConfig", [RunConfig.__init__, tf_estimator.RunConfig.__init__]),
    ("TPUConfig", [TPUConfig.__new__]), ("TPUEstimatorSpec", [TPUEstimatorSpec.__new__]),
    ("EmbeddingConfigSpec", [EmbeddingConfigSpec.__new__]),
])
def test_every_argument_of_every_constructor_has_a_fate(constructor, functions):
    names = [name for function in functions for name, parameter in
             list(inspect.signature(function).parameters.items())[1:]
             if parameter.kind is not parameter.VAR_KEYWORD]
    assert [argument.name for argument in ARGUMENTS[constructor]] == names
    assert all(argument.fate in ("carried", "reported", "no effect") and argument.text
               for argument in ARGUMENTS[constructor])


def test_trainer_has_what_is_carried_over_to_it():
    of_trainer = inspect.signature(Trainer.__init__).parameters
    assert set(constructor_arguments.OF_TRAINER) <= set(of_trainer)
    for name, arguments in METHODS.items():
        assert tuple(inspect.signature(getattr(Trainer, name)).parameters)[1:] == arguments


def test_page_of_arguments_is_that_of_the_table():
    text = (ROOT / "migration_guide/arguments.rst").read_text()
    page = runpy.run_path(str(ROOT / "docs" / "constructor_arguments.py"))
    assert text == "\n".join(page["lines"]()) + "\n"


def test_all_causes_are_reported_in_one_run_at_their_lines_of_the_original():
    program = PROGRAM.replace("tf.layers.dense(net, 1)", "tf.keras.layers.Dense(1)(net)").replace(
        TRAIN_OP, TRAINING["clipped gradients"][1])
    lines = program.splitlines()
    open_ = [lines[one.line - 1] for one in rewrite(program, to="tf2").findings
             if one.about.kind in OPEN]
    assert any("keras.layers.Dense" in line for line in open_)
    assert any("clip_by_global_norm" in line for line in open_)
    assert not re.search("TEE41", " ".join(open_))


def test_uses_in_other_modules_of_the_program_are_reported(tmp_path):
    (tmp_path / "model.py").write_text(PROGRAM)
    (tmp_path / "main.py").write_text("""\
import hooks
import model

estimator = model.make()
estimator.train(model.input_fn, hooks=[hooks.make()])
estimator.train(model.input_fn, max_steps=1, hooks=None)
estimator.export_saved_model("a", model.receiver)


def input_fn(params):
    return params["context"].current_host
""")
    (tmp_path / "other.py").write_text("import tensorflow as tf\n\nprint(tf.constant(1))\n")
    files = [(tmp_path / name, pathlib.Path(name)) for name in ("model.py", "main.py", "other.py")]
    _, main, other = rewrite_files(files, to="tf2")
    assert sorted((one.line, one.code) for one in main.findings if one.about.kind in OPEN) == [
        (5, "TEE404"), (7, "TEE404"), (11, "TEE404")]
    assert other.findings == ()


REGULARIZED = "    loss = loss + tf.losses.get_regularization_loss()\n" + FORWARD


@pytest.mark.parametrize("value, is_reported", [
    ("tf.get_variable('logits/kernel')", True), ("tf.layers.dense(logits, 1)", True),
    ("tf.losses.get_regularization_loss()", True), ("tf.trainable_variables()[0]", True),
    ("tf.cast(tf.train.get_global_step(), tf.float32)", False), ("logits ** 2", False)])
def test_metric_function_that_reads_the_graph_of_the_model_is_reported(value, is_reported):
    _, reported = found("metric_fn, [labels, logits])", "lambda labels, logits: {'x': tf.metrics."
                        f"mean({value})}}, [labels, logits])")
    assert any(code == "TEE409" for code, *_ in reported) == is_reported, reported
    program = PROGRAM.replace("def main():", "def metric_fn(labels, logits):\n    return {'x': "
                              f"tf.metrics.mean({value})}}\n\n\ndef main():")
    codes = {one.code for one in rewrite(program, to="tf2").findings}
    assert ("TEE409" in codes) == is_reported


@pytest.mark.parametrize("layer", [
    "tf.layers.dense(net, 1, activity_regularizer=penalty)",
    "tf.layers.dense(net, 1, None, True, None, None, None, None, penalty)",
    "tf.layers.Dense(1, activity_regularizer=penalty)(net)"])
def test_regularizer_of_activations_is_reported_where_the_loss_has_it(layer):
    program = PROGRAM.replace("tf.layers.dense(net, 1)", layer)
    program = program.replace("def main", "def penalty(value):\n    return tf.nn.l2_loss(value)\n"
                              "\n\ndef main")
    assert "TEE409" not in {one.code for one in rewrite(program, to="tf2").findings}
    [finding] = [one for one in rewrite(program.replace(FORWARD, REGULARIZED), to="tf2").findings
                 if one.code == "TEE409"]
    assert "penalty`: its loss is not in the collection" in finding.message


@pytest.mark.parametrize("given", ["input_fn", "make_input()", "lambda: read(tf.train."
                                   "get_global_step())"])
def test_input_function_that_reads_the_step_is_reported(given):
    program = PROGRAM.replace("train(input_fn", f"train({given}") + """

def input_fn(params):
    return dataset.skip(tf.train.get_or_create_global_step())


def make_input():
    def made(params):
        return dataset.filter(tf.get_collection("filter")[0])
    return made
"""
    [finding] = [one for one in rewrite(program, to="tf2").findings if one.code == "TEE409"]
    assert "exists only in the graph of a step" in finding.message
