# SPDX-License-Identifier: Apache-2.0
"""The names of slot variables in graphs and checkpoints of TPUEstimator."""

from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.slot_names import SLOT_SUFFIXES
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule

_SUFFIXES: Mapping[type[UpdateRule], Mapping[str, str]] = {
    rule: SLOT_SUFFIXES[rule.__name__] for rule in (
        SGD, Adagrad, AdagradMomentum, ProximalAdagrad, Adam, FTRL, ProximalYogi, Momentum,
        RMSProp, FrequencyEstimator)}


def slot_variable_names(table_variable_name: str, rule: UpdateRule) -> dict[str, str]:
    """Returns slot name -> variable name, as a TPU run of TPUEstimator saves them.

    Args:
        table_variable_name: name of the variable that holds the table.
        rule: the optimizer of the table.

    Raises:
        ValueError: if TPUEstimator has no names for the slots of the rule.

    >>> slot_variable_names("words", Adam())
    {'momenta': 'words/Adam/m', 'velocities': 'words/Adam/v'}
    """
    rules = ", ".join(kind.__name__ for kind in _SUFFIXES)
    checks.check(type(rule) in _SUFFIXES, "rule", f"one of {rules}", rule)
    return {slot: f"{table_variable_name}/{suffix}"
            for slot, suffix in _SUFFIXES[type(rule)].items()}
