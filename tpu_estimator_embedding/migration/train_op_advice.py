# SPDX-License-Identifier: Apache-2.0
"""What to write in the place of a train_op that is not known."""

import libcst as cst

from tpu_estimator_embedding.migration.assignments import Line
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import find_all

OPTIMIZERS = ("Adadelta", "Adagrad", "AdagradDA", "Adam", "Ftrl", "GradientDescent", "Momentum",
              "ProximalAdagrad", "ProximalGradientDescent", "RMSProp")
GRADIENTS = ("put the change of gradients into `transform_gradients` of a class derived from "
             "Trainer, and write `optimizer.minimize(loss, global_step)` here")
AVERAGES = ("delete the moving averages here, and update them in `train_step` of a class derived "
            "from Trainer, as the page `training` shows")


def on_second_value(line: Line, names: Names) -> str:
    """Returns what to do about a line that gives the train_op, or gradients, another value."""
    for call in find_all(line.node, cst.Call):
        name = names.of_tensorflow(call.func)
        if name.startswith("clip_by"):
            return GRADIENTS
        if name == "group":
            return ("delete the line if what it groups only logs or counts, else write its ops "
                    "in Trainer.train_step")
    if any(call.func.attr.value == "apply" for call in find_all(line.node, cst.Call)
           if isinstance(call.func, cst.Attribute)):
        return AVERAGES
    return ("give each value its own variable, or write the step in a class derived from "
            "Trainer that overrides train_step")


def on_train_op(node: cst.BaseExpression, names: Names) -> str:
    """Returns what to do about a train_op that is no known call."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and (
            node.func.attr.value == "apply"):
        return AVERAGES
    if isinstance(node, cst.Call) and not names.of_tensorflow(node.func):
        return "move the call of `minimize` or `apply_gradients` into model_fn"
    if isinstance(node, cst.IfExp):
        return "choose the optimizer, not the train_op, by an `if`"
    return "write the step in a class derived from Trainer that overrides train_step"


def on_optimizer(node: cst.BaseExpression, names: Names) -> str:
    """Returns what to do about an optimizer that is no known one of tf.train."""
    if isinstance(node, cst.Call) and not names.of_tensorflow(node.func):
        return ("make the optimizer in model_fn, by its name in tf.train, under an `if` where "
                "there are several")
    return f"choose one of {', '.join(OPTIMIZERS)}"
