# SPDX-License-Identifier: Apache-2.0
"""Every optimizer, in all variants: what property tests and tests of the engine run over."""

from tests.spec.oracle import Optimizer

YOGI = {"beta1": 0.5, "beta2": 0.75, "initial_accumulator_value": 0.25}
ADAM = {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3}
PENALTIES = {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1}

CASES = {
    "SGD": Optimizer("SGD", 0.5),
    "Adagrad": Optimizer("Adagrad", 0.5, {"initial_accumulator": 0.25}),
    "ProximalAdagrad": Optimizer("ProximalAdagrad", 0.5, {"initial_accumulator": 0.25}),
    "ProximalAdagrad, penalties": Optimizer("ProximalAdagrad", 0.5, PENALTIES),
    "AdagradMomentum": Optimizer("AdagradMomentum", 0.25, {"momentum": 0.75, "epsilon": 0.01}),
    "AdagradMomentum, Nesterov, averaged, cube root": Optimizer("AdagradMomentum", 0.25, {
        "momentum": 0.75, "use_nesterov": True, "exponent": 3.0, "beta2": 0.9, "epsilon": 0.01}),
    "Momentum": Optimizer("Momentum", 0.25, {"momentum": 0.75}),
    "Momentum, Nesterov": Optimizer("Momentum", 0.25, {"momentum": 0.75, "use_nesterov": True}),
    "RMSProp": Optimizer("RMSProp", 0.25, {"rho": 0.75, "momentum": 0.5, "epsilon": 0.01}),
    "Adam": Optimizer("Adam", 0.05, ADAM),
    "Adam, epsilon outside": Optimizer("Adam", 0.05, {**ADAM, "sum_inside_sqrt": False}),
    "Adam, not lazy": Optimizer("Adam", 0.05, {**ADAM, "lazy_adam": False}),
    "FTRL": Optimizer("FTRL", 0.5, {"initial_accumulator_value": 0.25}),
    "FTRL, penalties, beta, power": Optimizer("FTRL", 0.5, {
        "learning_rate_power": -0.75, "beta": 0.5, **PENALTIES}),
    "FTRL, multiplied": Optimizer("FTRL", 0.5, {
        "multiply_linear_by_learning_rate": True, "beta": 0.5, **PENALTIES}),
    "FTRL, fixed rate": Optimizer("FTRL", 0.5, {"learning_rate_power": 0.0}),
    "FTRL, accumulator from 0": Optimizer("FTRL", 0.5, {"initial_accumulator_value": 0.0}),
    "ProximalYogi": Optimizer("ProximalYogi", 0.05, YOGI),
    "ProximalYogi, penalties": Optimizer("ProximalYogi", 0.05, {**YOGI, **PENALTIES}),
    "FrequencyEstimator": Optimizer("FrequencyEstimator", 1.0, {
        "tau": 0.25, "max_delta": 3.0, "outlier_threshold": 1.75}),
}
