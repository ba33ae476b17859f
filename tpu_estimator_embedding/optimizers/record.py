# SPDX-License-Identifier: Apache-2.0
"""The names of an optimizer, its slots and its settings, in checkpoints, messages and both APIs.

Every rule has one record. The lowering of both APIs, the ranges that both check, the names in
checkpoints, the tuples of slots, the configuration message, the lists of public names and of names
that `install()` patches, and the row of the table of counterparts are derived from this record. The
defaults of settings are those of the fields of the rule; classes of settings refer to them. To add
an optimizer:

1. Write its rule in a module of this folder: the equation, the fields, `update`, `record`, and
   `hyperparameters`, the arguments of its kernel. `registry` finds it there. Import TensorFlow
   inside of `update`: records are read without it.
2. Write its settings, by which users select it: the `*Parameters` class that the record names, in
   config/optimization_parameters, and a class in mid_level/config/optimizers if the TF2 API has it.
3. Write a struct of the same name in kernels/src/rules.h, with the same names of slots and
   hyperparameters, and add it to the list there. Tests and the op compare them.

CONTRIBUTING.rst lists the tests that need a line for it.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Slot:
    """One slot of an optimizer.

    Attributes:
        name: name in the engine, and in checkpoints of the TF2 classes.
        suffix: part after `TABLE/` of the name in checkpoints of TPUEstimator.
        field: field in tuples such as AdamSlotVariables.
        initial_value: a number, or the field of the rule with the number.
        has_dense_namesake: whether TensorFlow's optimizer for dense variables uses the same
            suffix, so that the suffix does not identify a table.
        keras: its name in Keras 3, and with Keras RS on SparseCores; None if it is in neither.
    """

    name: str
    suffix: str
    field: str
    initial_value: float | str = 0.0
    has_dense_namesake: bool = False
    keras: str | None = None


@dataclasses.dataclass(frozen=True)
class Negated:
    """A setting whose message field says the opposite.

    Attributes:
        setting: attribute of the settings.
    """

    setting: str


class Range(enum.Enum):
    """The values that a setting may have, as the end of "`setting` must be …"."""

    ABOVE_0 = "above 0"
    AT_LEAST_0 = "at least 0"
    AT_MOST_0 = "at most 0"
    DECAY_RATE = "in [0, 1)"

    def contains(self, value: float) -> bool:
        """Whether a number is one of them."""
        return {Range.ABOVE_0: value > 0, Range.AT_LEAST_0: value >= 0,
                Range.AT_MOST_0: value <= 0, Range.DECAY_RATE: 0 <= value < 1}[self]


@dataclasses.dataclass(frozen=True)
class OptimizerRecord:
    """The names of an optimizer.

    Attributes:
        parameters: class of its settings in the v1 API. Fields of the rule are attributes of
            the settings.
        proto: its field in TensorFlow's `OptimizationParameters` message.
        proto_fields: field of that message -> attribute of the settings.
        slots: the slots, in the order of TPUEstimator's checkpoints.
        v2_attributes: field of the rule -> attribute of its settings in the TF2 API, if they
            differ; None if that API does not have the optimizer. Its class in that API has the
            name of the rule.
        ranges: field of the rule -> what it may be.
        sentences: field of the rule -> TensorFlow's sentence for other values, where the range
            does not tell it.
    """

    parameters: str
    proto: str
    proto_fields: Mapping[str, str | Negated] = dataclasses.field(default_factory=dict)
    slots: tuple[Slot, ...] = ()
    v2_attributes: Mapping[str, str] | None = None
    ranges: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    sentences: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """The prefix of the names of its v1 classes: "Ftrl" of "FtrlParameters"."""
        return self.parameters.removesuffix("Parameters")

    @property
    def slot_variable_names(self) -> str:
        """The class of the names of its slot variables: "AdamSlotVariableNames"."""
        return f"{self.prefix}SlotVariableNames"

    @property
    def slot_variables(self) -> str:
        """The class of its slot variables; TensorFlow's name of FTRL's is in the singular."""
        return "FtrlSlotVariable" if self.prefix == "Ftrl" else f"{self.prefix}SlotVariables"

    @property
    def keras_slots(self) -> Mapping[str, str]:
        """Slot -> its name in Keras."""
        return {slot.name: slot.keras for slot in self.slots if slot.keras}

    def fill_message(self, message: object, settings: object) -> None:
        """Writes the settings into the optimizer's message."""
        for field, source in self.proto_fields.items():
            setattr(message, field, not getattr(settings, source.setting)
                    if isinstance(source, Negated) else getattr(settings, source))

    def read_message(self, message: object) -> dict[str, Any]:
        """Returns the settings in the optimizer's message, by attribute."""
        settings = {}
        for field, source in self.proto_fields.items():
            value = getattr(message, field)
            if isinstance(source, Negated):
                settings[source.setting] = not value
            else:
                settings[source] = value
        return settings


def same(*names: str) -> dict[str, str]:
    """Returns fields of a message with the same names as the settings.

    >>> same("rho")
    {'rho': 'rho'}
    """
    return {name: name for name in names}


PENALTIES = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
