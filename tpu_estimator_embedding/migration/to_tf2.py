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
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import (
    estimator_uses,
    keras_optimizer,
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
from tpu_estimator_embedding.migration.effects import Problem, text_of
from tpu_estimator_embedding.migration.forward_rewrite import (
    COLUMN_LAYERS,
    INPUT_LAYER,
    INPUT_LAYER_NAME,
    Callables,
    ForwardRewrite,
    column_layer,
    input_layer_arguments,
    is_input_layer,
    is_value_of_size,
    takes_columns_at_once,
)
from tpu_estimator_embedding.migration.model_fn_given import GivenModelFn
from tpu_estimator_embedding.migration.model_fn_parts import (
    OPTIMIZER_PARAMETERS,
    RATE_PARAMETERS,
    NotSplitError,
    Parts,
)
from tpu_estimator_embedding.migration.module_rewrite import Rewritten
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, holds
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.train_op import STEP_CALLS

# Stage -> class of `tpu_estimator_embedding.trainer` in the place of TPUEstimator.
TRAINERS = {"tf2": "Trainer", "layers": "KerasTrainer"}

LEGACY, KERAS = DENSE_OPTIMIZERS = "legacy", "keras"

# Functions of `tf.keras.layers`, and in capitals classes, without variables.
_MERGES = ("add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract")
_IMPORTED = ("ModeKeys", "Outputs", "activations_of", "sequences_of")
_BOUND = (*_IMPORTED, "dense_learning_rate", "embedding_config", "make_optimizer")
_LINE = 90
_CHANGING = "GradientTrainer"  # the class with `transform_gradients`
_REPLACED = re.compile("`([^`]+)`")
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
    elsewhere = quick_scan.read_by(others, source.path)

    def made(source: SourceFile) -> Writer:
        return Writer(source, dense_optimizer, stage) if make is None else make(source)

    writer = made(source)
    try:
        data = writer.run(elsewhere)
    except NotSplitError as error:
        writer.report_all(error.problems)
        data = imports.data
        new, inlined = usual_shapes.rewritten(source)
        if new is not source:
            other = made(new)
            try:
                data, writer = other.run(elsewhere, inlined), other
            except NotSplitError as error:
                other.report_all(error.problems)
                # What stands in a function is quoted as it was, in the model_fn.
                writer = writer if inlined else other
    return Rewritten(data, (*imports.findings, *(dataclasses.replace(
        finding, message=_in_words_of_program(finding, imports.findings))
        for finding in writer.findings)))


def other_uses(source: SourceFile) -> list[Finding]:
    """Returns what a module does with the Estimator of another module of its program."""
    return [source.finding(problem.node, problem.code, problem.message) for problem
            in estimator_uses.problems_elsewhere(source.module, Names(source.module))]


def _in_words_of_program(finding: Finding, changes: Sequence[Finding]) -> str:
    """Returns the message of a finding with quoted code as the program had it.

    Args:
        finding: it quotes code with explicit imports.
        changes: what was written for those.
    """
    message = finding.message
    pairs = [(words[1], words[0]) for change in sorted(
        changes, key=lambda one: abs(one.line - finding.line))
        if change.code == "TEE101" and (words := _REPLACED.findall(change.message))[1:]]
    names = dict(reversed(pairs))  # of the nearest lines
    if not names:
        return message
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.])({known})(?!\w)")
    return re.sub(r"`[^`]*`", lambda quoted: pattern.sub(
        lambda found: names[found[0]], quoted[0]), message)


