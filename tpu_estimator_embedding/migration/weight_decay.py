# SPDX-License-Identifier: Apache-2.0
"""Sums over all trainable variables, such as an L2 loss.

    tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "bias" not in v.name])

In the Estimator, every table adds a trainable variable, which is 0. A sum whose terms are 0 for it
has the same value in TF2, where these variables are not there, if the others have the same names.
"""

from __future__ import annotations

import libcst as cst

from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import find_all

_SUMS = ("add_n", "math.add_n")
_NORMS = ("nn.l2_loss",)
_TOTALS = ("reduce_sum", "math.reduce_sum")
_OF_ELEMENTS = ("square", "math.square", "abs", "math.abs")
_OF_NAMES = ("startswith", "endswith", "lower")


def summed_variables(node: cst.CSTNode, names: Names) -> set[cst.Call]:
    """Returns the calls of `tf.trainable_variables` in sums that are the same in TF2."""
    found = set[cst.Call]()
    for call in find_all(node, cst.Call):
        is_sum = names.of_tensorflow(call.func) in _SUMS or (
            isinstance(call.func, cst.Name) and call.func.value == "sum"
            and call.func.value not in names.bound_names)
        match call.args:
            case [cst.Arg(value=cst.ListComp() | cst.GeneratorExp() as terms)] if is_sum:
                read = terms.for_in.iter
                if isinstance(read, cst.Call) and not read.args and (
                        names.of_tensorflow(read.func) == "trainable_variables") and (
                        _is_known(terms, names)):
                    found.add(read)
    return found


def _is_known(terms: cst.ListComp | cst.GeneratorExp, names: Names) -> bool:
    """Whether terms are 0 for a variable that is 0, and chosen by the names of variables."""
    each = terms.for_in
    return (isinstance(each.target, cst.Name) and each.inner_for_in is None
            and _is_norm(terms.elt, each.target.value, names)
            and all(_is_of_name(condition.test, each.target.value) for condition in each.ifs))


def _is_norm(term: cst.BaseExpression, variable: str, names: Names) -> bool:
    match term:
        case cst.Call(func=function, args=[cst.Arg(value=given, keyword=None, star="")]):
            name = names.of_tensorflow(function)
            return (name in _NORMS and _is_variable(given, variable)) or (
                name in _TOTALS and isinstance(given, cst.Call) and len(given.args) == 1
                and names.of_tensorflow(given.func) in _OF_ELEMENTS
                and _is_variable(given.args[0].value, variable))
    return False


def _is_variable(node: cst.BaseExpression, variable: str) -> bool:
    return isinstance(node, cst.Name) and node.value == variable


def _is_of_name(condition: cst.BaseExpression, variable: str) -> bool:
    """Whether a condition is computed from the name of a variable and from constants."""
    match condition:
        case cst.SimpleString():
            return True
        case cst.Attribute(value=cst.Name(value=root), attr=cst.Name(value="name")):
            return root == variable
        case cst.UnaryOperation(operator=cst.Not(), expression=one):
            return _is_of_name(one, variable)
        case cst.BooleanOperation(left=left, right=right):
            return _is_of_name(left, variable) and _is_of_name(right, variable)
        case cst.Comparison(left=left, comparisons=comparisons):
            return _is_of_name(left, variable) and all(
                _is_of_name(one.comparator, variable) for one in comparisons)
        case cst.Call(func=cst.Attribute(value=text, attr=cst.Name(value=method)), args=args):
            return method in _OF_NAMES and all(
                _is_of_name(one, variable) for one in (text, *(arg.value for arg in args)))
    return False
