# SPDX-License-Identifier: Apache-2.0
"""Finds what a program does with an Estimator that its Trainer does not do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from tpu_estimator_embedding.migration.assignments import bindings_in, parameters
from tpu_estimator_embedding.migration.constructor_arguments import (
    ARGUMENTS,
    REPORTED,
    Argument,
)
from tpu_estimator_embedding.migration.direct_names import EXPORT, OLD_EXPORT
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.known_effects import STATE_OF_GRAPH
from tpu_estimator_embedding.migration.names import OWN, Names
from tpu_estimator_embedding.migration.node_search import (
    called_name,
    calls_of,
    dotted,
    find_all,
    find_names,
    last_word,
    shown,
    text_of,
)

_EMPTY = ("None", "[]", "()")
_EXPORT = "call Trainer.export_saved_model"

# Call -> advice.
_MANUAL_STEPS = {
    "train_and_evaluate": "import it, TrainSpec and EvalSpec from tpu_estimator_embedding.trainer",
    "experimental_export_all_saved_models": f"{_EXPORT}, which exports predictions",
    "WarmStartSettings": "call Trainer.restore_estimator_checkpoint",
    "make_one_shot_iterator": "return the tf.data.Dataset itself",
    "make_initializable_iterator": "return the tf.data.Dataset itself",
    "batch_norm": "of tf.contrib.layers: tf.layers.batch_normalization has other defaults and "
                  "names of variables; write it with yours",
    "sparse_placeholder": "an export of TF2 has dense inputs: make a SparseTensor of dense "
                          "placeholders",
    "init_from_checkpoint": "call Trainer.restore_estimator_checkpoint, or assign the values",
}

# Method of TPUEstimator that Trainer has -> its arguments, in order.
METHODS = {
    "train": ("input_fn", "hooks", "steps", "max_steps", "saving_listeners"),
    "evaluate": ("input_fn", "steps", "hooks", "checkpoint_path", "name"),
    "predict": ("input_fn", "predict_keys", "hooks", "checkpoint_path", "yield_single_examples"),
    EXPORT: ("export_dir_base", "serving_input_receiver_fn", "assets_extra", "as_text",
             "checkpoint_path"),
    "get_variable_names": (), "get_variable_value": ("name",), "latest_checkpoint": (),
    "eval_dir": ("name",),
}
# Exporter -> the number of arguments before `as_text`.
_EXPORTERS = {"FinalExporter": 3, "LatestExporter": 3, "BestExporter": 5}
_HOOKS = ("hooks", "saving_listeners")
_INPUTS = ("input_fn", "serving_input_receiver_fn")

# Spec of `train_and_evaluate` -> its arguments, in order.
_SPECS = {
    "TrainSpec": ("input_fn", "max_steps", "hooks", "saving_listeners"),
    "EvalSpec": ("input_fn", "steps", "name", "hooks", "exporters", "start_delay_secs",
                 "throttle_secs"),
}

# What a module needs to contain to use an Estimator in a way that Trainer does not have.
WORDS = (*_MANUAL_STEPS, *_HOOKS, EXPORT, OLD_EXPORT, "context")


def dropped_problems(dropped: Iterable[tuple[str, cst.CSTNode]]) -> list[Problem]:
    """Returns the arguments of the specs without a counterpart, given their names and places."""
    return [Problem(call, "TEE404", f"`{key}` of TPUEstimatorSpec: "
                    f"{_argument('TPUEstimatorSpec', key).text}") for key, call in dropped]


def problems(module: cst.Module, names: Names) -> list[Problem]:
    """Returns what a module does with its Estimator that the Trainer does not do.

    Args:
        module: of the Estimator.
        names: of the module.
    """
    found: list[Problem] = []
    estimators = _estimators(module)
    is_one_replica = _has_one_replica(module)
    for call in find_all(module, cst.Call):
        found += [one for one in _of_call(call, names)
                  if not (is_one_replica and one.code == "TEE405")]
        found += _of_constructor(call)
        found += _of_method(call, names)
        found += _passed_on(call, names, estimators)
        found += _unknown_specs(call, names)
    called = {call.func for call in find_all(module, cst.Call)}
    for node in find_all(module, cst.Attribute):
        if node.value not in estimators or node.attr.value in ("model_dir", "params"):
            continue
        is_method = node.attr.value in (*METHODS, OLD_EXPORT)
        if is_method and node not in called:
            found.append(Problem(node, "TEE404", f"`{text_of(node)}` is used as a value: call it, "
                                 "so that its arguments are seen"))
        elif not is_method and node.attr.value not in _MANUAL_STEPS:
            found.append(Problem(node, "TEE404", f"`{text_of(node)}`: Trainer has no such "
                                 "attribute"))
    return found + _uses_of_context(module)


def _has_one_replica(module: cst.Module) -> bool:
    """Whether every TPUConfig of a module has `num_shards=1`."""
    order = [one.name for one in ARGUMENTS["TPUConfig"]]
    shards = [next((argument.value for index, argument in enumerate(call.args)
                    if not argument.star and index < len(order) and (
                        argument.keyword.value if argument.keyword else order[index])
                    == "num_shards"), None)
              for call in calls_of(module, "TPUConfig")]
    return bool(shards) and all(
        isinstance(one, cst.Integer) and one.evaluated_value == 1 for one in shards)


def problems_elsewhere(module: cst.Module, names: Names) -> list[Problem]:
    """Returns what a module does with an Estimator that another one makes, as far as it shows."""
    found: list[Problem] = []
    for call in find_all(module, cst.Call):
        found += [one for one in _of_call(call, names) if one.code == "TEE404"]
        found += _unknown_specs(call, names)
        if _is_of_trainer(call, names) or called_name(call) == EXPORT or any(
                argument.keyword is not None and argument.keyword.value in _HOOKS
                for argument in call.args):
            found += _of_method(call, names)
    return found + _uses_of_context(module)


def _uses_of_context(module: cst.Module) -> list[Problem]:
    return [Problem(node, "TEE404", "`params['context']` of TPUEstimator: Trainer does not provide "
                    "it")
            for node in find_all(module, cst.Subscript, cst.Call)
            if _key_of_params(node) == "context"]


def _argument(constructor: str, name: str) -> Argument:
    return next(one for one in ARGUMENTS[constructor] if one.name == name)


def _of_call(call: cst.Call, names: Names) -> list[Problem]:
    name = called_name(call)
    is_own = isinstance(call.func, cst.Name) and (
        name in names.functions or name in names.classes)
    found = []
    if name in _MANUAL_STEPS and not is_own and not _is_of_trainer(call, names):
        found.append(Problem(call, "TEE404", f"`{name}`: {_MANUAL_STEPS[name]}"))
    if name == "ServingInputReceiver" and len(call.args) > 2 and not is_own:
        found.append(Problem(call, "TEE404", f"`{shown(call.args[2])}` of `{name}`: call "
                             "Trainer.export_saved_model once more, with another function"))
    if name == "batch_normalization":
        found.append(Problem(call, "TEE405", "one replica normalizes the whole batch here; the "
                             "Estimator with num_shards above 1 normalized shares of it"))
    return found


def _unknown_specs(call: cst.Call, names: Names) -> list[Problem]:
    """Reports what `train_and_evaluate` is given that is not known to be a spec for a Trainer."""
    if not names.means(call.func, "train_and_evaluate") or not _is_of_trainer(call, names):
        return []
    order = ("estimator", "train_spec", "eval_spec")
    values = [argument.value for argument, name in zip(call.args, order, strict=False)
              if (argument.keyword.value if argument.keyword else name) != "estimator"]
    made = {target.value: value for target, value in names.values.items()
            if isinstance(target, cst.Name)}
    return [Problem(value, "TEE404", f"`{shown(value)}` of `train_and_evaluate`: make it "
                    "with TrainSpec or EvalSpec of tpu_estimator_embedding.trainer")
            for value in values
            for spec in [made.get(value.value) if isinstance(value, cst.Name) else value]
            if not (isinstance(spec, cst.Call) and _is_of_trainer(spec, names))]


def _is_of_trainer(call: cst.Call, names: Names) -> bool:
    return any(path.startswith(f"{OWN}trainer.") for path in names.paths(call.func))


def _of_constructor(call: cst.Call) -> list[Problem]:
    """Reports the arguments of the Estimator's constructors that are not carried over."""
    name = last_word(call.func)
    if name not in ARGUMENTS or name == "TPUEstimatorSpec":
        return []
    found = []
    order = ARGUMENTS[name]
    for index, given in enumerate(call.args):
        if given.star:
            found.append(Problem(given, "TEE408", f"`{text_of(given)}` of {name}: arguments that "
                                 "the tool does not see are not carried over"))
            continue
        key = given.keyword.value if given.keyword else order[index].name if index < len(
            order) else ""
        argument = next((one for one in order if one.name == key), None)
        if argument is None:
            found.append(Problem(given, "TEE408", f"`{text_of(given)}` of {name} is not known"))
        elif argument.fate == REPORTED and not _is_harmless(given.value, argument):
            code = "TEE404" if key == "warm_start_from" else "TEE408"
            found.append(Problem(given, code, f"`{key}={shown(given.value)}` of {name}: "
                                 f"{argument.text}"))
    return found


