# SPDX-License-Identifier: Apache-2.0
"""Finds the effects of a function, and of the functions of its module that it calls.

The world is closed: a statement or a call is passed over only if it is of a known kind. Everything
else is a problem, at its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import known_effects
from tpu_estimator_embedding.migration.assignments import assigned, innermost, parameters
from tpu_estimator_embedding.migration.constructor_arguments import ARGUMENTS, REPORTED, SPEC_ORDER
from tpu_estimator_embedding.migration.forward_rewrite import is_value_of_size
from tpu_estimator_embedding.migration.made_objects import MadeObjects, may_be_container
from tpu_estimator_embedding.migration.names import OWN, Names, relative
from tpu_estimator_embedding.migration.node_search import (
    calls_of,
    dotted,
    find_all,
    holds,
    last_word,
    shown,
    text_of,
)
from tpu_estimator_embedding.migration.weight_decay import summed_variables

SPEC = "TPUEstimatorSpec"
_OWN_PURE = (SPEC, "embedding_column", "shared_embedding_columns", "ClassificationOutput",
             "PredictOutput", "RegressionOutput")
_OF_BATCH = ("features", "labels", "mode")  # parameters of a model_fn, new in every call
_OFTEN = "and the forward pass is called more often than a model_fn"
_METHOD_CHANGES = f"`.{{}}` changes an object that outlives the call, {_OFTEN}"
_UNKNOWN_STATEMENTS = {
    cst.Global: "`global`: the forward pass is called more often than a model_fn",
    cst.Nonlocal: "`nonlocal`: the forward pass is called more often than a model_fn",
    cst.Try: "`try`: in TF2 other errors may be raised",
    cst.TryStar: "`try`: in TF2 other errors may be raised",
    cst.ClassDef: "a class in the forward pass",
    cst.Yield: "`yield`", cst.Await: "`await`",
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that is not carried over, or not known to be.

    Attributes:
        node: its place.
        code: of the report.
        message: what and why.
    """

    node: cst.CSTNode
    code: str
    message: str


def is_pure_name(name: str) -> bool:
    """Whether a function of TensorFlow only computes its result."""
    name = known_effects.RANDOM.get(name, name)
    return other_effect(name) is None and (
        name in known_effects.PURE or any(
            name.startswith(f"{namespace}.") for namespace in known_effects.PURE_NAMESPACES))


def other_effect(name: str) -> str | None:
    """Returns what a function of TensorFlow does otherwise in TF2, if anything is known."""
    for key, effect in known_effects.OTHER_EFFECTS.items():
        if name == key or (key.endswith(".") and name.startswith(key)):
            return effect
    return None


