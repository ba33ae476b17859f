# SPDX-License-Identifier: Apache-2.0
"""What becomes of every argument of the Estimator's constructors at the stages of TF2.

An argument is carried over, reported, or has no effect. `constructor_arguments.toml` has the table,
of which docs/constructor_arguments.py makes a page of the migration guide.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping

from tpu_estimator_embedding.toml_table import read_table

CARRIED, REPORTED, NO_EFFECT = "carried", "reported", "no effect"


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a constructor.

    Attributes:
        name: of the argument.
        fate: CARRIED, REPORTED or NO_EFFECT.
        text: where it goes to, what to do about it, or why it has no effect.
        harmless: values, as written, with which a reported argument needs nothing. A name stands
            for an attribute of any module.
    """

    name: str
    fate: str
    text: str
    harmless: tuple[str, ...] = ("None",)


_TABLE = read_table(__package__, "constructor_arguments.toml")
_SHARED = _TABLE.pop("shared")


def _argument(name: str, row: Mapping[str, str]) -> Argument:
    [(fate, text)] = [pair for pair in row.items() if pair[0] != "unless"]
    return Argument(name, fate.replace("_", " "), string.Template(text).substitute(_SHARED),
                    ("None", *row.get("unless", "").split()))


# Constructor -> its arguments, in order.
ARGUMENTS = {constructor: tuple(_argument(name, row) for name, row in rows.items())
             for constructor, rows in _TABLE.items()}

SPEC_ORDER = tuple(argument.name for argument in ARGUMENTS["TPUEstimatorSpec"])

# Arguments of the RunConfig, and of TPUEstimator, that Trainer has too.
OF_TRAINER = ("params", *dict.fromkeys(
    argument.name for name in ("TPUEstimator", "RunConfig") for argument in ARGUMENTS[name]
    if argument.fate == CARRIED and argument.text.startswith("of `Trainer`")
    and argument.name != "params"))


def order_of(constructor: str) -> tuple[str, ...]:
    """Returns the names of a constructor's arguments, in order."""
    return tuple(argument.name for argument in ARGUMENTS[constructor])
