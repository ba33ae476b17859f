# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tf.train, and the ones of tf_keras that take their place for dense variables.

Hyperparameters keep their values, also those that were left to their defaults, which are others
in Keras. What differs in spite of that is a sentence of the report. `keras_optimizer.toml` has the
table.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError
from tpu_estimator_embedding.migration.node_search import dotted
from tpu_estimator_embedding.toml_table import read_table

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


def _optimizer(row: Mapping[str, Any]) -> KerasOptimizer:
    pairs = (argument.partition("=") for argument in row["arguments"].split())
    return KerasOptimizer(**{**row, "arguments": {
        name: other if equal else name for name, equal, other in pairs}})


OPTIMIZERS = {name: _optimizer(row)
              for name, row in read_table(__package__, "keras_optimizer.toml").items()}


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
