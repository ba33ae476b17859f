# SPDX-License-Identifier: Apache-2.0
"""Names of the slot variables of a table, a tuple for each optimizer.

Fields are in the order of the slots in the update rule, whose record names them. Gradient
descent has no slots and no tuple. The names follow from the records: for each `*Parameters` of an
optimizer with slots, such as `AdamParameters`, there is a `*SlotVariableNames`.

>>> AdamSlotVariableNames("words/Adam/m", "words/Adam/v").v
'words/Adam/v'
"""

from collections import namedtuple
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.registry import records

# Name of the tuple -> the tuple; all of them are names of this module.
SLOT_VARIABLE_NAMES: Mapping[str, type[tuple[str, ...]]] = {
    record.slot_variable_names: namedtuple(
        record.slot_variable_names, [slot.field for slot in record.slots], module=__name__)
    for record in records(with_slots=True)}

globals().update(SLOT_VARIABLE_NAMES)
