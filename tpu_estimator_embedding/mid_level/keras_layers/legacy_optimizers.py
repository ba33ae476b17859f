# SPDX-License-Identifier: Apache-2.0
"""Converts Keras' legacy optimizers to optimizers of tables."""

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config import optimizers
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.optimizers.registry import rule_named

if TYPE_CHECKING:
    import tf_keras

_COUNTERPARTS: dict[str, type] = {
    "SGD": optimizers.SGD, "Adagrad": optimizers.Adagrad, "Adam": optimizers.Adam,
    "Ftrl": optimizers.FTRL}

# What a layer accepts: an optimizer of tables, the name of one, or a legacy Keras optimizer.
LayerOptimizer: TypeAlias = "TableOptimizer | tf_keras.optimizers.legacy.Optimizer | str | None"


@dataclasses.dataclass(frozen=True)
class _RateOf:
    """The current learning rate of a Keras optimizer, which callbacks may change."""

    optimizer: "tf_keras.optimizers.legacy.Optimizer"

    def __call__(self) -> tf.Tensor:
        return self.optimizer._decayed_lr(tf.float32)


def is_keras_optimizer(optimizer: object) -> bool:
    """Whether `optimizer` is a Keras optimizer, legacy or not, of any Keras.

    >>> is_keras_optimizer(optimizers.SGD(0.1))
    False
    """
    return any("keras" in base.__module__.partition(".")[0] and "optimizer" in base.__module__
               for base in type(optimizer).__mro__)


def from_keras(optimizer: "tf_keras.optimizers.legacy.Optimizer") -> TableOptimizer:
    """Returns an optimizer of tables with the settings of a legacy Keras optimizer.

    Every step reads the current learning rate of the Keras optimizer. The arithmetic is that of
    the table optimizer; for example, Adam has no bias correction.

    Args:
        optimizer: `SGD`, `Adagrad`, `Adam` or `Ftrl` of `tf.keras.optimizers.legacy`.

    Raises:
        ValueError: if it is of another class, or sets an option that table optimizers do not
            have, such as momentum, decay, amsgrad or clipping.

    >>> import tf_keras
    >>> from_keras(tf_keras.optimizers.legacy.Adagrad(0.5)).initial_accumulator_value
    0.1
    """
    counterpart, settings = _checked(optimizer)
    with tf.init_scope():
        optimizer._create_hypers()  # so that tf.function reads the rate from a variable
    return counterpart(_RateOf(optimizer), **settings)


def with_plain_rate(optimizer: "tf_keras.optimizers.legacy.Optimizer") -> TableOptimizer:
    """Returns the optimizer of tables with the current learning rate as a number.

    Raises:
        ValueError: if `from_keras` raises it, or the learning rate follows a schedule.
    """
    counterpart, settings = _checked(optimizer)
    rate = optimizer.get_config()["learning_rate"]
    checks.check(not isinstance(rate, dict), f"learning_rate of {type(optimizer).__name__}",
                 "a number, to be saved", rate, "Save weights instead of the model.")
    return counterpart(float(rate), **settings)


def _checked(
        optimizer: "tf_keras.optimizers.legacy.Optimizer") -> tuple[type, dict[str, float]]:
    kind, is_legacy = type(optimizer), hasattr(optimizer, "_create_hypers")
    checks.check(is_legacy and kind.__name__ in _COUNTERPARTS, "optimizer",
                 f"one of {', '.join(_COUNTERPARTS)} of tf.keras.optimizers.legacy", optimizer,
                 "Or use an optimizer of tpu_estimator_embedding.mid_level.")
    counterpart = _COUNTERPARTS[kind.__name__]
    config, default = optimizer.get_config(), kind().get_config()
    names = [name for name in rule_named(counterpart.__name__).tf2_attributes().values()
             if name in config]
    for name, value in config.items():
        checks.check(name in ("name", "learning_rate", *names) or value == default.get(name),
                     f"{name} of {kind.__name__}", f"{default.get(name)}, because table "
                     "optimizers do not have it", value, "Set it on the model's optimizer only.")
    return counterpart, {name: float(config[name]) for name in names}  # Keras has some as float32
