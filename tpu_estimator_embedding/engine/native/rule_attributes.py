# SPDX-License-Identifier: Apache-2.0
"""The optimizers of tables as attributes of the compiled update.

Hyperparameters travel as float32, under their names. What the rules compute from them in
double precision, such as 1 - beta, is computed here.
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

# The names are those of the structs in kernels/src/rules.h.
_HYPERPARAMETERS: dict[type[UpdateRule], Callable[[Any], dict[str, float]]] = {
    SGD: lambda rule: {},
    Adagrad: lambda rule: {},
    ProximalAdagrad: lambda rule: {"l1": rule.l1_regularization_strength,
                                   "l2": rule.l2_regularization_strength},
    AdagradMomentum: lambda rule: {
        "momentum": rule.momentum, "power": -1.0 / rule.exponent,
        "kept": rule.beta2, "added": 1.0 if rule.beta2 == 1 else 1.0 - rule.beta2,
        "epsilon": rule.epsilon, "use_nesterov": rule.use_nesterov},
    Momentum: lambda rule: {"momentum": rule.momentum, "use_nesterov": rule.use_nesterov},
    RMSProp: lambda rule: {"one_minus_rho": 1.0 - rule.rho, "momentum": rule.momentum,
                           "epsilon": rule.epsilon},
    Adam: lambda rule: {
        "beta1": rule.beta1, "one_minus_beta1": 1.0 - rule.beta1, "beta2": rule.beta2,
        "one_minus_beta2": 1.0 - rule.beta2,
        "epsilon": rule.epsilon ** 2 if rule.sum_inside_sqrt else rule.epsilon,
        "sum_inside_sqrt": rule.sum_inside_sqrt},
    FTRL: lambda rule: {
        "power": -rule.learning_rate_power, "l1": rule.l1_regularization_strength,
        "l2": rule.l2_regularization_strength, "beta": rule.beta,
        "multiply_linear_by_learning_rate": rule.multiply_linear_by_learning_rate},
    ProximalYogi: lambda rule: {
        "beta1": rule.beta1, "one_minus_beta1": 1.0 - rule.beta1,
        "one_minus_beta2": 1.0 - rule.beta2, "epsilon": rule.epsilon,
        "l1": rule.l1_regularization_strength, "l2": rule.l2_regularization_strength},
    FrequencyEstimator: lambda rule: {
        "tau": rule.tau, "one_minus_tau": 1.0 - rule.tau, "max_delta": rule.max_delta,
        "outlier_threshold": rule.outlier_threshold},
}


def has_kernel(rule: UpdateRule) -> bool:
    """Whether the rule is one of the package's own; a user's runs on TensorFlow's ops."""
    return type(rule) in _HYPERPARAMETERS


def rule_attributes(optimizers: Sequence[RowOptimizer]) -> dict[str, list]:
    """Returns the attributes of the update of tables with these optimizers.

    >>> rule_attributes([RowOptimizer(Momentum(0.5), 0.1)])["hyperparameters"]
    [0.5, 0.0]
    """
    rules = [optimizer.rule for optimizer in optimizers]
    hyperparameters = [item for rule in rules
                       for item in _HYPERPARAMETERS[type(rule)](rule).items()]
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
