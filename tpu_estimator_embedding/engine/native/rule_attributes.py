# SPDX-License-Identifier: Apache-2.0
"""Optimizers as attributes of the compiled update op."""

import math
from collections.abc import Sequence

from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.registry import has_record
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule


def has_kernel(rule: UpdateRule) -> bool:
    """Whether a rule has a kernel; other rules, such as a user's own, use TensorFlow's ops."""
    return has_record(type(rule)) and type(rule).__name__ in load.kernels().rules


def rule_attributes(optimizers: Sequence[RowOptimizer]) -> dict[str, Sequence[str | float | bool]]:
    """Returns the attributes of the update of tables with these optimizers.

    >>> from tpu_estimator_embedding.optimizers.momentum import Momentum
    >>> rule_attributes([RowOptimizer(Momentum(0.5), 0.1)])["hyperparameters"]
    [0.5, 0.0]
    """
    rules = [optimizer.rule for optimizer in optimizers]
    hyperparameters = [item for rule in rules for item in rule.hyperparameters.items()]
    return {
        "rules": [type(rule).__name__ for rule in rules],
        "hyperparameter_names": [name for name, _ in hyperparameters],
        "hyperparameters": [float(value) for _, value in hyperparameters],
        "slot_names": [name for rule in rules for name in rule.slot_initial_values],
        "limits": [limit for optimizer in optimizers
                   for limits in (optimizer.gradient_limits, optimizer.weight_limits)
                   for limit in _closed(limits)],
        "decay_factors": [optimizer.weight_decay_factor for optimizer in optimizers],
        "multiply_decay_by_learning_rate": [optimizer.multiply_weight_decay_by_learning_rate
                                            for optimizer in optimizers],
        "move_untouched_rows": [optimizer.rule.updates_untouched_rows
                                for optimizer in optimizers],
    }


def _closed(limits: Limits) -> tuple[float, float]:
    low, high = limits
    return -math.inf if low is None else low, math.inf if high is None else high
