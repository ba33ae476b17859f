# SPDX-License-Identifier: Apache-2.0
"""Names of the slot variables of a table, a tuple for each optimizer.

Fields stand in the order of the slots in the update rule. Gradient descent has no slots
and no tuple.

>>> AdamSlotVariableNames("words/Adam/m", "words/Adam/v").v
'words/Adam/v'
"""

from collections import namedtuple

AdagradSlotVariableNames = namedtuple("AdagradSlotVariableNames", ["accumulator"])
AdagradMomentumSlotVariableNames = namedtuple(
    "AdagradMomentumSlotVariableNames", ["accumulator", "momenta"])
ProximalAdagradSlotVariableNames = namedtuple(
    "ProximalAdagradSlotVariableNames", ["accumulator"])
AdamSlotVariableNames = namedtuple("AdamSlotVariableNames", ["m", "v"])
FtrlSlotVariableNames = namedtuple("FtrlSlotVariableNames", ["accumulator", "linear"])
ProximalYogiSlotVariableNames = namedtuple("ProximalYogiSlotVariableNames", ["v", "m"])
MomentumSlotVariableNames = namedtuple("MomentumSlotVariableNames", ["momenta"])
RMSPropSlotVariableNames = namedtuple("RMSPropSlotVariableNames", ["ms", "mom"])
FrequencyEstimatorSlotVariableNames = namedtuple(
    "FrequencyEstimatorSlotVariableNames", ["last_hit_step"])
