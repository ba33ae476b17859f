# SPDX-License-Identifier: Apache-2.0
"""What a forward pass does otherwise in TF2 is reported with its line; the rest is not."""

import pytest

from tests.codemod.migration.closed_world import (
    FORWARD,
    HELPER,
    RATE,
    RETURN,
    TRAIN,
    TRAIN_OP,
    UPDATES,
    found,
)
from tests.codemod.migration.test_to_tf2 import PROGRAM
from tpu_estimator_embedding.migration.codes import OPEN
from tpu_estimator_embedding.migration.rewrite import rewrite

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
    "mean over all variables": (
        "loss += tf.reduce_mean([tf.nn.l2_loss(v) for v in tf.trainable_variables()])", "TEE409",
        None),
    "number of all variables": (
        "loss += tf.add_n([tf.reduce_sum(tf.exp(v)) for v in tf.trainable_variables()])",
        "TEE409", None),
    "variables with parts": (
        "part = tf.get_variable('part', [4], partitioner=parts)\n    loss += tf.add_n(\n"
        "        [tf.nn.l2_loss(v) for v in tf.trainable_variables()])", "TEE409",
        "[tf.nn.l2_loss(v) for v in tf.trainable_variables()])"),
    "variables in a metric function": (
        "def metrics():\n        return sum([tf.nn.l2_loss(v) for v in tf.trainable_variables()])\n"
        "    loss += metrics()", "TEE409",
        "return sum([tf.nn.l2_loss(v) for v in tf.trainable_variables()])"),
    "variables by something else than their names": (
        "loss += tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if v in CHOSEN])",
        "TEE409", None),
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


@pytest.mark.parametrize("layer, sentence", [
    ("tf.keras.layers.Dense(1, name='a')(net)", "has in TF2 no variables of Keras layers"),
    ("tf.get_variable('a', [4], partitioner=parts)", "has in TF2 no parts of variables")])
def test_sums_say_which_variables_they_would_lack(layer, sentence):
    lines = (f"    other = {layer}\n    loss += tf.add_n("
             "[tf.nn.l2_loss(v) for v in tf.trainable_variables()])\n")
    result = rewrite(PROGRAM.replace(FORWARD, lines + FORWARD), to="tf2")
    assert any(sentence in one.message for one in result.findings if one.code == "TEE409")
