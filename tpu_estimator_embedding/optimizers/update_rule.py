# SPDX-License-Identifier: Apache-2.0
"""The base class of fused sparse optimizers: a pure function on the rows of a table."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from tpu_estimator_embedding.optimizers.record import OptimizerRecord
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class UpdateRule(abc.ABC):
    """The arithmetic of one optimizer, without variables and without state.

    A rule is a frozen value: its fields are the optimizer's hyperparameters, its
    methods are pure. The learning rate is not a field, because it may change from
    step to step.

    Attributes:
        record: the names of the optimizer, its slots and its settings.
    """

    record: ClassVar[OptimizerRecord]

    @classmethod
    def tf2_attributes(cls) -> Mapping[str, str]:
        """Returns field -> attribute of its settings in the TF2 API, which has the optimizer."""
        differ = cls.record.v2_attributes or {}
        return {field.name: differ.get(field.name, field.name)
                for field in dataclasses.fields(cls)}

    @property
    def slot_initial_values(self) -> Mapping[str, float]:
        """The constant each slot starts with, by slot name, in checkpoint order."""
        return {slot.name: (getattr(self, slot.initial_value)
                            if isinstance(slot.initial_value, str) else slot.initial_value)
                for slot in self.record.slots}

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        """The arguments of the native kernel, by the names and in the order of its struct.

        The kernel receives them as float32: differences such as 1 - beta are computed here, in
        double precision.
        """
        return {}

    @property
    def updates_untouched_rows(self) -> bool:
        """Whether a step also moves rows that no id of the step looked up."""
        return False

    @property
    def divides_by_learning_rate(self) -> bool:
        """Whether a step needs a learning rate above 0."""
        return False

    @abc.abstractmethod
    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the rows and slots after one step.

        Args:
            gradient: `[rows, dim]` float32, summed over all lookups of the step.
            row: `[rows, dim]` float32, the rows before the step.
            slots: slot name -> `[rows, dim]` float32, the slots before the step.
            learning_rate: scalar float32.
            step: scalar, the global step before it is incremented.

        Returns:
            `(row, slots)` after the step, of the same shapes.
        """
