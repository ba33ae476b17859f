# SPDX-License-Identifier: Apache-2.0
"""The source expression of an equal initializer."""

from typing import Any

from tpu_estimator_embedding.migration.function_text import (
    TENSORFLOW,
    NoTextError,
    Texts,
    is_constant,
)

# Class of tensorflow.python.ops.init_ops -> name below `tf.compat.v1`.
_V1_NAMES = {
    "Constant": "constant_initializer", "GlorotNormal": "glorot_normal_initializer",
    "GlorotUniform": "glorot_uniform_initializer", "Identity": "initializers.identity",
    "Ones": "ones_initializer", "Orthogonal": "orthogonal_initializer",
    "RandomNormal": "random_normal_initializer", "RandomUniform": "random_uniform_initializer",
    "TruncatedNormal": "truncated_normal_initializer",
    "UniformUnitScaling": "uniform_unit_scaling_initializer",
    "VarianceScaling": "variance_scaling_initializer", "Zeros": "zeros_initializer"}
_DEFAULTS: dict[str, Any] = {"dtype": "float32", "seed": None, "mean": 0.0}


def initializer_text(initializer: Any, texts: Texts) -> str:
    """Returns an expression for an initializer, and collects the imports that it needs.

    Raises:
        NoTextError: it is an object without settings, or one of its settings is an array.

    >>> import tensorflow as tf
    >>> initializer_text(tf.compat.v1.truncated_normal_initializer(stddev=0.1), Texts())
    'tf.compat.v1.truncated_normal_initializer(stddev=0.1)'
    """
    if not hasattr(initializer, "get_config"):
        return texts.expression(initializer, "initializer")
    config = initializer.get_config()
    for key, value in config.items():
        if not is_constant(value):
            raise NoTextError(f"its {key} is no constant of the program's text")
    module, name = type(initializer).__module__, type(initializer).__name__
    texts.imports.setdefault("tf", TENSORFLOW)
    if module == "tensorflow.python.ops.init_ops" and name in _V1_NAMES:
        return f"tf.compat.v1.{_V1_NAMES[name]}({_arguments(config)})"
    if module.split(".")[0] in ("tf_keras", "keras"):
        return f"tf.compat.v2.keras.initializers.{name}({_arguments(config)})"
    raise NoTextError(f"it is of the program's own class {name}")


def _arguments(config: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in config.items()
                     if key not in _DEFAULTS or value != _DEFAULTS[key])