class Writer:
    """Writes a program of a stage of TF2.

    Attributes:
        trainer: the class that replaces TPUEstimator.
        keeps_seeded_draws: whether an initializer with its own seed draws the same values.
        findings: what was changed and what is left to do.
    """

    trainer = ""
    keeps_seeded_draws = True

    def __init__(self, source: SourceFile, dense_optimizer: str, stage: str = "") -> None:
        self._trainer = self.trainer or TRAINERS[stage]
        self._is_keras = dense_optimizer == KERAS
        self._source = source
        self._names = Names(source.module)
        self._callables = _callables(source.module, self._names)
        self._called = self._trainer  # the class, or one derived from it
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
        module = self._source.module
        calls = [call for call in find_all(module, cst.Call)
                 if dotted(call.func)[-1:] == (ESTIMATOR,)]
        subclasses = [node for node in find_all(module, cst.ClassDef)
                      if any(dotted(base.value)[-1:] == (ESTIMATOR,) for base in node.bases)]
        values = estimators_as_values(module, self._names)
        if values and not calls:
            raise NotSplitError.of(values)
        if not calls and not subclasses:
            return self._source.module.bytes
        other = [call for call in calls if not self._names.means(call.func, ESTIMATOR)]
        if other:
            raise NotSplitError(f"`{text_of(other[0].func)}` is not known to be that of this "
                                "package", other[0])
        self._check(calls, subclasses)
        arguments = _by_name(calls[0], order_of(ESTIMATOR))
        given = model_fn_given.find(arguments.get("model_fn"), calls[0], self._source.module,
                                    self._names, self._assigned)
        function = given.function
        parts = self._split(given)
        self._called = _CHANGING if parts.gradient_value else self._trainer
        self.report_all(self._other_uses(given, calls[0]))
        self.report_all(given.problems)
        self.report_all(self._input_layers())
        self.report_all(self._column_layers())
        for node in find_all(module, cst.Attribute):
            if is_value_of_size(node):
                self.report(node, "TEE403", f"`{text_of(node)}`: sizes are ints in TF2")
        self.report_all(parts.problems)
        self.report_all(estimator_uses.problems(
            module, self._names, parts.dropped))
        config = self._config(arguments, calls[0])
        self._seed(config.get("tf_random_seed"))
        forward = self._forward(parts, function)
        below = self._definitions(parts, given)
        place = next(statement for statement in module.body if holds(statement, function))
        classes = self._changing_trainer(parts)
        before: dict[cst.CSTNode, list[str]] = {}
        if place is function:
            replaced = {function: [forward, *below, *classes]}
        elif given.is_method:
            replaced, before = {function: [forward, *below]}, {place: classes}
        else:
            replaced, before = {function: [forward]}, {place: [*below, *classes]}
        body = module.visit(ForwardRewrite(
            {calls[0]: self._trainer_call(arguments, config, given, parts)}, replaced, before,
            self._callables))
        self.report(function, "TEE401", f"`{function.name.value}`")
        self.report(calls[0], "TEE403", f"`TPUEstimator` is now `{self._trainer}`")
        body = unused_configs.without_unused(body, module, elsewhere, OF_TRAINER if config else (),
                                              inlined)
        self._check_not_hidden(body)
        return unused_configs.with_imports(body, self._imports(module), elsewhere).bytes

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
        """Returns the Keras layers that a forward pass would make again at every call."""
        stored = {call for store in find_all(self._source.module, cst.Call)
                  if dotted(store.func)[-1:] == ("get_or_create_layer",)
                  for call in find_all(store, cst.Call)}
        layers = [(call, self._names.of_tensorflow(call.func))
                  for call in find_all(self._source.module, cst.Call) if call not in stored]
        return [Problem(
            call, NotSplitError.code, f"`{'.'.join(dotted(call.func))}` makes new variables at "
            "every call of the forward pass: write `tf.compat.v1.keras.utils.get_or_create_layer("
            "name, lambda: ...)` around it, with a name for each layer")
            for call, name in layers if name.startswith("keras.layers.") and name.rpartition(
                ".")[2] not in ("DenseFeatures", "SequenceFeatures", "Input", "InputLayer")
            and name.rpartition(".")[2].lower() not in _MERGES]

    def _input_layers(self) -> list[Problem]:
        """Returns the calls of `input_layer` that `activations_of` does not stand for."""
        found = []
        for call in find_all(self._source.module, cst.Call):
            is_one = self._names.of_tensorflow(call.func) == f"feature_column.{INPUT_LAYER_NAME}"
            if is_one and not is_input_layer(call, self._callables):
                found.append(Problem(call, "TEE409", "`tf.feature_column.input_layer` by another "
                                     "name repeats the lookup: write its full name"))
            elif is_one and (odd := sorted(set(input_layer_arguments(call)) - {*INPUT_LAYER})):
                found.append(Problem(call, "TEE409", f"the arguments {odd} of `input_layer`, which "
                                     "`activations_of` does not take"))
        return found

    def _column_layers(self) -> list[Problem]:
        """Returns the layers of columns that `activations_of` does not stand for."""
        calls = find_all(self._source.module, cst.Call)
        at_once = {call.func for call in calls if column_layer(call, self._callables)
                   and takes_columns_at_once(call)}
        return [Problem(call, "TEE409", f"`{text_of(call)[:60]}` repeats the lookup: write "
                        "`Layer(columns)(features)`, which `activations_of` replaces")
                for call in calls if call not in at_once
                and self._names.of_tensorflow(call.func) in COLUMN_LAYERS]

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

    def _config(self, arguments: dict[str, cst.BaseExpression],
                call: cst.Call) -> dict[str, cst.BaseExpression]:
        """Returns the arguments of the RunConfig, whether inline or assigned to a variable."""
        name = config = arguments.get("config")
        if isinstance(config, cst.Name):
            config = self._assigned(config, call) or config
        if isinstance(config, cst.Call) and dotted(config.func)[-1:] == ("RunConfig",):
            found = {argument.keyword.value: argument.value for argument in config.args
                     if argument.keyword}  # those of Trainer are given by name only
            if isinstance(name, cst.Name) and len(self._names.uses(name.value)) > 1:
                self.report_all(_computed_twice(found, self._source.module))
            return found
        self.report(call, "TEE404", "its RunConfig is made elsewhere: give Trainer model_dir and "
                    "save_checkpoints_steps")
        return {}

    def _seed(self, seed: cst.BaseExpression | None) -> None:
        """Reports a seed of the whole program from which other numbers follow."""
        if seed is None or matchers.matches(seed, matchers.Name("None")):
            self._seeds_of_initializers()
            return
        call = random_draws.unseeded(self._source.module, self._names)
        if call is not None:
            what = (f"`{text_of(call.func)}(...)` on line {self._source.start(call).line} draws "
                    "initial values without a seed")
        elif not random_draws.makes_tables(self._source.module):
            what = "the tables, which another module makes, may draw initial values without one"
        elif not self.keeps_seeded_draws:
            what = "Keras 3 draws other values from the same seed"
        else:
            return
        self.report(seed, "TEE411", f"`tf_random_seed={text_of(seed)[:60]}` is kept, but gives "
                    f"other numbers: {what}")

    def _seeds_of_initializers(self) -> None:
        """Reports seeds of initializers, which alone repeat values in every legacy run."""
        if self.keeps_seeded_draws:
            return
        for call in random_draws.seeded(self._source.module, self._names):
            self.report(call, "TEE411", f"`{text_of(call.func)}(...)` draws the same values in "
                        "every run of the legacy program; Keras 3 draws other values from the "
                        "same seed")

    def _assigned(self, name: cst.Name, call: cst.Call) -> cst.BaseExpression | None:
        """Returns the only value of a variable, if it can be written in its place."""
        scope, nodes = self._names.scope_of(name), self._names.bound_by(name)
        lines = [line for line in find_all(self._source.module, cst.Assign)
                 if len(line.targets) == 1 and [line.targets[0].target] == nodes]
        if scope is None or not lines:
            return None
        start, end = (self._source.start(node).line for node in (lines[0], call))
        between = any(start < self._source.start(node).line < end
                      for used in model_fn_parts.names_in(lines[0].value)
                      for one in scope[used] if (node := getattr(one, "node", None)) is not None)
        return None if between else lines[0].value

    def _trainer_call(self, arguments: dict[str, cst.BaseExpression],
                      config: dict[str, cst.BaseExpression], model_fn: GivenModelFn,
                      parts: Parts) -> str:
        given = {**config, **{name: value for name, value in arguments.items()
                              if not matchers.matches(value, matchers.Name("None"))}}
        code = self._source.module.code_for_node
        of_rate, of_optimizer = parts.own_parameters
        written = [code(given["model_fn"]), "embedding_config",
                   model_fn.called("make_optimizer", of_optimizer),
                   model_fn.called("dense_learning_rate", of_rate)]
        if len(", ".join(written)) < _LINE:
            written = [", ".join(written)]
        written += [f"{name}={code(given[name])}" for name in OF_TRAINER if name in given]
        written += ["dense_slots=DENSE_SLOTS"] * self._is_keras
        return f"{self._called}(\n    " + ",\n    ".join(written) + ")"

    def _definitions(self, parts: Parts, given: GivenModelFn) -> list[str]:
        """Returns the definitions below the function of the forward pass."""
        code = self._source.module.code_for_node
        made, kind, others = self._optimizer(parts)
        self._check_free(parts, given.function)
        of_rate, of_optimizer = parts.own_parameters
        marks = "".join(f"# Manual step TEE404: {finding.message}.\n" for finding in self.findings
                        if finding.code == "TEE404")
        return [
            f"{marks}def dense_learning_rate({given.parameters(RATE_PARAMETERS, of_rate)}):\n"
            f"    \"\"\"Returns the learning rate of a step, as model_fn computed it.\"\"\"\n"
            f"{self._indented(map(self._with_step, parts.rate_statements))}"
            f"    return {code(self._with_step(parts.rate_value))}\n",
            f"def make_optimizer({given.parameters(OPTIMIZER_PARAMETERS, of_optimizer)}):\n"
            f"    \"\"\"Returns the {kind} optimizer of the dense variables.\"\"\"\n"
            f"{self._indented(parts.optimizer_statements)}    return {made}\n", *others]

    def _changing_trainer(self, parts: Parts) -> list[str]:
        """Returns the class that changes gradients, if model_fn did."""
        if not parts.gradient_value:
            return []
        body = self._indented(parts.gradient_statements)
        return [f"class {_CHANGING}({self._trainer}):\n"
                '    """Changes the gradients of dense variables as model_fn did."""\n\n'
                "    def transform_gradients(self, gradients, variables):\n"
                + "".join(f"    {line}\n" for line in body.splitlines())
                + f"        return {parts.gradient_value}\n"]

    def _indented(self, statements: Iterable[cst.CSTNode]) -> str:
        """Returns statements of a model_fn as the body of a function."""
        code = self._source.module.code_for_node
        return "".join("    " + line + "\n" for statement in statements
                       for line in _dedented(code(statement)).splitlines()
                       if line != "global_step = global_step")

    def _with_step(self, node: cst.CSTNode) -> cst.CSTNode:
        found = node.visit(_WithStep(self._names))
        assert isinstance(found, cst.CSTNode)
        return found

    def _optimizer(self, parts: Parts) -> tuple[str, str, list[str]]:
        """Returns what makes it, its kind, and what else the program needs."""
        code = self._source.module.code_for_node
        if not self._is_keras:
            return code(parts.optimizer_value), "legacy", []
        made = keras_optimizer.written(self._only_optimizer(parts), code)
        self.report(parts.optimizers[0], "TEE406", made.difference)
        return made.call, "Keras", [made.definitions]

    def _only_optimizer(self, parts: Parts) -> cst.Call:
        """Returns the optimizer.

        Raises:
            NotSplitError: there are several to choose from, or gradients are changed.
        """
        if not matchers.matches(parts.optimizer_value, matchers.Call()):
            raise NotSplitError("conditions choose its optimizer: keep one to replace it by one of "
                                "Keras", parts.optimizers[0])
        return parts.optimizers[0]

    def _check_free(self, parts: Parts, function: cst.FunctionDef) -> None:
        """Rejects an optimizer that needs variables of a function around model_fn."""
        around = [node for node in find_all(self._source.module, cst.FunctionDef)
                  if node is not function and holds(node, function)]
        local = {name for node in around for name in model_fn_parts.bound_names(node, function)}
        used = local & {name for node in (*parts.optimizers, *parts.rate_statements,
                                          *parts.optimizer_statements,
                                          *parts.gradient_statements)
                        for name in model_fn_parts.names_in(node)}
        if used:
            raise NotSplitError(f"its optimizer uses {sorted(used)} of the function around it: "
                                "give the values in `params` of TPUEstimator, or give it a "
                                "`functools.partial` of a function of the module",
                                parts.optimizers[0])


def _callables(module: cst.Module, names: Names) -> Callables:
    """Returns what is called in a module and is one name of TensorFlow wherever it stands."""
    found: dict[tuple[str, ...], set[str]] = {}
    for call in find_all(module, cst.Call):
        if words := dotted(call.func):
            found.setdefault(words, set()).add(names.of_tensorflow(call.func))
    return {words: next(iter(one)) for words, one in found.items() if len(one) == 1}


def _computed_twice(config: Mapping[str, cst.BaseExpression],
                    module: cst.Module) -> list[Problem]:
    calls = unused_configs.HarmlessCalls(module)
    return [Problem(config[name], "TEE404", f"`{name}={text_of(config[name])[:60]}` of RunConfig "
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


class _WithStep(cst.CSTTransformer):
    """Replaces the global step of the graph by the argument `global_step`."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        is_step = self._names.of_tensorflow(original_node.func) in STEP_CALLS
        return cst.Name("global_step") if is_step else updated_node
