# SPDX-License-Identifier: Apache-2.0
"""Keras' legacy optimizers as optimizers of tables."""

import dataclasses
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config import optimizers

_WORDS: dict[str, tuple[type, tuple[str, ...]]] = {  # class and the settings both have
    "SGD": (optimizers.SGD, ()),
    "Adagrad": (optimizers.Adagrad, ("initial_accumulator_value",)),
    "Adam": (optimizers.Adam, ("beta_1", "beta_2", "epsilon")),
    "Ftrl": (optimizers.FTRL, (
        "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
        "l2_regularization_strength", "beta")),
}


@dataclasses.dataclass(frozen=True)
class _RateOf:
    """The learning rate that an optimizer has when a step runs, which callbacks may change."""

    optimizer: Any

    def __call__(self) -> tf.Tensor:
        return self.optimizer._decayed_lr(tf.float32)


def is_keras_optimizer(optimizer: Any) -> bool:
    """Whether `optimizer` is an optimizer of any Keras, legacy or not.

    >>> is_keras_optimizer(optimizers.SGD(0.1))
    False
    """
    return any("keras" in base.__module__.partition(".")[0] and "optimizer" in base.__module__
               for base in type(optimizer).__mro__)


def from_keras(optimizer: Any) -> Any:
    """Returns the optimizer of tables with the settings of a legacy optimizer of Keras.

    Its rate is what the optimizer's is when a step runs. The arithmetic is that of tables:
    Adam, for one, corrects no bias.

    Args:
        optimizer: `SGD`, `Adagrad`, `Adam` or `Ftrl` of `tf.keras.optimizers.legacy`.

    Raises:
        ValueError: if it is of another class, or sets what tables have not, such as
            momentum, decay, amsgrad or clipping.

    >>> import tf_keras
    >>> from_keras(tf_keras.optimizers.legacy.Adagrad(0.5)).initial_accumulator_value
    0.1
    """
    word, settings = _checked(optimizer)
    with tf.init_scope():
        optimizer._create_hypers()  # a function must find the rate as a variable
    return word(_RateOf(optimizer), **settings)


def with_plain_rate(optimizer: Any) -> Any:
    """Returns the same with the rate it has now, as a number.

    Raises:
        ValueError: those of `from_keras`, or if the rate follows a schedule.
    """
    word, settings = _checked(optimizer)
    rate = optimizer.get_config()["learning_rate"]
    checks.check(not isinstance(rate, dict), f"learning_rate of {type(optimizer).__name__}",
                 "a number, to be saved", rate, "Save weights instead of the model.")
    return word(float(rate), **settings)


def _checked(optimizer: Any) -> tuple[type, dict[str, Any]]:
    kind, is_legacy = type(optimizer), hasattr(optimizer, "_create_hypers")
    checks.check(is_legacy and kind.__name__ in _WORDS, "optimizer",
                 f"one of {', '.join(_WORDS)} of tf.keras.optimizers.legacy", optimizer,
                 "Or take one of tpu_estimator_embedding.mid_level.")
    word, names = _WORDS[kind.__name__]
    config, default = optimizer.get_config(), kind().get_config()
    for name, value in config.items():
        checks.check(name in ("name", "learning_rate", *names) or value == default.get(name),
                     f"{name} of {kind.__name__}", f"{default.get(name)}, as tables have none",
                     value, "Set it on the model's own optimizer alone.")
    return word, {name: float(config[name]) for name in names}  # Keras has some as float32
