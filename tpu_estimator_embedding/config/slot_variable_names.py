# SPDX-License-Identifier: Apache-2.0
"""Names of the slot variables of a table, a tuple for each optimizer.

Fields are in the order of the slots in the update rule, whose record names them. Gradient
descent has no slots and no tuple.

>>> AdamSlotVariableNames("words/Adam/m", "words/Adam/v").v
'words/Adam/v'
"""

from collections import namedtuple
from typing import Any

from tpu_estimator_embedding.optimizers.registry import rule_named


def _names(rule: str) -> Any:
    record = rule_named(rule).record
    return namedtuple(f"{record.prefix}SlotVariableNames",
                      [slot.field for slot in record.slots], module=__name__)


AdagradSlotVariableNames = _names("Adagrad")
AdagradMomentumSlotVariableNames = _names("AdagradMomentum")
ProximalAdagradSlotVariableNames = _names("ProximalAdagrad")
AdamSlotVariableNames = _names("Adam")
FtrlSlotVariableNames = _names("FTRL")
ProximalYogiSlotVariableNames = _names("ProximalYogi")
MomentumSlotVariableNames = _names("Momentum")
RMSPropSlotVariableNames = _names("RMSProp")
FrequencyEstimatorSlotVariableNames = _names("FrequencyEstimator")
