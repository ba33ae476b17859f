# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf.train, and the ones of tf_keras that take their place for dense variables.

Hyperparameters keep their values, also those that were left to their defaults, which are others
in Keras. What differs in spite of that is a sentence of the report.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping

import libcst as cst

from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError
from tpu_estimator_embedding.migration.node_search import dotted

_RATE = "learning_rate"
_DROPPED = ("use_locking", "name", "use_own_namescope_for_non_slot_vars")


class NoKerasOptimizerError(NotSplitError):
    """Keras has no optimizer that takes the place of one."""

    code = "TEE407"


@dataclasses.dataclass(frozen=True)
class KerasOptimizer:
    """The replacement of an optimizer of tf.train.

    Attributes:
        name: of the class in `tf.keras.optimizers`.
        arguments: of the legacy one, in order -> name in Keras.
        written: arguments of Keras that are written even where the program leaves them out.
        slots: attribute with the slots of all variables -> suffix in a checkpoint.
        difference: what differs in the numbers.
    """

    name: str
    arguments: Mapping[str, str]
    written: Mapping[str, str]
    slots: Mapping[str, str]
    difference: str


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_ROUNDING = "the same formula, evaluated in another order: rtol 1e-5 after 20 steps"

OPTIMIZERS = {
    "GradientDescentOptimizer": KerasOptimizer(
        "SGD", {_RATE: _RATE, "use_locking": "", "name": ""}, {}, {},
        "var ← var − η g in both: equal up to rounding, rtol 1e-6 after 20 steps"),
    "MomentumOptimizer": KerasOptimizer(
        "SGD", {**_same(_RATE, "momentum"), "use_locking": "", "name": "",
                "use_nesterov": "nesterov"}, {}, {"momentums": "Momentum"},
        "Keras keeps v ← μ v − η g and adds v; tf.train keeps v ← μ v + g and subtracts η v. With "
        "a constant η they are equal (rtol 1e-5 after 20 steps); when η changes from η₁ to η₂, "
        "earlier gradients keep η₁, a factor η₁/η₂ that decays by μ in each step"),
    "AdagradOptimizer": KerasOptimizer(
        "Adagrad", {**_same(_RATE, "initial_accumulator_value"), "use_locking": "", "name": ""},
        {"initial_accumulator_value": "0.1", "epsilon": "0.0"}, {"_accumulators": "Adagrad"},
        "Keras divides by √(a + ε), tf.train by √a; ε is written as 0 (Keras: 1e-7) and a starts "
        f"from the same value (0.1 unless given): {_ROUNDING}"),
    "AdamOptimizer": KerasOptimizer(
        "Adam", {_RATE: _RATE, "beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon",
                 "use_locking": "", "name": "", "use_own_namescope_for_non_slot_vars": ""},
        {"epsilon": "1e-08"}, {"_momentums": "Adam", "_velocities": "Adam_1"},
        "both compute η √(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε) with ε outside of the root, which is "
        "written (tf.train: 1e-8, Keras: 1e-7); βᵗ is a power of the step, not a running product: "
        "rtol 1e-4 after 20 steps. A step that does not start from 0 is counted from the "
        "checkpoint's global_step"),
    "RMSPropOptimizer": KerasOptimizer(
        "RMSprop", {_RATE: _RATE, "decay": "rho", **_same("momentum", "epsilon"),
                    "use_locking": "", "centered": "centered", "name": ""},
        {"epsilon": "1e-10"}, {"_velocities": "RMSProp", "_momentums": "RMSProp_1"},
        "both divide by √(v + ε) with ε inside the root, which is written (tf.train: 1e-10, Keras: "
        "1e-7). v starts from 1 in tf.train, from 0 in Keras: the first step moves a variable by "
        "η/√(1−ρ) (3.2 η for ρ = 0.9) whatever the gradient, and √(1 + ρ / ((1−ρ) g²)) times as "
        "far as before. From a checkpoint of the Estimator, v is carried over: rtol 1e-5 after 20 "
        "steps"),
    "FtrlOptimizer": KerasOptimizer(
        "Ftrl", {**_same(_RATE, "learning_rate_power", "initial_accumulator_value",
                         "l1_regularization_strength", "l2_regularization_strength"),
                 "use_locking": "", "name": "", "accum_name": "", "linear_name": "",
                 **_same("l2_shrinkage_regularization_strength", "beta")},
        {}, {"_accumulators": "Ftrl", "_linears": "Ftrl_1"},
        "the same formula with the same initial accumulator (0.1 unless given): rtol 1e-4 after 20 "
        "steps for dense gradients. For a sparse gradient (tf.gather of a dense variable) Keras "
        "rewrites every row, also those that were not looked up"),
    "AdadeltaOptimizer": KerasOptimizer(
        "Adadelta", {**_same(_RATE, "rho", "epsilon"), "use_locking": "", "name": ""},
        {"epsilon": "1e-08"}, {"_accumulated_grads": "Adadelta",
                               "_accumulated_delta_vars": "Adadelta_1"},
        "both use √(· + ε) above and below the fraction; ε is written (tf.train: 1e-8, Keras: "
        f"1e-7): {_ROUNDING}"),
}