class Effects(cst.CSTVisitor):
    """Collects the problems of a function and of the functions that it calls.

    Args:
        names: of the module.
        ignored: nodes that are understood, or reported, elsewhere.

    Attributes:
        called: the function, and the functions of the module that it reaches.
    """

    def __init__(self, names: Names, ignored: Iterable[cst.CSTNode] = ()) -> None:
        super().__init__()
        self._names = names
        self._ignored = set(ignored)
        self.called: list[cst.FunctionDef] = []
        self._around: list[cst.FunctionDef] = []
        self._changed_later = names.changed_later()
        self._metric_functions: list[cst.CSTNode] = []
        self._callees: set[cst.CSTNode] = set()  # what `visit_Call` looks at
        self._summed: set[cst.Call] = set()  # of `tf.trainable_variables`
        self.problems: list[Problem] = []
        # (function, what it changes, problem unless the forward pass has made that)
        self._changes: list[tuple[cst.FunctionDef, cst.BaseExpression, Problem]] = []

    def check(self, function: cst.FunctionDef,
              expressions: Iterable[cst.CSTNode] = ()) -> list[Problem]:
        """Returns the problems of a function, and of expressions in it."""
        self._around = [function]
        self._metric_functions = _metric_functions(function, self._names)
        self.called.append(function)  # the first, before those that the expressions call
        self._summed = {call for call in summed_variables(function.body, self._names)
                        if self._is_of_model_fn(call)}
        for expression in expressions:
            expression.visit(self)
        for called in self.called:  # which grows
            self._around = [called]
            for decorator in called.decorators:
                if called is not function:
                    self._decorator(decorator)
            self._defaults(called)
            called.body.visit(self)
        self._activity_regularizers()
        self._variables_of_other_names()
        longer_lived = [name for name in parameters(function) if name not in _OF_BATCH]
        made = MadeObjects(self._names, self.called, longer_lived)
        self.problems += [problem for changer, changed, problem in self._changes
                          if not made.have(changed, changer, problem.node)]
        return list(dict.fromkeys(self.problems))

    def _activity_regularizers(self) -> None:
        """Reports regularizers of activations, if the loss has those of the collection."""
        calls = [call for function in self.called for call in find_all(function.body, cst.Call)]
        if not any(self._names.of_tensorflow(call.func) in known_effects.READS_REGULARIZATION
                   or self._gets_regularization(call) for call in calls):
            return
        for call in calls:
            place = known_effects.BEFORE_ACTIVITY_REGULARIZER.get(
                self._names.of_tensorflow(call.func), len(call.args))
            for index, given in enumerate(call.args):
                is_one = index >= place if given.keyword is None else (
                    given.keyword.value == known_effects.ACTIVITY_REGULARIZER)
                if is_one and not matchers.matches(given.value, matchers.Name("None")):
                    self._add(given, "TEE409", f"`{shown(given)}`: its loss is "
                              "not in the collection of TF2. Leave it out, and add to the loss the "
                              "regularizer of the layer's output, divided by the size of the batch")

    def _variables_of_other_names(self) -> None:
        """Reports sums over all variables, if layers of Keras or partitioners make some of them."""
        calls = [call for function in self.called for call in find_all(function.body, cst.Call)]
        has_keras = any(self._names.of_tensorflow(call.func).startswith("keras.") for call in calls)
        has_parts = any(argument.keyword is not None and argument.keyword.value == "partitioner"
                        for call in calls for argument in call.args)
        for call in self._summed if has_keras or has_parts else ():
            self._add(call, "TEE409", f"`{text_of(call)}` has in TF2 "
                      + ("no variables of Keras layers" if has_keras else "no parts of variables")
                      + ": add the loss of each variable")

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node in self._ignored:
            return False
        message = _UNKNOWN_STATEMENTS.get(type(node))
        if message:
            self._add(node, "TEE410", f"{message}; the tool does not follow it")
        return super().on_visit(node)

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        self._decorator(node)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in self._names.functions:  # called here, or given to what calls it
            self._follow(self._names.functions[node.value])
        elif node.value in self._changed_later and node.value not in self._locals():
            self._add(node, "TEE410", f"`{node.value}` is changed in "
                      f"{self._changed_later[node.value]}: a Trainer reads it when it traces a "
                      "mode, the Estimator at every call of train")

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False  # a keyword is no name of the module

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        self._attribute(node)
        if self._names.of_tensorflow(node):
            self._callees.add(node.value)  # the module of the name, of which all is said
        node.value.visit(self)
        return False  # nor is an attribute

    def _attribute(self, node: cst.Attribute) -> None:
        if node not in self._callees and dotted(node)[:1] in (("self",), ("cls",)):
            self._follow(self._names.methods.get(node.attr.value, ()))
        name = self._names.of_tensorflow(node) if node not in self._callees else ""
        effect = other_effect(name) if name else None
        if effect and not self._is_as_in_estimator(node, effect):  # given to what calls it
            self._add(node, _code_of(effect), f"`{name}` {effect}")
        elif node not in self._callees and node.attr.value in known_effects.CHANGING_METHODS and (
                not self._names.paths(node)):
            self._change(node, node.value, _METHOD_CHANGES.format(node.attr.value))
        elif node not in self._callees and self._may_be_value_of_size(node):
            self._add(node, "TEE410", f"`{text_of(node)}`: sizes of a shape are ints in TF2, "
                      "without `.value`")

    def _may_be_value_of_size(self, node: cst.Attribute) -> bool:
        root = innermost(node)
        is_other = isinstance(root, cst.Name) and (
            root.value in ("self", "cls", "FLAGS") or root.value in self._names.classes)
        return node.attr.value == "value" and not is_other and not is_value_of_size(node) and (
            not self._names.paths(node))

    def visit_Comparison(self, node: cst.Comparison) -> None:
        for target in node.comparisons:
            if isinstance(target.operator, (cst.In, cst.NotIn)):
                self._key(node, target.comparator, node.left)
        operands = [node.left, *(one.comparator for one in node.comparisons)]
        if self._names.has_object_equality and any(
                isinstance(one.operator, (cst.Equal, cst.NotEqual)) for one in node.comparisons
                ) and any(map(self._is_tensor, operands)) and not any(
                    matchers.matches(one, matchers.Name("None")) for one in operands):
            self._add(node, "TEE409", f"`{text_of(node)}` compares identities in the Estimator, "
                      "which are never equal, and values in TF2: write tf.equal")

    def _is_tensor(self, value: cst.BaseExpression,
                   seen: tuple[str, ...] = ()) -> bool:
        """Whether a value is a tensor, as far as it shows."""
        if isinstance(value, cst.Call):
            name = self._names.of_tensorflow(value.func)
            return name.partition(".")[0] in ("math", "nn", "layers", "losses", "sparse") or (
                name in known_effects.MAKES_A_TENSOR)
        if isinstance(value, cst.BinaryOperation):
            return self._is_tensor(value.left, seen) or self._is_tensor(value.right, seen)
        function = self._around[0]
        if isinstance(value, cst.Name) and value.value in assigned(function):
            values = _values(function, value.value)
            return value.value not in seen and bool(values) and all(
                self._is_tensor(one, (*seen, value.value)) for one in values)
        root = innermost(value)
        return function is self.called[0] and isinstance(root, cst.Name) and (
            value is root and root.value == "labels"
            or isinstance(value, cst.Subscript) and root.value in ("features", "labels"))

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._target(node.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Attribute):  # its object may be changed in place
            self._add(node.target, "TEE409", _about_assignment(node.target))
        else:
            self._target(node.target)
        if isinstance(node.target, cst.Name) and (may_be_container(node.value) or any(
                isinstance(value, cst.Name) and value.value in self._names.globals
                for value in _values(self._around[0], node.target.value))):
            self._change(node, node.target, f"`{node.target.value}` may be a list that outlives "
                         f"the call, which this extends, {_OFTEN}")

    def visit_Del(self, node: cst.Del) -> None:
        targets = [element.value for element in node.target.elements] if isinstance(
            node.target, cst.Tuple) else [node.target]
        for target in targets:
            if not isinstance(target, cst.Name):
                self._target(target)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        index = node.slice[0].slice
        if isinstance(index, cst.Index):
            self._key(node, node.value, index.value)

    def visit_Call(self, node: cst.Call) -> None:
        self._callees.add(node.func)
        words = dotted(node.func)
        if words[:1] == ("params",) and words[1:] in (
                ("pop",), ("update",), ("setdefault",), ("clear",), ("popitem",)):
            self._add(node, "TEE409", f"`params.{words[1]}` changes params, which every call of "
                      "the forward pass gets: copy it first")
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "get" and node.args:
            self._key(node, node.func.value, node.args[0].value)
        if words == ("next",) and node.args:
            self._change(node, node.args[0].value, "`next` advances an iterator that outlives the "
                         f"call, {_OFTEN}")
        self._callable(node, node.func)

    def _key(self, node: cst.CSTNode, of: cst.BaseExpression, key: cst.BaseExpression) -> None:
        text = key.raw_value if isinstance(key, cst.SimpleString) else None
        if text == "batch_size" and matchers.matches(of, matchers.Name("params")):
            self._add(node, "TEE409", "`params['batch_size']` of TPUEstimator, which TF2 passes "
                      "only to the input_fn: use the shape of a feature")
        elif text == "batch_size":
            self._add(node, "TEE410", f"'batch_size' of `{shown(of)}`: if these are params "
                      "of TPUEstimator, TF2 passes it only to the input_fn")

    def _target(self, target: cst.BaseExpression) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._target(element.value)
        elif isinstance(target, cst.Attribute):
            if dotted(target.value) == ("self",):
                self._change(target, target.value, _about_assignment(target))
            else:
                self._add(target, "TEE409", _about_assignment(target))
        elif isinstance(target, cst.Subscript):
            self._change(target, target.value, "an element of an object that outlives the call is "
                         f"assigned, {_OFTEN}")

    def _change(self, node: cst.CSTNode, changed: cst.BaseExpression, message: str) -> None:
        """Notes a change in place, which is a problem of what the forward pass has not made."""
        self._changes.append((self._around[0], changed, Problem(node, "TEE409", message)))

    def _locals(self) -> set[str]:
        names: set[str] = set()
        for function in self._around:
            names |= {*parameters(function), *assigned(function)}
        return names

    def _defaults(self, function: cst.FunctionDef) -> None:
        for parameter in (*function.params.params, *function.params.kwonly_params):
            if isinstance(parameter.default, (cst.List, cst.Dict, cst.Set, cst.Call)):
                self._add(parameter, "TEE410", f"`{parameter.name.value}` has a default that all "
                          "calls share: the tool does not know what they keep in it")

    def _decorator(self, node: cst.Decorator) -> None:
        name = self._names.of_tensorflow(node.decorator)
        if name != "custom_gradient" and dotted(node.decorator) not in (
                ("staticmethod",), ("property",), ("classmethod",), ("abc", "abstractmethod")):
            self._add(node, "TEE410", f"the decorator `{text_of(node.decorator)}`: the tool "
                      "does not know what it does")

    def _callable(self, call: cst.Call, function: cst.BaseExpression) -> None:
        """Follows, passes over or reports what a call calls."""
        words = dotted(function)
        paths = self._names.paths(function) if words else []
        if words[-1:] == (SPEC,) and self._around[0] is not self.called[0]:
            self._spec(call)
        if paths:
            self._imported(call, paths)
        elif isinstance(function, cst.Name):
            self._by_name(call, function.value)
        elif isinstance(function, cst.Attribute):
            self._method(call, function)
        elif not self._is_known(function, self._around[0]):
            self._add(call, "TEE410", f"`{text_of(function)}` is called, a computed function: the "
                      "tool does not know what it does")

    def _is_known(self, value: cst.CSTNode, function: cst.FunctionDef,
                  seen: tuple[cst.FunctionDef, ...] = ()) -> bool:
        """Whether what a value does when it is called is looked at: a layer, a partial, ..."""
        if isinstance(value, cst.Lambda):
            return True
        if isinstance(value, cst.IfExp):
            return all(self._is_known(one, function, seen) for one in (value.body, value.orelse))
        if isinstance(value, cst.Name) and value.value in assigned(function):
            values = _values(function, value.value)
            return function not in seen and bool(values) and all(
                self._is_known(one, function, (*seen, function)) for one in values)
        if isinstance(value, cst.Name) and value.value in self._names.functions:
            return True
        if not isinstance(value, cst.Call):
            return is_pure_name(self._names.of_tensorflow(value))
        if self._names.of_tensorflow(value.func):
            return True
        if "functools.partial" in self._names.paths(value.func) and value.args:
            return self._is_known(value.args[0].value, function, seen)
        name = last_word(value.func)
        if name in self._names.classes:
            return True
        made = self._names.functions.get(name) or self._names.methods.get(name, [])
        returned = [(line.value, one) for one in made if one not in seen
                    for line in find_all(one.body, cst.Return)
                    if line.value is not None]
        return bool(returned) and all(
            self._is_known(one, maker, (*seen, function)) for one, maker in returned)

    def _spec(self, call: cst.Call) -> None:
        """Reports the arguments of a spec that a function other than the model_fn makes."""
        if any(argument.star for argument in call.args):
            self._add(call, "TEE410", f"{SPEC} has * or ** arguments")
            return
        texts = {one.name: one.text for one in ARGUMENTS[SPEC] if one.fate == REPORTED}
        texts["train_op"] = ("the tool follows the train_op of the model_fn, not that of a "
                             "function that it calls: override Trainer.train_step")
        for index, argument in enumerate(call.args):
            key = argument.keyword.value if argument.keyword else SPEC_ORDER[index]
            if key in texts and not matchers.matches(argument.value, matchers.Name("None")):
                self._add(argument.value, "TEE404", f"`{key}` of {SPEC}: {texts[key]}")

    def _imported(self, call: cst.Call, paths: list[str]) -> None:
        for path in paths:
            name = "losses.get_regularization_losses" if self._gets_regularization(
                call) else relative(path)
            if name:
                effect = other_effect(name)
                if effect and (call in self._summed or self._is_as_in_estimator(call, effect)):
                    continue
                if effect:
                    self._add(call, _code_of(effect), f"`{name}` {effect}")
                elif name.startswith("metrics.") and self._is_of_model_fn(call):
                    self._add(call, "TEE409", f"`{name}` makes variables, which the forward pass "
                              "in TF2 cannot make for it: call it in the function of eval_metrics")
                elif self._is_in_metric_function(call) and (
                        name in known_effects.STATE_OF_GRAPH or name.startswith("layers.")):
                    if not name.endswith("global_step"):  # which Trainer gives it
                        self._add(call, "TEE409", f"`{name}` in a metric function: in TF2 its "
                                  "graph has nothing of the model. Compute what it needs in the "
                                  "forward pass, and pass it as an argument of eval_metrics")
                elif known_effects.is_random(name):
                    self._add(call, "TEE411", f"`{name}` draws different numbers from those in the "
                              "Estimator")
                elif not is_pure_name(name) and not name.startswith("keras.layers."):
                    self._add(call, "TEE410", f"`{name}` of TensorFlow is not one that is known to "
                              "do the same in TF2")
            elif path.startswith(OWN):
                if path.rpartition(".")[2] not in _OWN_PURE:
                    self._add(call, "TEE410", f"`{text_of(call.func)}` is not known to do the "
                              "same in TF2")
            elif not _is_in(path, known_effects.PURE_MODULES) or _is_in(
                    path, known_effects.NOT_PURE):
                self._add(call, "TEE410", f"`{path}` of another module is called: check that it "
                          "only computes its result and makes variables by name")

    def _gets_regularization(self, call: cst.Call) -> bool:
        """Whether a call of `get_collection` is one of `get_regularization_losses`."""
        key = call.args[0].value if call.args and not call.args[0].star else None
        return self._names.of_tensorflow(call.func) == "get_collection" and key is not None and (
            self._names.of_tensorflow(key) == "GraphKeys.REGULARIZATION_LOSSES"
            or isinstance(key, cst.SimpleString) and key.raw_value == "regularization_losses")

    def _is_as_in_estimator(self, node: cst.CSTNode, effect: str) -> bool:
        """Whether an effect is of a metric function, which runs in its own graph here, too."""
        return effect in known_effects.AS_IN_A_GRAPH and any(
            holds(function, node) for function in self._metric_functions)

    def _is_of_model_fn(self, call: cst.Call) -> bool:
        """Whether the checked function calls something itself, not in a function inside it."""
        function = self._around[0]
        return function is self.called[0] and not any(
            holds(inner, call)
            for inner in find_all(function.body, cst.FunctionDef, cst.Lambda))

    def _is_in_metric_function(self, call: cst.Call) -> bool:
        """Whether a call stands in a function that makes metrics, other than the model_fn."""
        function = self._around[0]
        around: list[cst.CSTNode] = [
            node for node in find_all(function.body, cst.FunctionDef, cst.Lambda)
            if holds(node, call)]
        around += [function] * (function is not self.called[0])
        return any(self._names.of_tensorflow(other.func).startswith("metrics.")
                   for node in around for other in find_all(node, cst.Call))

    def _by_name(self, call: cst.Call, name: str) -> None:
        if name == "getattr" and call.args and self._names.paths(call.args[0].value):
            self._add(call, "TEE410", f"`{shown(call)}`: write the name out")
        elif name in self._names.functions:
            return  # which `visit_Name` follows
        elif name in self._names.classes:
            self._follow([method for node in self._names.classes[name]
                          for method in node.body.body if isinstance(method, cst.FunctionDef)])
        elif name in self._locals():
            self._value(call, name)
        elif name not in known_effects.BUILTINS and name != SPEC:
            self._add(call, "TEE410", f"`{name}` is called: the tool does not know what it does")

    def _value(self, call: cst.Call, name: str) -> None:
        """Looks at what a local variable that is called was assigned."""
        values = _values(self._around[0], name)
        if not values or not all(isinstance(value, (cst.Call, cst.Lambda)) and self._is_known(
                value, self._around[0]) for value in values):
            self._add(call, "TEE410", f"`{name}` is called, which is a variable: the tool does not "
                      "know what it does")

    def _method(self, call: cst.Call, function: cst.Attribute) -> None:
        name = function.attr.value
        is_own = isinstance(function.value, cst.Name) and function.value.value in ("self", "cls")
        if name in self._names.methods and (is_own or name not in known_effects.METHODS):
            self._follow(self._names.methods[name])
        elif name in ("assign", "assign_add", "assign_sub", "scatter_update", "scatter_add"):
            if not self._is_as_in_estimator(call, known_effects.OTHER_EFFECTS["assign"]):
                self._add(call, "TEE409",
                          f"`.{name}` {known_effects.OTHER_EFFECTS['assign']}")
        elif name in known_effects.CHANGING_METHODS:
            if dotted(function)[:-1] != ("params",):  # which `visit_Call` reports
                self._change(call, function.value, _METHOD_CHANGES.format(name))
        elif name in ("minimize", "apply_gradients", "compute_gradients"):
            self._add(call, "TEE409", f"`.{name}` trains in addition to the train_op that the tool "
                      "follows")
        elif name not in known_effects.METHODS:
            self._add(call, "TEE410", f"the method `.{name}` is called: the tool does not know "
                      "what it does")

    def _follow(self, functions: Iterable[cst.FunctionDef]) -> None:
        for function in functions:
            if function not in self.called:
                self.called.append(function)

    def _add(self, node: cst.CSTNode, code: str, message: str) -> None:
        self.problems.append(Problem(node, code, message))


