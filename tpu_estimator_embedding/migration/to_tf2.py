# SPDX-License-Identifier: Apache-2.0
"""The stages of TF2 and Keras: a program with its own training loop or model.

model_fn becomes a forward function, with unchanged text, a learning rate and an optimizer; its
TPUEstimator becomes a Trainer of `tpu_estimator_embedding.trainer`, with the same methods. Tables
are those of `mid_level.TPUEmbedding`, `mid_level.TPUEmbeddingLayer` or Keras RS. The legacy
optimizer of the dense variables stays. The program needs `embedding_config.py`, which
`--capture --capture-steps 1` writes. Unsupported code is left unchanged and reported.
"""

from __future__ import annotations

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import (
    hand_overs,
    keras_optimizer,
    model_fn_parts,
    unused_configs,
)
from tpu_estimator_embedding.migration.bindings import Bindings, dotted
from tpu_estimator_embedding.migration.forward_rewrite import ForwardRewrite, holds
from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError, Parts
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile, parse
from tpu_estimator_embedding.migration.to_imports import Rewritten

# Stage -> class of `tpu_estimator_embedding.trainer` in the place of TPUEstimator.
TRAINERS = {"tf2": "Trainer", "layers": "KerasTrainer", "keras-rs": "KerasRsTrainer"}

LEGACY, KERAS = DENSE_OPTIMIZERS = "legacy", "keras"

_ESTIMATOR = "TPUEstimator"
_IMPORTED = ("ModeKeys", "Outputs", "activations_of", "sequences_of")
_BOUND = (*_IMPORTED, "dense_learning_rate", "embedding_config", "make_optimizer")
_IMPORTS = """\
from tpu_estimator_embedding.trainer import {names}
import embedding_config
"""
_KERAS_3 = """\
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # before Keras RS is imported
"""
_ARGUMENTS = ("model_fn", "model_dir", "config", "params", "use_tpu", "train_batch_size",
              "eval_batch_size", "predict_batch_size", "batch_axis", "eval_on_tpu",
              "export_to_tpu", "export_to_cpu", "warm_start_from", "embedding_config_spec")
_FROM_CONFIG = ("model_dir", "save_checkpoints_steps", "keep_checkpoint_max")
_TRAINER = ("params", "model_dir", "train_batch_size", "eval_batch_size", "predict_batch_size",
            "save_checkpoints_steps", "keep_checkpoint_max")


def rewrite(imports: Rewritten, path: str, stage: str, dense_optimizer: str) -> Rewritten:
    """Rewrites a module that has explicit imports; one without a TPUEstimator is unchanged."""
    if b"TPUEstimator" not in imports.data:
        return imports
    source = parse(imports.data, path)
    writer = _Writer(source, stage, dense_optimizer == KERAS)
    try:
        data = writer.run()
    except NotSplitError as error:
        writer.report(error.node, error.code, str(error))
        return Rewritten(imports.data, (*imports.findings, *writer.findings))
    return Rewritten(data, (*imports.findings, *writer.findings))


