# SPDX-License-Identifier: Apache-2.0
"""Finds the layers of a program that cannot stand in a forward pass as they are."""

import libcst as cst

from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.forward_rewrite import (
    COLUMN_LAYERS,
    INPUT_LAYER,
    INPUT_LAYER_NAME,
    Callables,
    column_layer,
    input_layer_arguments,
    is_input_layer,
    takes_columns_at_once,
)
from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import calls_of, dotted, find_all, shown

# Functions of `tf.keras.layers`, and in capitals classes, without variables.
_WITHOUT_VARIABLES = (
    "add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract",
    "activation", "elu", "flatten", "leakyrelu", "permute", "relu", "repeatvector", "reshape",
    "softmax", "globalaveragepooling1d", "globalmaxpooling1d", "averagepooling1d", "maxpooling1d")
_OF_COLUMNS = ("DenseFeatures", "SequenceFeatures", "Input", "InputLayer")


def made_again(module: cst.Module, names: Names) -> list[Problem]:
    """Returns the Keras layers that a forward pass would make again at every call."""
    return [Problem(
        call, NotSplitError.code, f"`{'.'.join(dotted(call.func))}` makes new variables at "
        "every call of the forward pass: write `tf.compat.v1.keras.utils.get_or_create_layer("
        "name, lambda: ...)` around it, with a name for each layer")
        for call in layers_with_variables(module, names)]


def layers_with_variables(module: cst.Module, names: Names) -> list[cst.Call]:
    """Returns the calls that make a Keras layer outside of `get_or_create_layer`."""
    stored = {call for store in calls_of(module, "get_or_create_layer")
              for call in find_all(store, cst.Call)}
    layers = [(call, names.of_tensorflow(call.func))
              for call in find_all(module, cst.Call) if call not in stored]
    return [call for call, path in layers for name in [path.removeprefix("keras.layers.")]
            if name != path and name not in _OF_COLUMNS and name.lower() not in _WITHOUT_VARIABLES]


def repeated_lookups(module: cst.Module, names: Names, callables: Callables) -> list[Problem]:
    """Returns the layers of columns whose place no function of `trainer` takes."""
    return [*_input_layers(module, names, callables), *_column_layers(module, names, callables)]


def _input_layers(module: cst.Module, names: Names, callables: Callables) -> list[Problem]:
    found = []
    for call in find_all(module, cst.Call):
        is_one = names.of_tensorflow(call.func) == f"feature_column.{INPUT_LAYER_NAME}"
        if is_one and not is_input_layer(call, callables):
            found.append(Problem(call, "TEE409", "`tf.feature_column.input_layer` by another "
                                 "name repeats the lookup: write its full name"))
        elif is_one and (odd := sorted(set(input_layer_arguments(call)) - {*INPUT_LAYER})):
            found.append(Problem(call, "TEE409", f"the arguments {odd} of `input_layer`, which "
                                 "`activations_of` does not take"))
    return found


def _column_layers(module: cst.Module, names: Names, callables: Callables) -> list[Problem]:
    calls = find_all(module, cst.Call)
    at_once = {call.func for call in calls if column_layer(call, callables)
               and takes_columns_at_once(call)}
    return [Problem(call, "TEE409", f"`{shown(call)}` repeats the lookup: write "
                    "`Layer(columns)(features)`, which `activations_of` replaces")
            for call in calls if call not in at_once
            and names.of_tensorflow(call.func) in COLUMN_LAYERS]
