# SPDX-License-Identifier: Apache-2.0
"""The update rules on one row, in NumPy, written down from their equations.

w: row, g: gradient summed over the step, lr: learning rate, h: hyperparameters.
"""

import numpy as np

SLOTS = {
    "SGD": {},
    "Adagrad": {"accumulators": "initial_accumulator"},
    "ProximalAdagrad": {"accumulators": "initial_accumulator"},
    "AdagradMomentum": {"accumulators": 0.0, "momenta": 0.0},
    "Momentum": {"momenta": 0.0},
    "RMSProp": {"ms": 0.0, "mom": 0.0},
    "Adam": {"momenta": 0.0, "velocities": 0.0},
    "FTRL": {"accumulators": "initial_accumulator_value", "linears": 0.0},
    "ProximalYogi": {"v": "initial_accumulator_value", "m": 0.0},
    "FrequencyEstimator": {"last_hit_step": 0.0},
}

# Names of these slots in TPUEstimator's checkpoints, after the name of the table.
SUFFIXES = {
    "SGD": [],
    "Adagrad": ["Adagrad"],
    "ProximalAdagrad": ["ProximalAdagrad"],
    "AdagradMomentum": ["AdagradMomentum/Accumulator", "AdagradMomentum/Momentum"],
    "Momentum": ["Momentum"],
    "RMSProp": ["RMSProp/ms", "RMSProp/mom"],
    "Adam": ["Adam/m", "Adam/v"],
    "FTRL": ["Ftrl", "Ftrl_1"],
    "ProximalYogi": ["ProximalYogi", "ProximalYogi_1"],
    "FrequencyEstimator": ["FrequencyEstimator"],
}

PENALTIES = {"l1_regularization_strength": 0.0, "l2_regularization_strength": 0.0}

DEFAULTS = {
    "SGD": {},
    "Adagrad": {"initial_accumulator": 0.1},
    "ProximalAdagrad": {"initial_accumulator": 0.1, **PENALTIES},
    "AdagradMomentum": {"momentum": 0.0, "use_nesterov": False, "exponent": 2.0, "beta2": 1.0,
                        "epsilon": 1e-10},
    "Momentum": {"momentum": 0.0, "use_nesterov": False},
    "RMSProp": {},
    "Adam": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "lazy_adam": True,
             "sum_inside_sqrt": True},
    "FTRL": {"learning_rate_power": -0.5, "initial_accumulator_value": 0.1, "beta": 0.0,
             "multiply_linear_by_learning_rate": False, **PENALTIES},
    "ProximalYogi": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3,
                     "initial_accumulator_value": 1e-6, **PENALTIES},
    "FrequencyEstimator": {},
}


def initial_slots(kind, hyperparameters):
    h = {**DEFAULTS[kind], **hyperparameters}
    return {slot: h[value] if isinstance(value, str) else value
            for slot, value in SLOTS[kind].items()}


def suffixes(kind):
    """Returns slot -> what the name of its variable has after the table's."""
    return dict(zip(SLOTS[kind], SUFFIXES[kind], strict=True))


def moves_untouched_rows(kind, hyperparameters):
    return kind == "Adam" and not hyperparameters.get("lazy_adam", True)


def update_row(kind, hyperparameters, g, w, slots, lr, step):
    """Returns (row, slots) after one update."""
    h = {**DEFAULTS[kind], **hyperparameters}
    return RULES[kind](h, np.asarray(g), np.asarray(w), slots, lr, step)


def sgd(h, g, w, slots, lr, step):
    return w - lr * g, {}


def adagrad(h, g, w, slots, lr, step):
    a = slots["accumulators"] + g ** 2
    return w - lr * g / np.sqrt(a), {"accumulators": a}


def proximal_adagrad(h, g, w, slots, lr, step):
    a = slots["accumulators"] + g ** 2
    eta = lr / np.sqrt(a)
    return shrink(w - eta * g, eta, h), {"accumulators": a}


