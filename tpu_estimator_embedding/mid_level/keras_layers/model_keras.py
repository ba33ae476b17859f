# SPDX-License-Identifier: Apache-2.0
"""The Keras of the model that calls a layer; one Keras ignores layers of another."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import tensorflow as tf

# What a program does that has a model of Keras 3 or of tf_keras, and layers of another.
_OF_KERAS_3 = ("Build the model with tf.keras, or leave out `install()` and `run`, which the TF2 "
               "classes and layers do not need.")
_OF_TF_KERAS = ("Set TF_USE_LEGACY_KERAS=1, or read the names of the layers from `mid_level` after "
                "`import tf_keras` and before any use of tf.keras.")


class _Keras(NamedTuple):
    """A Keras.

    Attributes:
        name: what users call it.
        layers: the module of its class Layer.
        calls: the module that knows which of its layers are being called.
        is_calling: whether one of them is.
        inputs: the module of the symbolic inputs of its functional models.
        fix: what a program does that has a model of it, and layers of another.
    """

    name: str
    layers: str
    calls: str
    is_calling: Callable[[ModuleType], bool]
    inputs: str
    fix: str


def _keras_2_is_calling(calls: ModuleType) -> bool:
    return bool(calls.call_context().in_call)


_ALL = (
    _Keras("Keras 3", "keras.src.layers.layer", "keras.src.backend.common.global_state",
           lambda calls: calls.get_global_attribute("current_call_ctx") is not None,
           "keras.src.backend.common.keras_tensor", _OF_KERAS_3),
    _Keras("tf_keras", "tf_keras.src.engine.base_layer", "tf_keras.src.engine.base_layer_utils",
           _keras_2_is_calling, "tf_keras.src.engine.keras_tensor", _OF_TF_KERAS),
    _Keras("keras 2.15", "keras.src.engine.base_layer", "keras.src.engine.base_layer_utils",
           _keras_2_is_calling, "keras.src.engine.keras_tensor", "Build the model with tf_keras."))


def check_keras_of_model(layer: object, inputs: object) -> None:
    """Checks that no model of another Keras calls a layer, or is built of it.

    Args:
        layer: the layer.
        inputs: what it is called with; symbolic in a functional model.

    Raises:
        ValueError: if one does. It would neither save the layer's tables nor, without other
            trainable variables, train them.
    """
    own = {base.__module__ for base in type(layer).__mro__}
    symbols = {base.__module__ for leaf in tf.nest.flatten(inputs) for base in type(leaf).__mro__}
    for other in _ALL:
        calls = sys.modules.get(other.calls)
        is_calling = calls is not None and other.is_calling(calls)
        if other.layers in own or not (is_calling or other.inputs in symbols):
            continue
        [name] = [keras.name for keras in _ALL if keras.layers in own]
        raise ValueError(
            f"{type(layer).__name__} must be called by a model of the same Keras, got a layer of "
            f"{name} in a model of {other.name}, which would not save its tables. {other.fix}")
