# SPDX-License-Identifier: Apache-2.0
"""Training steps of an unknown shape are left as they are, and reported with their lines."""

import pytest

from tests.codemod.migration.closed_world import (
    FORWARD,
    HELPER,
    MINIMIZE,
    RATE,
    RETURN,
    TRAIN_OP,
    UPDATES,
    found,
)
from tests.codemod.migration.test_to_tf2 import PROGRAM
from tpu_estimator_embedding.migration.rewrite import rewrite

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