def _is_harmless(value: cst.BaseExpression, argument: Argument) -> bool:
    return text_of(value) in argument.harmless or dotted(value)[-1:] in [
        (name,) for name in argument.harmless if name.isidentifier() and len(dotted(value)) > 1]


def _of_method(call: cst.Call, names: Names) -> list[Problem]:
    """Reports calls of an Estimator's methods with arguments that Trainer's do not take."""
    if _is_of_trainer(call, names):
        name = names.paths(call.func)[0].rpartition(".")[2]
        order = _SPECS.get(name, ())
    elif isinstance(call.func, cst.Attribute) and not names.paths(call.func):
        name = call.func.attr.value
        order = METHODS.get(name, ()) if name not in names.methods else ()
    else:
        return []
    found = []
    for index, given in enumerate(call.args if order else ()):
        key = given.keyword.value if given.keyword else order[index] if index < len(order) else ""
        if given.star or key not in order:
            found.append(Problem(given, "TEE404", f"`{shown(given)}` of `{name}`: "
                                 "arguments that the tool does not see or know"))
        elif key == "as_text" and text_of(given.value) != "False":
            found.append(Problem(given, "TEE404", f"`{shown(given)}` of `{name}`: TF2 writes no "
                                 "SavedModels as text"))
        elif key == "input_fn" and "config" in _parameters(given.value, names):
            found.append(Problem(given, "TEE404", f"`config` of `{shown(given.value)}`: "
                                 "Trainer gives an input_fn params and mode only"))
        elif key in _INPUTS and (read := _state_read(given.value, names)):
            found.append(Problem(given, "TEE409", f"`{shown(given.value)}` reads `{read}`, "
                                 "which exists only in the graph of a step: Trainer calls it "
                                 "outside of that graph; pass what it needs in params"))
        elif key == "exporters" and not _are_exporters(given.value, names):
            found.append(Problem(given, "TEE404", f"`{key}` of `{name}`: write a list of calls of "
                                 f"{', '.join(_EXPORTERS)} without as_text; instead of another "
                                 f"one, {_EXPORT}"))
        elif key in _HOOKS and text_of(given.value) not in _EMPTY:
            found.append(Problem(given, "TEE404", f"`{key}` of `{name}`: hooks run in sessions, "
                                 "which TF2 does not have; do their work around the call"))
    return found


