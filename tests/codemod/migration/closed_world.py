# SPDX-License-Identifier: Apache-2.0
"""Edits of a program of `--to tf2`, and what the report then says of it."""

from tests.codemod.migration.test_to_tf2 import PROGRAM
from tpu_estimator_embedding.migration.codes import OPEN
from tpu_estimator_embedding.migration.rewrite import rewrite

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
