# SPDX-License-Identifier: Apache-2.0
"""The stages of TF2 and Keras: a program with its own training loop or model.

model_fn becomes a forward function, with unchanged text, a learning rate and an optimizer; its
TPUEstimator becomes a Trainer of `tpu_estimator_embedding.trainer`, with the same methods. Tables
are those of `mid_level.TPUEmbedding` or `mid_level.TPUEmbeddingLayer`. The legacy optimizer of the
dense variables stays. The program needs `embedding_config.py`, which `--capture --capture-steps 1`
writes. Unsupported code is left unchanged and reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import (
    estimator_uses,
    keras_optimizer,
    layer_problems,
    model_fn_given,
    model_fn_parts,
    random_draws,
    unused_configs,
)
from tpu_estimator_embedding.migration.assignments import assigned, parameters
from tpu_estimator_embedding.migration.constructor_arguments import OF_TRAINER, order_of
from tpu_estimator_embedding.migration.direct_names import (
    ESTIMATOR,
    TRAINER,
    estimators_as_values,
)
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.forward_rewrite import (
    ForwardRewrite,
    callables_of,
    is_value_of_size,
)
from tpu_estimator_embedding.migration.model_fn_given import GivenModelFn
from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError, Parts
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    calls_of,
    find_all,
    holds,
    last_word,
    replaced,
    shown,
    text_of,
    variables_in,
)
from tpu_estimator_embedding.migration.optimizer_slice import (
    OPTIMIZER_PARAMETERS,
    RATE_PARAMETERS,
)
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.train_op import STEP_CALLS
from tpu_estimator_embedding.runtime.program_package import import_beside

# Stage -> class of `tpu_estimator_embedding.trainer` in the place of TPUEstimator.
TRAINERS = {"tf2": "Trainer", "layers": "KerasTrainer"}

# Returns the paths of the other modules that read a name, or a method of the class of that name.
Readers = Callable[..., list[str]]

LEGACY, KERAS = DENSE_OPTIMIZERS = "legacy", "keras"

_IMPORTED = ("ModeKeys", "Outputs", "activations_of", "sequences_of")
_BOUND = (*_IMPORTED, "dense_learning_rate", "embedding_config", "make_optimizer")
_LINE = 90
_CHANGING = "GradientTrainer"  # the class with `transform_gradients`

@dataclasses.dataclass(frozen=True)
class EstimatorCall:
    """The call that makes the TPUEstimator of a module.

    Attributes:
        call: it.
        arguments: name -> value of each.
        model_fn: the one that it is given.
        writer: of the module that has the model_fn.
        parts: the model_fn, split.
    """

    call: cst.Call
    arguments: Mapping[str, cst.BaseExpression]
    model_fn: GivenModelFn
    writer: Writer
    parts: Parts

    def given_arguments(self) -> dict[str, cst.BaseExpression]:
        """Returns the arguments that are not None."""
        return {name: value for name, value in self.arguments.items()
                if not matchers.matches(value, matchers.Name("None"))}


class _WrittenOptimizer(NamedTuple):
    """The text that makes an optimizer, its kind, and the definitions that the text needs."""

    call: str
    kind: str
    definitions: tuple[str, ...]


class SplitModel(NamedTuple):
    """A model_fn that was split.

    Attributes:
        path: of its module.
        function: its name.
        read_as: the arguments of `Readers` that find who reads it.
        definitions: the text in its place.
    """

    path: str
    function: str
    read_as: tuple[tuple[str, ...], ...]
    definitions: tuple[str, ...]


class Writer:
    """Writes a module of a program of a stage of TF2.

    Args:
        source: the module, with explicit imports.
        dense_optimizer: one of DENSE_OPTIMIZERS.
        trainer: the class that replaces TPUEstimator.
        program: the file that is run; None if that is the module.
        elsewhere, readers: as in a `ProgramModule`.
        inlined: functions whose statements stand in its model_fn.

    Attributes:
        keeps_seeded_draws: whether an initializer with its own seed draws the same values.
        findings: what was changed and what is left to do.
        split: the model_fn of the module that was split; None if none was.
    """

    keeps_seeded_draws = True

    def __init__(self, source: SourceFile, dense_optimizer: str, trainer: str,
                 program: pathlib.Path | None = None, elsewhere: Set[str] = frozenset(),
                 readers: Readers = lambda *_: [], inlined: Set[str] = frozenset()) -> None:
        self._trainer, self._program = trainer, program
        self._elsewhere, self._readers, self._inlined = elsewhere, readers, inlined
        self._is_keras = dense_optimizer == KERAS
        self._source = source
        self._names = Names(source.module)
        self._callables = callables_of(source.module, self._names)
        self.findings: list[Finding] = []
        self._manual: list[tuple[cst.CSTNode, str]] = []  # with the comment that marks it
        self.split: SplitModel | None = None

    def report(self, node: cst.CSTNode, code: str, message: str) -> None:
        """Adds a finding about a node."""
        self.findings.append(self._source.finding(node, code, message))
        if code == "TEE404":
            self._manual.append((node, f"# Manual step TEE404: {message}."))

    def report_all(self, problems: Iterable[Problem]) -> None:
        """Adds findings about nodes."""
        for problem in problems:
            self.report(problem.node, problem.code, problem.message)

    def run(self, find_writer: Callable[[str], Writer | None]) -> dict[str, bytes]:
        """Writes the module of a TPUEstimator, and the one of its model_fn if that has none.

        Args:
            find_writer: returns the writer of another module, given what imports it.

        Returns:
            Path -> the text of each of them.

        Raises:
            NotSplitError: they have an unsupported form.
        """
        found = self._find(find_writer)
        if found is None:
            return {self._source.path: self._source.module.bytes}
        model, function = found.writer, found.model_fn.function
        self._report(found)
        config = self._config(found)
        with model._reporting():
            model._report_model(found)
        self._check_seed(config.get("tf_random_seed"), model)
        with model._reporting():
            functions, before = model._functions(found)
        call = {found.call: self._trainer_call(found, config)}
        moved = OF_TRAINER if config else ()
        texts: dict[str, bytes] = {}
        if model is self:
            texts[self._source.path] = self._finished(
                function, call, functions, before, self._imports(found), moved)
        else:
            texts[self._source.path] = self._finished(
                found.call, call, {}, {}, self._imports(found), moved)
            if not calls_of(model._source.module, ESTIMATOR):  # written with its own one, if any
                with model._reporting():
                    texts[model._source.path] = model._finished(
                        function, {}, functions, before, model._imports_of_model())
        model.split = SplitModel(
            model._source.path, found.model_fn.name, model._read_as(found.model_fn),
            tuple(text for texts in (functions, before) for one in texts.values() for text in one))
        model.report(function, "TEE401", f"`{function.name.value}`")
        self.report(found.call, "TEE403", f"`TPUEstimator` is now `{self._trainer}`")
        return texts

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Reports the problems of an error in this module, before another one reports it."""
        try:
            yield
        except NotSplitError as error:
            self.report_all(error.problems)
            error.problems = ()
            raise

    def _find(self, find_writer: Callable[[str], Writer | None]) -> EstimatorCall | None:
        """Returns the TPUEstimator of the module and its model_fn; None if it has none."""
        module = self._source.module
        calls = calls_of(module, ESTIMATOR)
        subclasses = [node for node in find_all(module, cst.ClassDef)
                      if any(last_word(base.value) == ESTIMATOR for base in node.bases)]
        values = estimators_as_values(module, self._names)
        if values and not calls:
            raise NotSplitError.of(values)
        if not calls and not subclasses:
            return None
        other = [call for call in calls if not self._names.means(call.func, ESTIMATOR)]
        if other:
            raise NotSplitError(f"`{text_of(other[0].func)}` is not known to be this "
                                "package's", other[0])
        self._check(calls, subclasses)
        arguments = _by_name(calls[0], order_of(ESTIMATOR))
        model_fn, writer = self._find_model_fn(arguments.get("model_fn"), calls[0], find_writer)
        with writer._reporting():
            if writer is not self:
                writer._check_free_names(model_fn.function)
            parts = writer._split(model_fn)
        return EstimatorCall(calls[0], arguments, model_fn, writer, parts)

    def _find_model_fn(self, given: cst.BaseExpression | None, call: cst.Call,
                       find_writer: Callable[[str], Writer | None]
                       ) -> tuple[GivenModelFn, Writer]:
        """Returns the model_fn of a TPUEstimator, and the writer of the module that has it."""
        def names_of(path: str) -> Names | None:
            writer = find_writer(path)
            return writer._names if writer else None

        model_fn = model_fn_given.find(given, call, self._names, self._assigned, names_of)
        writer = find_writer(model_fn.module) if model_fn.module else None
        if writer and not model_fn.prefix and model_fn.path not in {
                path for name in self._names.global_names
                for path in self._names.paths_at_top(name)}:
            raise NotSplitError("its model_fn is imported by its name inside a function, or "
                                "through `import *`: import its module", call)
        return model_fn, writer or self

    def _report(self, found: EstimatorCall) -> None:
        """Reports what of the TPUEstimator is not carried over."""
        self._report_module()
        self.report_all(self._other_uses(found))
        self.report_all(found.model_fn.problems)
        self.report_all(estimator_uses.problems(self._source.module, self._names))

    def _report_model(self, found: EstimatorCall) -> None:
        """Reports what of the model_fn is not carried over."""
        if found.model_fn.module:
            self._report_module()
            self.report_all(estimator_uses.problems_elsewhere(self._source.module, self._names))
            self.report_all(self._other_uses(found))
        self.report_all(found.parts.problems)
        self.report_all(estimator_uses.dropped_problems(found.parts.dropped))

    def _report_module(self) -> None:
        module = self._source.module
        self.report_all(layer_problems.repeated_lookups(module, self._names, self._callables))
        for node in find_all(module, cst.Attribute):
            if is_value_of_size(node):
                self.report(node, "TEE403", f"`{text_of(node)}`: sizes are ints in TF2")

    def _check_seed(self, seed: cst.BaseExpression | None, model: Writer) -> None:
        """Reports what draws other initial values than in the legacy program."""
        is_given = seed is not None and not matchers.matches(seed, matchers.Name("None"))
        seed = seed if is_given else None
        elsewhere = [] if model is self else [(model._source, model._names)]
        self.report_all(random_draws.problems(
            seed, self._source, self._names, elsewhere, keeps_seeded=self.keeps_seeded_draws))
        if seed is None and model is not self:
            model.report_all(random_draws.problems(
                None, model._source, model._names, keeps_seeded=self.keeps_seeded_draws))

    def _functions(self, found: EstimatorCall) -> tuple[
            dict[cst.FunctionDef, list[str]], dict[cst.CSTNode, list[str]]]:
        """Returns the definitions in the place of the model_fn, and those before a statement."""
        module, function, parts = self._source.module, found.model_fn.function, found.parts
        forward = self._forward(parts, function)
        below = self._definitions(parts, found.model_fn)
        place = next(statement for statement in module.body if holds(statement, function))
        classes = self._changing_trainer(parts)
        before: dict[cst.CSTNode, list[str]] = {}
        if place is function:
            functions = {function: [forward, *below, *classes]}
        elif found.model_fn.is_method:
            functions, before = {function: [forward, *below]}, {place: classes}
        else:
            functions, before = {function: [forward]}, {place: [*below, *classes]}
        return functions, before

    def _finished(self, place: cst.CSTNode, calls: dict[cst.Call, str],
                  functions: dict[cst.FunctionDef, list[str]],
                  before: dict[cst.CSTNode, list[str]], imports: str,
                  moved: Collection[str] = ()) -> bytes:
        """Returns the text of the module with new definitions and calls.

        Args:
            place: of an error in all of it.
            calls, functions, before: as for `ForwardRewrite`.
            imports: the text of the imports that it needs.
            moved: arguments of its RunConfig that stand elsewhere from now on.
        """
        module = self._source.module
        body = unused_configs.without_unused(
            module.visit(ForwardRewrite(calls, functions, before, self._callables,
                                        self._marks())), module,
            self._elsewhere, moved, self._inlined)
        self._check_not_hidden(body)
        written = unused_configs.with_imports(body, imports, self._elsewhere)
        missing = Names(written).unbound_names - self._names.unbound_names
        if missing:
            raise NotSplitError(f"its training step needs {sorted(missing)}, which it would not "
                                "have outside of the model_fn", place)
        return written.bytes

    def _marks(self) -> dict[cst.CSTNode, list[str]]:
        """Returns statement -> the comments that mark manual steps in it."""
        marks: dict[cst.CSTNode, list[str]] = {}
        statements: list[cst.CSTNode] = find_all(
            self._source.module, cst.SimpleStatementLine, cst.For, cst.While, cst.If, cst.With,
            cst.Try, cst.TryStar, cst.Match, cst.FunctionDef, cst.ClassDef)
        for node, comment in self._manual:
            around = [one for one in statements if holds(one, node)]
            if around:  # the last one is the innermost
                marks.setdefault(around[-1], []).append(comment)
        return marks

    def _forward(self, parts: Parts, function: cst.FunctionDef) -> str:
        """Returns the text that replaces the model_fn."""
        return self._source.module.code_for_node(parts.forward)

    def _check_not_hidden(self, written: cst.Module) -> None:
        """Rejects variables of functions that hide what is imported or defined for them."""
        for function in find_all(written, cst.FunctionDef):
            hidden = sorted({*parameters(function), *assigned(function)} & self._bound())
            if hidden:
                raise NotSplitError(
                    f"`{function.name.value}` uses the names {hidden} itself; rename them",
                    self._names.of_name(function.name.value))

    def _bound(self) -> set[str]:
        keras = keras_optimizer.BOUND if self._is_keras else ()
        return {*_BOUND, _CHANGING, self._trainer, *keras}

    def _imports(self, found: EstimatorCall) -> str:
        """Returns the imports that the program needs, without its own."""
        model_fn = found.model_fn
        if not model_fn.module:
            return self._imports_of_model() + self._beside("embedding_config")
        names = sorted({*_IMPORTED, self._trainer})
        text = f"from {TRAINER} import {', '.join(names)}\n" + self._beside("embedding_config")
        if model_fn.prefix:
            return text
        names = sorted(["dense_learning_rate", "make_optimizer",
                        *[_CHANGING] * (found.parts.gradients is not None),
                        *["DENSE_SLOTS"] * self._is_keras])
        return text + f"from {model_fn.module} import {', '.join(names)}\n"

    def _beside(self, name: str) -> str:
        """Returns the import of a module that is written beside the program."""
        path = pathlib.Path(self._source.path)
        return import_beside(self._program or path, path, name)

    def _imports_of_model(self) -> str:
        """Returns the imports that the functions written for a model_fn need."""
        names = sorted({*_IMPORTED, self._trainer})
        text = f"from {TRAINER} import {', '.join(names)}\n"
        return text + "import tensorflow.compat.v2 as tf_v2\n" * self._is_keras

    def _check(self, calls: list[cst.Call], subclasses: list[cst.ClassDef]) -> None:
        if subclasses:
            raise NotSplitError("a subclass of TPUEstimator: turn it into one of Trainer by hand",
                                subclasses[0])
        if len(calls) != 1:
            raise NotSplitError(f"{len(calls)} TPUEstimators in one module", calls[1])
        if any(argument.star for argument in calls[0].args):
            raise NotSplitError("its TPUEstimator has * or ** arguments", calls[0])
        self._check_free_names(calls[0])

    def _check_free_names(self, place: cst.CSTNode) -> None:
        """Rejects a module that has one of the names that will be written into it."""
        taken = sorted(name for name in self._bound() & self._names.global_names
                       if self._names.paths_at_top(name) != [f"{TRAINER}.{name}"])
        if taken:
            raise NotSplitError(f"the program uses the names {taken} itself; rename them", place)

    def _split(self, given: GivenModelFn) -> Parts:
        """Splits the model_fn; an error has all the problems of the module."""
        layers = self._layers()
        try:
            parts = model_fn_parts.split(given.function, self._names, given.own)
        except NotSplitError as error:
            raise NotSplitError.of([*error.problems, *layers]) from error
        if layers:
            raise NotSplitError.of([*layers, *parts.problems])
        return parts

    def _layers(self) -> list[Problem]:
        """Returns the layers that the function of the forward pass cannot make."""
        return layer_problems.made_again(self._source.module, self._names)

    def _other_uses(self, found: EstimatorCall) -> list[Problem]:
        """Returns uses of the model_fn in this module other than the one in its TPUEstimator."""
        function, given = found.model_fn.function, found.model_fn
        name = function.name.value
        # A function around it may return it.
        returned = {node.value for node in find_all(self._source.module, cst.Return)}
        known = {function.name, *returned}
        if found.writer is self:
            uses = [chain.root for chain in self._names.uses(name)
                    if chain.root not in known and any(
                        getattr(one, "node", None) is function for one in chain.scope[name])]
            readers = [path for names in self._read_as(given) for path in self._readers(*names)]
            uses += [function.name] * bool(readers)
        else:
            readers = []
            uses = [chain.root for chain in self._names.chains if given.name in chain.parts
                    and given.path in self._names.paths_in(
                        chain.scope, chain.parts[:chain.parts.index(given.name) + 1])]
        places = f", in {', '.join(readers)}" if readers else ""
        return [Problem(node, "TEE409", f"`{given.name}` is also used outside its TPUEstimator"
                        f"{places}: it returns Outputs, without a train_op, from now on")
                for node in uses
                if not holds(found.call, node) and not holds(given.expression, node)]

    def _read_as(self, given: GivenModelFn) -> tuple[tuple[str, ...], ...]:
        """Returns the arguments of `Readers` for the model_fn, or for what makes it."""
        if not given.is_method:
            return ((given.name,),)
        return tuple((name, given.name) for name, classes in self._names.classes.items()
                     if any(holds(one, given.function) for one in classes))

    def _config(self, found: EstimatorCall) -> dict[str, cst.BaseExpression]:
        """Returns the arguments of the RunConfig, whether inline or assigned to a variable."""
        name = config = found.arguments.get("config")
        if isinstance(config, cst.Name):
            config = self._assigned(config, found.call) or config
        if isinstance(config, cst.Call) and last_word(config.func) == "RunConfig":
            given = {argument.keyword.value: argument.value for argument in config.args
                     if argument.keyword}  # those of Trainer are given by name only
            if isinstance(name, cst.Name) and len(self._names.uses(name.value)) > 1:
                self.report_all(_computed_twice(given, self._source.module))
            return given
        self.report(found.call, "TEE404", "its RunConfig is made elsewhere: give Trainer "
                    "model_dir and save_checkpoints_steps")
        return {}

    def _assigned(self, name: cst.Name, call: cst.Call) -> cst.BaseExpression | None:
        """Returns the only value of a variable, if it can be written in its place."""
        scope, nodes = self._names.scope_of(name), self._names.bound_by(name)
        lines = [line for line in find_all(self._source.module, cst.Assign)
                 if len(line.targets) == 1 and [line.targets[0].target] == nodes]
        if scope is None or not lines:
            return None
        start, end = (self._source.start(node).line for node in (lines[0], call))
        between = any(start < self._source.start(node).line < end
                      for used in variables_in(lines[0].value)
                      for one in scope[used] if (node := getattr(one, "node", None)) is not None)
        return None if between else lines[0].value

    def _trainer_call(self, found: EstimatorCall,
                      config: Mapping[str, cst.BaseExpression]) -> str:
        """Returns the text that replaces the call of TPUEstimator."""
        given, model_fn = {**config, **found.given_arguments()}, found.model_fn
        code = self._source.module.code_for_node
        called = f"{model_fn.prefix}{_CHANGING}" if found.parts.gradients else self._trainer
        written = [code(given["model_fn"]), "embedding_config",
                   model_fn.called("make_optimizer", found.parts.optimizer.own_parameters),
                   model_fn.called("dense_learning_rate", found.parts.rate.own_parameters)]
        if len(", ".join(written)) < _LINE:
            written = [", ".join(written)]
        written += [f"{name}={code(given[name])}" for name in OF_TRAINER if name in given]
        written += [f"dense_slots={model_fn.prefix}DENSE_SLOTS"] * self._is_keras
        return f"{called}(\n    " + ",\n    ".join(written) + ")"

    def _definitions(self, parts: Parts, given: GivenModelFn) -> list[str]:
        """Returns the definitions below the function of the forward pass."""
        code = self._source.module.code_for_node
        made = self._optimizer(parts)
        self._check_free(parts, given.function)
        marks = "".join(f"{comment}\n" for node, comment in self._manual
                        if holds(given.function, node))
        of_rate = given.parameters(RATE_PARAMETERS, parts.rate.own_parameters)
        of_optimizer = given.parameters(OPTIMIZER_PARAMETERS, parts.optimizer.own_parameters)
        return [
            f"{marks}def dense_learning_rate({of_rate}):\n"
            f"    \"\"\"Returns the learning rate of a step, as model_fn computed it.\"\"\"\n"
            f"{self._indented(map(self._with_step, parts.rate.statements))}"
            f"    return {code(self._with_step(parts.rate.value))}\n",
            f"def make_optimizer({of_optimizer}):\n"
            f"    \"\"\"Returns the {made.kind} optimizer of the dense variables.\"\"\"\n"
            f"{self._indented(parts.optimizer.statements)}    return {made.call}\n",
            *made.definitions]

    def _changing_trainer(self, parts: Parts) -> list[str]:
        """Returns the class that changes gradients, if model_fn did."""
        if parts.gradients is None:
            return []
        body = self._indented(parts.gradients.statements)
        return [f"class {_CHANGING}({self._trainer}):\n"
                '    """Changes the gradients of dense variables as model_fn did."""\n\n'
                "    def transform_gradients(self, gradients, variables):\n"
                + "".join(f"    {line}\n" for line in body.splitlines())
                + f"        return {parts.gradients.value}\n"]

    def _indented(self, statements: Iterable[cst.CSTNode]) -> str:
        """Returns statements of a model_fn as the body of a function."""
        code = self._source.module.code_for_node
        return "".join("    " + line + "\n" for statement in statements
                       for line in _dedented(code(statement)).splitlines()
                       if line != "global_step = global_step")

    def _with_step(self, node: cst.CSTNode) -> cst.CSTNode:
        """Returns a node with the argument `global_step` in the place of the step of the graph."""
        steps = [call for call in find_all(node, cst.Call)
                 if self._names.of_tensorflow(call.func) in STEP_CALLS]
        [found] = replaced([node], {call: cst.Name("global_step") for call in steps})
        assert isinstance(found, cst.CSTNode)
        return found

    def _optimizer(self, parts: Parts) -> _WrittenOptimizer:
        code = self._source.module.code_for_node
        if not self._is_keras:
            return _WrittenOptimizer(code(parts.optimizer.value), "legacy", ())
        made = keras_optimizer.written(self._only_optimizer(parts), code)
        self.report(parts.optimizers[0], "TEE406", made.difference)
        return _WrittenOptimizer(made.call, "Keras", (made.definitions,))

    def _only_optimizer(self, parts: Parts) -> cst.Call:
        """Returns the optimizer.

        Raises:
            NotSplitError: there are several to choose from, or gradients are changed.
        """
        if not matchers.matches(parts.optimizer.value, matchers.Call()):
            raise NotSplitError("conditions choose its optimizer: keep one to replace it by one of "
                                "Keras", parts.optimizers[0])
        return parts.optimizers[0]

    def _check_free(self, parts: Parts, function: cst.FunctionDef) -> None:
        """Rejects an optimizer that needs variables of a function around model_fn."""
        around = [node for node in find_all(self._source.module, cst.FunctionDef)
                  if node is not function and holds(node, function)]
        local = {name for node in around for name in model_fn_parts.bound_names(node, function)}
        of_gradients = parts.gradients.statements if parts.gradients else ()
        used = local & {name for node in (*parts.optimizers, *parts.rate.statements,
                                          *parts.optimizer.statements, *of_gradients)
                        for name in variables_in(node)}
        if used:
            raise NotSplitError(f"its optimizer uses {sorted(used)} of the function around it: "
                                "give the values in `params` of TPUEstimator, or give it a "
                                "`functools.partial` of a function of the module",
                                parts.optimizers[0])


def _computed_twice(config: Mapping[str, cst.BaseExpression],
                    module: cst.Module) -> list[Problem]:
    calls = unused_configs.HarmlessCalls(module)
    return [Problem(config[name], "TEE404", f"`{name}={shown(config[name])}` of RunConfig "
                    "is computed for Trainer again: assign it to a variable above")
            for name in OF_TRAINER if name in config
            and not calls.are_all_of(config[name])]


def _by_name(call: cst.Call, order: tuple[str, ...]) -> dict[str, cst.BaseExpression]:
    return {argument.keyword.value if argument.keyword else order[index]: argument.value
            for index, argument in enumerate(call.args)}


def _dedented(text: str) -> str:
    lines = text.strip("\n").splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