def _are_exporters(value: cst.BaseExpression | None, names: Names) -> bool:
    """Whether an expression gives TensorFlow's own exporters only, or none."""
    if value is None or text_of(value) in _EMPTY:
        return value is not None
    if isinstance(value, cst.List | cst.Tuple):
        return all(_are_exporters(one.value, names) for one in value.elements)
    if isinstance(value, cst.Name):
        made = [given for target, given in names.values.items()
                if isinstance(target, cst.Name) and target.value == value.value]
        keywords = {argument.keyword for argument in find_all(names.module, cst.Arg)}
        is_read_once = len({*find_names(names.module, value.value)} - keywords) == 1 + len(made)
        return bool(made) and all(_are_exporters(one, names) and (
            is_read_once or isinstance(one, cst.Call)) for one in made)
    return isinstance(value, cst.Call) and any(
        names.means(value.func, exporter) and _is_binary(value, place)
        for exporter, place in _EXPORTERS.items())


def _is_binary(exporter: cst.Call, place: int) -> bool:
    """Whether an exporter writes no text, as far as it shows.

    Args:
        exporter: its constructor's call.
        place: the number of arguments before `as_text`.
    """
    return not any(argument.star or (
        index >= place if argument.keyword is None else argument.keyword.value == "as_text")
        for index, argument in enumerate(exporter.args))