def _about_assignment(target: cst.Attribute) -> str:
    return f"`{'.'.join(dotted(target)) or target.attr.value}` is assigned, {_OFTEN}"


def _code_of(effect: str) -> str:
    return "TEE412" if effect in known_effects.NO_EFFECT else "TEE409"


def _metric_functions(function: cst.FunctionDef, names: Names) -> list[cst.CSTNode]:
    """Returns the functions that nothing but the `eval_metrics` of a model_fn's specs calls."""
    given = [argument.value for call in calls_of(function.body, SPEC) for argument in call.args
             if argument.keyword is not None and argument.keyword.value == "eval_metrics"]
    pairs = [value for one in given for value in (
        _values(function, one.value) if isinstance(one, cst.Name) else [one])]
    first = [pair.elements[0].value for pair in pairs
             if isinstance(pair, cst.Tuple) and pair.elements]
    found: list[cst.CSTNode] = [one for one in first if isinstance(one, cst.Lambda)]
    uses: set[cst.CSTNode] = {*first}
    is_growing = True
    while is_growing:
        inside = {name for one in found for name in find_all(one, cst.Name)}
        new: list[cst.CSTNode] = [
            node for name, nodes in names.functions.items() for node in nodes
            if node not in found and len(nodes) == 1 and (
                own := {use.root for use in names.uses(name)} - {node.name})
            and own <= uses | inside]
        found += new
        is_growing = bool(new)
    return found


def _is_in(path: str, modules: Iterable[str]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def _values(function: cst.FunctionDef, name: str) -> list[cst.BaseExpression]:
    """Returns what a function assigns to a local name."""
    return [line.value for line in find_all(function.body, cst.Assign)
            if any(isinstance(target.target, cst.Name) and target.target.value == name
                   for target in line.targets)]