class _Writer:
    def __init__(self, source: SourceFile, stage: str, is_keras: bool) -> None:
        self._trainer = TRAINERS[stage]
        self._is_keras = is_keras
        self._source = source
        self._bindings = Bindings(source)
        self.findings: list[Finding] = []

    def report(self, node: cst.CSTNode, code: str, message: str) -> None:
        start = self._bindings.positions[node].start
        self.findings.append(
            Finding(self._source.path, start.line, start.column + 1, code, message))

    def run(self) -> bytes:
        module = self._source.module
        calls = [call for call in _calls(module) if dotted(call.func)[-1:] == (_ESTIMATOR,)]
        subclasses = [node for node in matchers.findall(module, matchers.ClassDef())
                      if isinstance(node, cst.ClassDef) and any(
                          dotted(base.value)[-1:] == (_ESTIMATOR,) for base in node.bases)]
        if not calls and not subclasses:
            return self._source.data
        self._check(calls, subclasses)
        arguments = _by_name(calls[0], _ARGUMENTS)
        function = self._model_fn(arguments, calls[0])
        parts = model_fn_parts.split(function)
        self._report_hand_overs(module, parts)
        if "warm_start_from" in arguments:
            self.report(calls[0], "TEE404", "`warm_start_from`: call "
                        "Trainer.restore_estimator_checkpoint, or convert the checkpoint")
        config = self._config(arguments, calls[0])
        forward = module.code_for_node(parts.forward)
        below = self._definitions(parts, function)
        place = next(statement for statement in module.body if holds(statement, function))
        if place is function:
            replaced = {function: [forward, *below]}
            before: dict[cst.CSTNode, list[str]] = {}
        else:
            replaced, before = {function: [forward]}, {place: below}
        body = module.visit(ForwardRewrite(
            {calls[0]: self._trainer_call(arguments, config)}, replaced, before))
        self.report(function, "TEE401", f"`{function.name.value}`")
        self.report(calls[0], "TEE403", f"`TPUEstimator` is now `{self._trainer}`")
        return unused_configs.with_imports(
            unused_configs.without_unused(body), self._imports(module)).bytes

    def _imports(self, module: cst.Module) -> str:
        """Returns the imports that the program needs, besides its own."""
        names = sorted({*_IMPORTED, self._trainer})
        text = _IMPORTS.format(names=", ".join(names))
        if self._trainer == TRAINERS["keras-rs"]:
            text = _KERAS_3 + text
        return text + "import tensorflow.compat.v2 as tf_v2\n" if self._is_keras else text

    def _check(self, calls: list[cst.Call], subclasses: list[cst.ClassDef]) -> None:
        if subclasses:
            raise NotSplitError("a subclass of TPUEstimator: turn it into one of Trainer by hand",
                                subclasses[0])
        if len(calls) != 1:
            raise NotSplitError(f"{len(calls)} TPUEstimators in one module", calls[1])
        bound = {*_BOUND, self._trainer, *(keras_optimizer.BOUND if self._is_keras else ())}
        taken = sorted(bound & self._bindings.global_names)
        if taken:
            raise NotSplitError(f"the program uses the names {taken} itself; rename them", calls[0])
        stored = {call for store in _calls(self._source.module)
                  if dotted(store.func)[-1:] == ("get_or_create_layer",) for call in _calls(store)}
        layers = [call for call in _calls(self._source.module)
                  if call not in stored and ".keras.layers." in f".{'.'.join(dotted(call.func))}."
                  and dotted(call.func)[-1] not in ("DenseFeatures", "SequenceFeatures")]
        if layers:
            raise NotSplitError(
                f"`{'.'.join(dotted(layers[0].func))}` makes new variables at every call of the "
                "forward pass: write `tf.compat.v1.keras.utils.get_or_create_layer(name, lambda: "
                "...)` around it, with a name for each layer", layers[0])

    def _model_fn(self, arguments: dict[str, cst.BaseExpression],
                  call: cst.Call) -> cst.FunctionDef:
        """Returns the function that is named, or the only one that returns specs."""
        name = dotted(arguments.get("model_fn"))
        for statement in self._source.module.body:
            if isinstance(statement, cst.FunctionDef) and (statement.name.value,) == name:
                return statement
        found = [node for node in matchers.findall(self._source.module, matchers.FunctionDef())
                 if isinstance(node, cst.FunctionDef) and model_fn_parts.returns_specs(node)]
        if len(found) != 1 or "model_fn" not in arguments:
            raise NotSplitError("its model_fn is no function at the top of the module, and "
                                f"{len(found)} functions of it return a TPUEstimatorSpec", call)
        return found[0]

    def _config(self, arguments: dict[str, cst.BaseExpression],
                call: cst.Call) -> dict[str, cst.BaseExpression]:
        """Returns the arguments of the RunConfig, whether inline or assigned to a variable."""
        config = arguments.get("config")
        if isinstance(config, cst.Name):
            values = [line.value for line in matchers.findall(
                self._source.module, matchers.Assign(
                    [matchers.AssignTarget(matchers.Name(config.value))]))
                if isinstance(line, cst.Assign)]
            config = values[0] if len(values) == 1 else config
        if isinstance(config, cst.Call) and dotted(config.func)[-1:] == ("RunConfig",):
            return {argument.keyword.value: argument.value for argument in config.args
                    if argument.keyword}
        self.report(call, "TEE404", "its RunConfig is made elsewhere: give Trainer model_dir and "
                    "save_checkpoints_steps")
        return {}

    def _trainer_call(self, arguments: dict[str, cst.BaseExpression],
                      config: dict[str, cst.BaseExpression]) -> str:
        given = {**{name: config[name] for name in _FROM_CONFIG if name in config}, **arguments}
        code = self._source.module.code_for_node
        parts = [f"{code(given['model_fn'])}, embedding_config, make_optimizer, "
                 "dense_learning_rate"]
        parts += [f"{name}={code(given[name])}" for name in _TRAINER if name in given]
        parts += ["dense_slots=DENSE_SLOTS"] * self._is_keras
        return f"{self._trainer}(\n    " + ",\n    ".join(parts) + ")"

    def _definitions(self, parts: Parts, function: cst.FunctionDef) -> list[str]:
        """Returns the definitions below the function of the forward pass."""
        code = self._source.module.code_for_node
        names = [parameter.name.value for parameter in function.params.params]
        unknown = set(names) - {"features", "labels", "mode", "params", "config"}
        if unknown:
            raise NotSplitError(f"it has the parameters {sorted(unknown)}", function)
        statements = "".join("    " + line + "\n" for statement in parts.statements
                             for line in _dedented(code(statement)).splitlines())
        given = parts.optimizer.args
        rate = next((argument for argument in given if argument.keyword is not None
                     and argument.keyword.value == "learning_rate"), given[0] if given else None)
        if rate is None or rate.star:
            raise NotSplitError("its optimizer has no learning rate", function)
        made, kind, others = self._optimizer(parts, rate, function)
        self._check_free(parts, function)
        marks = "".join(f"# Hand-over TEE404: {finding.message}.\n" for finding in self.findings
                        if finding.code == "TEE404")
        return [
            f"{marks}def dense_learning_rate(global_step, params):\n"
            f"    \"\"\"Returns the learning rate of a step, as model_fn computed it.\"\"\"\n"
            f"{_with_step(statements)}    return {_with_step(code(rate.value))}\n",
            f"def make_optimizer(learning_rate, params):\n"
            f"    \"\"\"Returns the {kind} optimizer of the dense variables.\"\"\"\n"
            f"    return {made}\n", *others]

    def _optimizer(self, parts: Parts, rate: cst.Arg,
                   function: cst.FunctionDef) -> tuple[str, str, list[str]]:
        """Returns the call that makes it, its kind, and what the program needs besides."""
        code = self._source.module.code_for_node
        if self._is_keras:
            call = next(call for call in _calls(function) if call.deep_equals(parts.optimizer))
            made = keras_optimizer.written(call, code)
            self.report(call, "TEE406", made.difference)
            return made.call, "Keras", [made.definitions]
        arguments = ", ".join(
            "learning_rate" if argument is rate and argument.keyword is None else
            "learning_rate=learning_rate" if argument is rate else
            code(argument.with_changes(comma=cst.MaybeSentinel.DEFAULT))
            for argument in parts.optimizer.args)
        return f"{code(parts.optimizer.func)}({arguments})", "legacy", []

    def _check_free(self, parts: Parts, function: cst.FunctionDef) -> None:
        """Rejects an optimizer that needs variables of a function around model_fn."""
        around = [node for node in matchers.findall(self._source.module, matchers.FunctionDef())
                  if isinstance(node, cst.FunctionDef) and node is not function
                  and holds(node, function)]
        local = {name for node in around for name in model_fn_parts.bound_names(node, function)}
        used = local & {name for node in (parts.optimizer, *parts.statements)
                        for name in model_fn_parts.names_in(node)}
        if used:
            raise NotSplitError(f"its optimizer uses {sorted(used)} of the function around it",
                                function)

    def _report_hand_overs(self, module: cst.Module, parts: Parts) -> None:
        for key, call in parts.dropped:
            self.report(call, "TEE404", f"`{key}` of TPUEstimatorSpec: {hand_overs.OF_SPEC[key]}")
        for call in _calls(module):
            name = (dotted(call.func) or ("",))[-1]
            is_own = isinstance(call.func, cst.Name) and name in self._bindings.global_names
            if name in hand_overs.OF_CALL and not is_own:
                self.report(call, "TEE404", f"`{name}`: {hand_overs.OF_CALL[name]}")
            if name == "batch_normalization":
                self.report(call, "TEE405", "one replica normalizes the whole batch here; the "
                            "Estimator with num_shards above 1 normalized shares of it")


def _calls(node: cst.CSTNode) -> list[cst.Call]:
    return [call for call in matchers.findall(node, matchers.Call()) if isinstance(call, cst.Call)]


def _by_name(call: cst.Call, order: tuple[str, ...]) -> dict[str, cst.BaseExpression]:
    if any(argument.star for argument in call.args):
        raise NotSplitError("its TPUEstimator has * or ** arguments", call)
    return {argument.keyword.value if argument.keyword else order[index]: argument.value
            for index, argument in enumerate(call.args)}


def _dedented(text: str) -> str:
    lines = text.strip("\n").splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


class _WithStep(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return cst.Name("global_step") if model_fn_parts.is_step_call(
            original_node) else updated_node


def _with_step(text: str) -> str:
    """Replaces the global step of the graph by the argument `global_step`."""
    if not text.strip():
        return text
    is_expression = not text.startswith("    ")
    module = cst.parse_module(_dedented(text)).visit(_WithStep())
    code = "\n".join(line for line in module.code.rstrip("\n").splitlines()
                     if line != "global_step = global_step")
    return code if is_expression else "".join(f"    {line}\n" for line in code.splitlines())