@dataclasses.dataclass(frozen=True)
class Written:
    """The text of a Keras optimizer.

    Attributes:
        call: makes it, from the variable `learning_rate`.
        definitions: what else the program gets at its top level.
        difference: a sentence for the report.
    """

    call: str
    definitions: str
    difference: str


_SLOTS = """\
# Slots of the Keras optimizer -> suffix of the legacy optimizer's slot in a checkpoint.
DENSE_SLOTS = {slots}
"""
BOUND = ("DENSE_SLOTS", "tf_v2")


def written(call: cst.Call, code: Callable[[cst.CSTNode], str]) -> Written:
    """Writes the Keras optimizer for a call that makes one of tf.train.

    Raises:
        NoKerasOptimizerError: there is none, or an argument has no counterpart.
    """
    path = dotted(call.func)
    found = OPTIMIZERS.get(path[-1]) if path[-2:-1] == ("train",) else None
    if found is None:
        raise NoKerasOptimizerError(
            f"`{'.'.join(path)}` has no counterpart in tf_keras; those that have one are "
            f"{', '.join(f'tf.train.{name}' for name in OPTIMIZERS)}. "
            "`--dense-optimizer legacy` keeps it", call)
    given = {argument.keyword.value if argument.keyword else list(found.arguments)[index]:
             code(argument.value) for index, argument in enumerate(call.args)}
    _check_arguments(found, given, call)
    texts = {**found.written, **{found.arguments[name]: text for name, text in given.items()
                                 if found.arguments[name] and text != "None"}}
    texts.pop(_RATE, None)
    arguments = ", ".join([_RATE, *(f"{name}={text}" for name, text in texts.items())])
    return Written(
        f"tf_v2.keras.optimizers.{found.name}({arguments})",
        _SLOTS.format(slots=_slots(found, given)),
        f"`{path[-1]}` is now `tf.keras.optimizers.{found.name}`: {found.difference}")


def _check_arguments(found: KerasOptimizer, given: Mapping[str, str], call: cst.Call) -> None:
    known = [name for name in given if found.arguments.get(name) or name in _DROPPED]
    unknown = sorted(name for name in given if name not in known and given[name] != "None")
    if unknown:
        raise NoKerasOptimizerError(
            f"the argument {unknown[0]!r} of its optimizer has no counterpart in tf_keras", call)
    for name in ("name", "centered"):  # the names of slots depend on them
        try:
            ast.literal_eval(given.get(name, "None"))
        except ValueError:
            raise NoKerasOptimizerError(f"the argument {name!r} of its optimizer is not a "
                                        "constant, which slots are named by", call) from None


def _slots(found: KerasOptimizer, given: Mapping[str, str]) -> dict[str, str]:
    """Returns attribute -> suffix, which begins with the optimizer's name."""
    slots = dict(found.slots)
    if ast.literal_eval(given.get("centered", "None")):
        slots.update(_average_gradients="RMSProp_1", _momentums="RMSProp_2")
    name = ast.literal_eval(given.get("name", "None"))
    return {attribute: re.sub(r"^[A-Za-z]+", name, suffix) if name else suffix
            for attribute, suffix in slots.items()}