def adagrad_momentum(h, g, w, slots, lr, step):
    if h["beta2"] == 1:
        a = slots["accumulators"] + g ** 2
    else:
        a = h["beta2"] * slots["accumulators"] + (1 - h["beta2"]) * g ** 2
    s = (a + h["epsilon"]) ** (-1.0 / h["exponent"]) * g
    m = h["momentum"] * slots["momenta"] + s
    u = h["momentum"] * m + s if h["use_nesterov"] else m
    return w - lr * u, {"accumulators": a, "momenta": m}


def momentum(h, g, w, slots, lr, step):
    m = h["momentum"] * slots["momenta"] + g
    u = g + h["momentum"] * m if h["use_nesterov"] else m
    return w - lr * u, {"momenta": m}


def rms_prop(h, g, w, slots, lr, step):
    ms = slots["ms"] + (1 - h["rho"]) * (g ** 2 - slots["ms"])
    mom = h["momentum"] * slots["mom"] + lr * g / np.sqrt(ms + h["epsilon"])
    return w - mom, {"ms": ms, "mom": mom}


def adam(h, g, w, slots, lr, step):
    m = h["beta1"] * slots["momenta"] + (1 - h["beta1"]) * g
    v = h["beta2"] * slots["velocities"] + (1 - h["beta2"]) * g ** 2
    if h["sum_inside_sqrt"]:
        w = w - lr * m / np.sqrt(v + h["epsilon"] ** 2)
    else:
        w = w - lr * m / (np.sqrt(v) + h["epsilon"])
    return w, {"momenta": m, "velocities": v}


def ftrl(h, g, w, slots, lr, step):
    p, beta = h["learning_rate_power"], h["beta"]
    l1, l2 = h["l1_regularization_strength"], h["l2_regularization_strength"]
    a = slots["accumulators"] + g ** 2
    delta = a ** -p - slots["accumulators"] ** -p
    if h["multiply_linear_by_learning_rate"]:
        z = slots["linears"] + lr * g - delta * w
        numerator = np.clip(z, -lr * l1, lr * l1) - z
        denominator = a ** -p + beta + 2 * lr * l2
    else:
        z = slots["linears"] + g - delta / lr * w
        numerator = np.clip(z, -l1, l1) - z
        denominator = (a ** -p + beta) / lr + 2 * l2
    # An accumulator that starts at 0 and has seen no gradient: nothing to weigh up, so 0.
    w = np.divide(numerator, denominator, out=np.zeros_like(z), where=denominator != 0)
    return w, {"accumulators": a, "linears": z}


def proximal_yogi(h, g, w, slots, lr, step):
    v = slots["v"] - (1 - h["beta2"]) * np.sign(slots["v"] - g ** 2) * g ** 2
    m = h["beta1"] * slots["m"] + (1 - h["beta1"]) * g
    eta = lr / (np.sqrt(v) + h["epsilon"])
    return shrink(w - eta * m, eta, h), {"v": v, "m": m}


def frequency_estimator(h, g, w, slots, lr, step):
    delta = step - slots["last_hit_step"]
    hit = np.minimum(delta, h["max_delta"])
    is_outlier = delta >= h["outlier_threshold"] * w
    w = np.where(is_outlier, hit, (1 - h["tau"]) * w + h["tau"] * hit)
    return w, {"last_hit_step": np.full_like(w, step)}


def shrink(p, eta, h):
    """The proximal step of l1 and l2 regularisation."""
    l1, l2 = h["l1_regularization_strength"], h["l2_regularization_strength"]
    return np.sign(p) * np.maximum(np.abs(p) - eta * l1, 0.0) / (1 + eta * l2)


RULES = {
    "SGD": sgd, "Adagrad": adagrad, "ProximalAdagrad": proximal_adagrad,
    "AdagradMomentum": adagrad_momentum, "Momentum": momentum, "RMSProp": rms_prop,
    "Adam": adam, "FTRL": ftrl, "ProximalYogi": proximal_yogi,
    "FrequencyEstimator": frequency_estimator,
}
