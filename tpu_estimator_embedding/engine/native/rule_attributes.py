# SPDX-License-Identifier: Apache-2.0
"""The optimizers of tables as attributes of the compiled update.

Hyperparameters travel as float32. What the rules compute from them in double precision,
such as 1 - beta, is computed here; the order is that of the structs in kernels/src/rules.h.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule

_MAX_HYPERPARAMETERS = 8

_HYPERPARAMETERS: dict[type[UpdateRule], Callable[[Any], tuple[float, ...]]] = {
    SGD: lambda rule: (),
    Adagrad: lambda rule: (),
    ProximalAdagrad: lambda rule: (rule.l1_regularization_strength,
                                   rule.l2_regularization_strength),
    AdagradMomentum: lambda rule: (
        rule.momentum, -1.0 / rule.exponent,
        *((1.0, 1.0) if rule.beta2 == 1 else (rule.beta2, 1.0 - rule.beta2)), rule.epsilon,
        rule.use_nesterov),
    Momentum: lambda rule: (rule.momentum, rule.use_nesterov),
    RMSProp: lambda rule: (1.0 - rule.rho, rule.momentum, rule.epsilon),
    Adam: lambda rule: (
        rule.beta1, 1.0 - rule.beta1, rule.beta2, 1.0 - rule.beta2,
        rule.epsilon ** 2 if rule.sum_inside_sqrt else rule.epsilon, rule.sum_inside_sqrt),
    FTRL: lambda rule: (
        -rule.learning_rate_power, rule.l1_regularization_strength,
        rule.l2_regularization_strength, rule.beta, rule.multiply_linear_by_learning_rate),
    ProximalYogi: lambda rule: (
        rule.beta1, 1.0 - rule.beta1, 1.0 - rule.beta2, rule.epsilon,
        rule.l1_regularization_strength, rule.l2_regularization_strength),
    FrequencyEstimator: lambda rule: (rule.tau, 1.0 - rule.tau, rule.max_delta,
                                      rule.outlier_threshold),
}


def has_kernel(rule: UpdateRule) -> bool:
    """Whether the rule is one of the package's own; a user's runs on TensorFlow's ops."""
    return type(rule) in _HYPERPARAMETERS


def rule_attributes(optimizers: Sequence[RowOptimizer]) -> dict[str, list]:
    """Returns the attributes of the update of tables with these optimizers.

    >>> rule_attributes([RowOptimizer(Momentum(0.5), 0.1)])["hyperparameters"]
    [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return {
        "rules": [type(optimizer.rule).__name__ for optimizer in optimizers],
        "hyperparameters": [value for optimizer in optimizers
                            for value in _hyperparameters(optimizer.rule)],
        "limits": [limit for optimizer in optimizers
                   for limits in (optimizer.gradient_limits, optimizer.weight_limits)
                   for limit in _closed(limits)],
        "decay_factors": [optimizer.weight_decay_factor for optimizer in optimizers],
        "multiply_decay_by_learning_rate": [optimizer.multiply_weight_decay_by_learning_rate
                                            for optimizer in optimizers],
        "move_untouched_rows": [optimizer.rule.updates_untouched_rows
                                for optimizer in optimizers],
    }


def _hyperparameters(rule: UpdateRule) -> list[float]:
    values = [float(value) for value in _HYPERPARAMETERS[type(rule)](rule)]
    return values + [0.0] * (_MAX_HYPERPARAMETERS - len(values))


def _closed(limits: Limits) -> tuple[float, float]:
    low, high = limits
    return -math.inf if low is None else low, math.inf if high is None else high
