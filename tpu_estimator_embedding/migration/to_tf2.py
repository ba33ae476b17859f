# SPDX-License-Identifier: Apache-2.0
"""The stages of TF2 and Keras: a program with its own training loop or model.

model_fn becomes a forward function, with unchanged text, a learning rate and an optimizer; its
TPUEstimator becomes a Trainer of `tpu_estimator_embedding.trainer`, with the same methods. Tables
are those of `mid_level.TPUEmbedding` or `mid_level.TPUEmbeddingLayer`. The legacy optimizer of the
dense variables stays. The program needs `embedding_config.py`, which `--capture --capture-steps 1`
writes. Unsupported code is left unchanged and reported.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import (
    estimator_uses,
    keras_optimizer,
    layer_problems,
    model_fn_given,
    model_fn_parts,
    quick_scan,
    random_draws,
    unused_configs,
    usual_shapes,
)
from tpu_estimator_embedding.migration.assignments import assigned, parameters
from tpu_estimator_embedding.migration.constructor_arguments import OF_TRAINER, order_of
from tpu_estimator_embedding.migration.direct_names import (
    ESTIMATOR,
    TRAINER,
    estimators_as_values,
    with_direct_names,
    with_names_of_trainer,
)
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.forward_rewrite import (
    ForwardRewrite,
    callables_of,
    is_value_of_size,
)
from tpu_estimator_embedding.migration.model_fn_given import GivenModelFn
from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError, Parts
from tpu_estimator_embedding.migration.module_rewrite import Rewritten
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
from tpu_estimator_embedding.migration.report import Finding, in_words_of_program
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.train_op import STEP_CALLS

# Stage -> class of `tpu_estimator_embedding.trainer` in the place of TPUEstimator.
TRAINERS = {"tf2": "Trainer", "layers": "KerasTrainer"}

LEGACY, KERAS = DENSE_OPTIMIZERS = "legacy", "keras"

_IMPORTED = ("ModeKeys", "Outputs", "activations_of", "sequences_of")
_BOUND = (*_IMPORTED, "dense_learning_rate", "embedding_config", "make_optimizer")
_LINE = 90
_CHANGING = "GradientTrainer"  # the class with `transform_gradients`
_IMPORTS = """\
from tpu_estimator_embedding.trainer import {names}
import embedding_config
"""


def rewrite(imports: Rewritten, source: SourceFile | None, stage: str, dense_optimizer: str,
            others: Sequence[bytes] = (),
            make: Callable[[SourceFile], Writer] | None = None) -> Rewritten:
    """Rewrites a module that has explicit imports; one without a TPUEstimator is unchanged.

    Args:
        imports: the module with explicit imports.
        source: the same, parsed; None if it cannot be, which is reported already.
        stage, dense_optimizer: as for `rewrite.rewrite`.
        others: the texts of the other modules, which may read its configurations.
        make: makes the writer of a stage that is not one of TRAINERS.
    """
    if source is None:
        return imports
    source = with_direct_names(source)
    if make is None:
        source = with_names_of_trainer(source)
        make = functools.partial(
            Writer, dense_optimizer=dense_optimizer, trainer=TRAINERS[stage])
    elsewhere = quick_scan.read_by(others, source.path)
    attempt = _attempt(make(source), elsewhere)
    if attempt.data is None:
        attempt = _with_usual_shapes(source, make, elsewhere) or attempt
    data, findings = attempt
    return Rewritten(imports.data if data is None else data, (
        *imports.findings, *(dataclasses.replace(
            finding, message=in_words_of_program(finding, imports.findings))
            for finding in findings)))


class _Attempt(NamedTuple):
    """The text of a program, None if it has an unsupported form, and the findings."""

    data: bytes | None
    findings: Sequence[Finding]


def _attempt(writer: Writer, elsewhere: Set[str], inlined: Set[str] = frozenset(),
             ) -> _Attempt:
    """Writes a program, or reports why it has an unsupported form."""
    try:
        data = writer.run(elsewhere, inlined)
    except NotSplitError as error:
        writer.report_all(error.problems)
        data = None
    return _Attempt(data, writer.findings)


def _with_usual_shapes(source: SourceFile, make: Callable[[SourceFile], Writer],
                       elsewhere: Set[str]) -> _Attempt | None:
    """Attempts it again with the usual shapes rewritten; None if the first one is to be reported.

    Args:
        source: the program, which has an unsupported form.
        make: makes a writer.
        elsewhere: as for `Writer.run`.
    """
    new, inlined = usual_shapes.rewritten(source)
    if new is source:
        return None
    attempt = _attempt(make(new), elsewhere, inlined)
    # What stands in a function would be quoted as a part of the model_fn.
    return None if attempt.data is None and inlined else attempt


def other_uses(source: SourceFile) -> list[Finding]:
    """Returns what a module does with the Estimator of another module of its program."""
    return [source.finding(problem.node, problem.code, problem.message) for problem
            in estimator_uses.problems_elsewhere(source.module, Names(source.module))]


@dataclasses.dataclass(frozen=True)
class EstimatorCall:
    """The call that makes the TPUEstimator of a module.

    Attributes:
        call: it.
        arguments: name -> value of each.
        model_fn: the one that it is given.
        parts: that, split.
    """

    call: cst.Call
    arguments: Mapping[str, cst.BaseExpression]
    model_fn: GivenModelFn
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


class Writer:
    """Writes a program of a stage of TF2.

    Args:
        source: the program, with explicit imports.
        dense_optimizer: one of DENSE_OPTIMIZERS.
        trainer: the class that replaces TPUEstimator.

    Attributes:
        keeps_seeded_draws: whether an initializer with its own seed draws the same values.
        findings: what was changed and what is left to do.
    """

    keeps_seeded_draws = True

    def __init__(self, source: SourceFile, dense_optimizer: str, trainer: str) -> None:
        self._trainer = trainer
        self._is_keras = dense_optimizer == KERAS
        self._source = source
        self._names = Names(source.module)
        self._callables = callables_of(source.module, self._names)
        self.findings: list[Finding] = []

    def report(self, node: cst.CSTNode, code: str, message: str) -> None:
        """Adds a finding about a node."""
        self.findings.append(self._source.finding(node, code, message))

    def report_all(self, problems: Iterable[Problem]) -> None:
        """Adds findings about nodes."""
        for problem in problems:
            self.report(problem.node, problem.code, problem.message)

    def run(self, elsewhere: Set[str], inlined: Set[str] = frozenset()) -> bytes:
        """Returns the text of the program.

        Args:
            elsewhere: names that other modules read of it.
            inlined: functions whose statements stand in its model_fn.

        Raises:
            NotSplitError: it has an unsupported form.
        """
        found = self._find()
        if found is None:
            return self._source.module.bytes
        self._report(found)
        config = self._config(found)
        self._check_seed(config.get("tf_random_seed"))
        body = self._written(found, config)
        function = found.model_fn.function
        self.report(function, "TEE401", f"`{function.name.value}`")
        self.report(found.call, "TEE403", f"`TPUEstimator` is now `{self._trainer}`")
        body = unused_configs.without_unused(
            body, self._source.module, elsewhere, OF_TRAINER if config else (), inlined)
        self._check_not_hidden(body)
        written = unused_configs.with_imports(
            body, self._imports(self._source.module), elsewhere)
        self._check_defined(written, function)
        return written.bytes

    def _find(self) -> EstimatorCall | None:
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
        model_fn = model_fn_given.find(
            arguments.get("model_fn"), calls[0], module, self._names, self._assigned)
        return EstimatorCall(calls[0], arguments, model_fn, self._split(model_fn))

    def _report(self, found: EstimatorCall) -> None:
        """Reports what is not carried over."""
        module = self._source.module
        self.report_all(self._other_uses(found.model_fn, found.call))
        self.report_all(found.model_fn.problems)
        self.report_all(layer_problems.repeated_lookups(module, self._names, self._callables))
        for node in find_all(module, cst.Attribute):
            if is_value_of_size(node):
                self.report(node, "TEE403", f"`{text_of(node)}`: sizes are ints in TF2")
        self.report_all(found.parts.problems)
        self.report_all(estimator_uses.problems(module, self._names, found.parts.dropped))

    def _check_seed(self, seed: cst.BaseExpression | None) -> None:
        """Reports what draws other initial values than in the legacy program."""
        is_given = seed is not None and not matchers.matches(seed, matchers.Name("None"))
        self.report_all(random_draws.problems(
            seed if is_given else None, self._source, self._names,
            keeps_seeded=self.keeps_seeded_draws))

    def _written(self, found: EstimatorCall,
                 config: Mapping[str, cst.BaseExpression]) -> cst.Module:
        """Returns the module with new definitions in the place of the model_fn and the call."""
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
        return module.visit(ForwardRewrite(
            {found.call: self._trainer_call(found, config)}, functions, before, self._callables))

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

    def _check_defined(self, written: cst.Module, function: cst.FunctionDef) -> None:
        """Rejects what would read variables of the model_fn in another function."""
        missing = Names(written).unbound_names - self._names.unbound_names
        if missing:
            raise NotSplitError(f"its training step needs {sorted(missing)}, which it would not "
                                "have outside of the model_fn", function)

    def _bound(self) -> set[str]:
        keras = keras_optimizer.BOUND if self._is_keras else ()
        return {*_BOUND, _CHANGING, self._trainer, *keras}

    def _imports(self, module: cst.Module) -> str:
        """Returns the imports that the program needs, without its own."""
        names = sorted({*_IMPORTED, self._trainer})
        text = _IMPORTS.format(names=", ".join(names))
        return text + "import tensorflow.compat.v2 as tf_v2\n" if self._is_keras else text

    def _check(self, calls: list[cst.Call], subclasses: list[cst.ClassDef]) -> None:
        if subclasses:
            raise NotSplitError("a subclass of TPUEstimator: turn it into one of Trainer by hand",
                                subclasses[0])
        if len(calls) != 1:
            raise NotSplitError(f"{len(calls)} TPUEstimators in one module", calls[1])
        if any(argument.star for argument in calls[0].args):
            raise NotSplitError("its TPUEstimator has * or ** arguments", calls[0])
        taken = sorted(name for name in self._bound() & self._names.global_names
                       if self._names.paths_at_top(name) != [f"{TRAINER}.{name}"])
        if taken:
            raise NotSplitError(f"the program uses the names {taken} itself; rename them", calls[0])

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

    def _other_uses(self, given: GivenModelFn, call: cst.Call) -> list[Problem]:
        """Returns uses of the model_fn other than the one in its TPUEstimator."""
        function = given.function
        name = function.name.value
        # A function around it may return it.
        returned = {node.value for node in find_all(self._source.module, cst.Return)}
        known = {function.name, *returned}
        return [Problem(chain.root, "TEE409", f"`{name}` is also used outside its TPUEstimator: it "
                        "returns Outputs, without a train_op, from now on")
                for chain in self._names.uses(name)
                if chain.root not in known and not holds(call, chain.root) and not holds(
                    given.expression, chain.root) and any(
                    getattr(one, "node", None) is function for one in chain.scope[name])]

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
        called = _CHANGING if found.parts.gradients else self._trainer
        written = [code(given["model_fn"]), "embedding_config",
                   model_fn.called("make_optimizer", found.parts.optimizer.own_parameters),
                   model_fn.called("dense_learning_rate", found.parts.rate.own_parameters)]
        if len(", ".join(written)) < _LINE:
            written = [", ".join(written)]
        written += [f"{name}={code(given[name])}" for name in OF_TRAINER if name in given]
        written += ["dense_slots=DENSE_SLOTS"] * self._is_keras
        return f"{called}(\n    " + ",\n    ".join(written) + ")"

    def _definitions(self, parts: Parts, given: GivenModelFn) -> list[str]:
        """Returns the definitions below the function of the forward pass."""
        code = self._source.module.code_for_node
        made = self._optimizer(parts)
        self._check_free(parts, given.function)
        marks = "".join(f"# Manual step TEE404: {finding.message}.\n" for finding in self.findings
                        if finding.code == "TEE404")
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
