# SPDX-License-Identifier: Apache-2.0
"""Finds initial values that follow from the seed of the whole program.

An initializer with its own seed draws the same in TF1 and in TF2. Without one, TensorFlow
derives its seed from that of the program and from the number of operations made before, which
differs in TF2.
"""

from collections.abc import Sequence

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    calls_of,
    find_all,
    last_word,
    shown,
    text_of,
)
from tpu_estimator_embedding.migration.source_file import SourceFile

# Layers that have no initial values, or constant ones.
_WITHOUT_VALUES = ("flatten", "dropout", "pooling", "normalization", "features", "input",
                   "activation", "concatenate", "add", "reshape", "relu", "lambda", "noise")
# Words in the names of initializers that draw.
_DRAWING = ("random", "truncated_normal", "truncatednormal", "glorot", "xavier", "he_", "lecun_",
            "henormal", "heuniform", "lecun", "variance_scaling", "variancescaling", "orthogonal",
            "unit_scaling", "unitscaling")
# Callable that makes a variable or a table -> the place of its initializer, from 0.
_MAKES_A_VARIABLE = {"get_variable": 3}
_MAKES_A_TABLE = {"TableConfig": 2, "embedding_column": 3, "shared_embedding_columns": 3,
                  "shared_embeddings": 3}


def problems(seed: cst.BaseExpression | None, source: SourceFile, names: Names,
             elsewhere: Sequence[tuple[SourceFile, Names]] = (), *,
             keeps_seeded: bool) -> list[Problem]:
    """Returns what makes a program draw other initial values than the legacy program.

    Args:
        seed: of the whole program; None if it has none, so that only initializers with a seed of
            their own repeat values in every legacy run.
        source: the module with the seed, or without one.
        names: of the module.
        elsewhere: other modules of the program that draw from the seed, and their names.
        keeps_seeded: whether an initializer with its own seed draws the same values.
    """
    module = source.module
    if seed is None:
        return [] if keeps_seeded else [
            Problem(call, "TEE411", f"`{text_of(call.func)}(...)` draws the same values in every "
                    "run of the legacy program; Keras 3 draws other values from the same seed")
            for call in _seeded(module, names)]
    modules = [(source, names), *elsewhere]
    unseeded = [(one, call) for one, its_names in modules
                if (call := _unseeded(one.module, its_names)) is not None]
    if unseeded:
        [(one, call), *_] = unseeded
        of_module = "" if one is source else f" of {one.path}"
        what = (f"`{text_of(call.func)}(...)` on line {one.start(call).line}{of_module} draws "
                "initial values without a seed")
    elif not any(calls_of(one.module, name) for one, _ in modules for name in _MAKES_A_TABLE):
        what = "the tables, which another module makes, may draw initial values without one"
    elif not keeps_seeded:
        what = "Keras 3 draws other values from the same seed"
    else:
        return []
    return [Problem(seed, "TEE411", f"`tf_random_seed={shown(seed)}` is kept, but gives "
                    f"different numbers: {what}")]


def _unseeded(module: cst.Module, names: Names) -> cst.Call | None:
    """Returns a call of a module that draws initial values without a seed, if any."""
    scoped = _with_initializer_of_scope(module, names)
    return next((call for call in find_all(module, cst.Call)
                 if call not in scoped and _is_unseeded(call, names)), None)


def _with_initializer_of_scope(module: cst.Module, names: Names) -> set[cst.Call]:
    """Returns the calls that have no initializer, within a `with tf.variable_scope` that has one.

    Layers of Keras do not take the initializer of a scope.
    """
    scopes = [node for node in find_all(module, cst.With) for item in node.items
              if isinstance(item.item, cst.Call) and _has_initializer(item.item, names, 2)
              and names.of_tensorflow(item.item.func) == "variable_scope"]
    return {call for scope in scopes for call in find_all(scope.body, cst.Call)
            if not names.of_tensorflow(call.func).startswith("keras.")
            and not _draws(names.of_tensorflow(call.func))
            and all(matchers.matches(value, matchers.Name("None"))
                    for value in _initializers(call, _MAKES_A_VARIABLE.get(last_word(call.func))))}


def _seeded(module: cst.Module, names: Names) -> list[cst.Call]:
    """Returns the calls of a module that make an initializer with its own seed."""
    return [call for call in find_all(module, cst.Call)
            if _draws(names.of_tensorflow(call.func)) and _argument(call, "seed") is not None]


def _is_unseeded(call: cst.Call, names: Names) -> bool:
    last = last_word(call.func)
    name = names.of_tensorflow(call.func)
    if last in _MAKES_A_TABLE:
        return not _has_initializer(call, names, _MAKES_A_TABLE[last])
    if name in _MAKES_A_VARIABLE:
        return not _has_initializer(call, names, _MAKES_A_VARIABLE[name])
    if name.startswith(("layers.", "keras.layers.", "nn.rnn_cell.")) and not any(
            word in last.lower() for word in _WITHOUT_VALUES):
        return not _has_initializer(call, names)
    return _draws(name) and _argument(call, "seed") is None


def _draws(name: str) -> bool:
    """Whether a name of TensorFlow is an initializer that draws."""
    last = name.rpartition(".")[2].lower()
    return ("initializer" in name.lower()) and any(word in last for word in _DRAWING)


def _has_initializer(call: cst.Call, names: Names, place: int | None = None) -> bool:
    """Whether a call is given initializers, none of which draws by its own name alone."""
    given = _initializers(call, place)
    return bool(given) and not any(_is_name_of_one(value, names) for value in given)


def _initializers(call: cst.Call, place: int | None) -> list[cst.BaseExpression]:
    """Returns the initializers that a call is given, but for one of a bias."""
    return [argument.value for index, argument in enumerate(call.args)
            if (argument.keyword.value.endswith("initializer") and not argument.keyword.value
                .startswith("bias") if argument.keyword else index == place)]


def _is_name_of_one(value: cst.BaseExpression, names: Names) -> bool:
    """Whether a value is the name of an initializer, with which no seed can be given."""
    if isinstance(value, cst.SimpleString):
        return any(word in value.raw_value.lower() for word in _DRAWING)
    return isinstance(value, cst.Name) and value.value == "None" or _draws(
        names.of_tensorflow(value))


def _argument(call: cst.Call, name: str) -> cst.BaseExpression | None:
    found = [argument.value for argument in call.args
             if argument.keyword is not None and argument.keyword.value == name]
    return found[0] if found and not (
        isinstance(found[0], cst.Name) and found[0].value == "None") else None