def _parameters(value: cst.BaseExpression, names: Names) -> list[str]:
    """Returns the parameters of a function of the module."""
    if isinstance(value, cst.Lambda):
        return [one.name.value for one in (*value.params.params, *value.params.kwonly_params)]
    found = names.functions.get(value.value, ()) if isinstance(value, cst.Name) else ()
    return [name for function in found for name in parameters(function)]


def _state_read(value: cst.BaseExpression, names: Names) -> str:
    """Returns what an input_fn, or the function that makes it, reads of its graph; "" if nothing.
    """
    called = value.func if isinstance(value, cst.Call) else value
    nodes: list[cst.CSTNode] = list(names.functions.get(called.value, ())) if isinstance(
        called, cst.Name) else []
    read = [name for node in (*nodes, value) for call in find_all(node, cst.Call)
            if (name := names.of_tensorflow(call.func)) in STATE_OF_GRAPH]
    return read[0] if read else ""


def _estimators(module: cst.Module) -> set[cst.Name]:
    """Returns where variables stand that are assigned a TPUEstimator.

    In a function that assigns other values to a variable of the same name, it is another variable.
    """
    makers = {"TPUEstimator", *(
        node.name.value for node in find_all(module, cst.FunctionDef)
        if any(calls_of(line, "TPUEstimator") for line in find_all(node.body, cst.Return)))}
    def is_another(name: str, function: cst.FunctionDef) -> bool:
        values = [value for one, value, _ in bindings_in(function.body) if one == name]
        return bool(values) and name not in parameters(function) and not any(
            isinstance(value, cst.Call) and last_word(value.func) in makers for value in values)

    found = set[cst.Name]()
    for name in {target.target.value for line in find_all(module, cst.Assign)
                 if isinstance(line.value, cst.Call) and last_word(line.value.func) in makers
                 for target in line.targets if isinstance(target.target, cst.Name)}:
        found.update(find_names(module, name))
        for function in find_all(module, cst.FunctionDef):
            if is_another(name, function):
                found.difference_update(find_names(function.body, name))
    return found


def _passed_on(call: cst.Call, names: Names, estimators: set[cst.Name]) -> list[Problem]:
    """Reports an Estimator that is given to a function of another module."""
    given: Sequence[cst.Arg] = [
        argument for argument in call.args if argument.value in estimators]
    name = last_word(call.func)
    if not given or name in names.functions or name in (*_MANUAL_STEPS, "print", "isinstance"):
        return []
    return [Problem(call, "TEE404", f"the Estimator is given to `{text_of(call.func)}`, which may "
                    "use what Trainer does not have")]


def _key_of_params(node: cst.CSTNode) -> str | None:
    key: cst.CSTNode | None = None
    if isinstance(node, cst.Subscript) and last_word(node.value) == "params" and isinstance(
            node.slice[0].slice, cst.Index):
        key = node.slice[0].slice.value
    if isinstance(node, cst.Call) and dotted(node.func)[-2:] == ("params", "get") and node.args:
        key = node.args[0].value
    return key.raw_value if isinstance(key, cst.SimpleString) else None
