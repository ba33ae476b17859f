# SPDX-License-Identifier: Apache-2.0
"""The stage of Keras 3: a model with a DistributedEmbedding, without this package.

model_fn becomes functions of Keras 3, and its TPUEstimator a `KerasTraining` of the module
`keras_training`, which is written beside the program. What the functions do not have a
counterpart for is reported, and the program is left unchanged.
"""

from __future__ import annotations

import ast
import importlib.resources
from collections.abc import Mapping
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration import (
    keras3_functions,
    keras_optimizer,
    model_fn_parts,
    to_tf2,
)
from tpu_estimator_embedding.migration.assignments import parameters
from tpu_estimator_embedding.migration.constructor_arguments import OF_TRAINER
from tpu_estimator_embedding.migration.direct_names import EXPORT, OLD_EXPORT
from tpu_estimator_embedding.migration.effects import SPEC, Problem
from tpu_estimator_embedding.migration.estimator_uses import METHODS
from tpu_estimator_embedding.migration.model_fn_given import GivenModelFn
from tpu_estimator_embedding.migration.model_fn_parts import (
    NotSplitError,
    Parts,
    arguments_of_spec,
)
from tpu_estimator_embedding.migration.node_search import find_all, last_word, shown
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.to_tf2 import EstimatorCall

STAGE = "keras3"
RUNTIME = "keras_training.py"
_TRAINER = "KerasTraining"
_EXPORT = (f"{_TRAINER} exports nothing; its attribute `model` is the keras.Model, which "
           "keras.export.ExportArchive exports")
_ARGUMENTS = ("model_dir", "params", "train_batch_size", "eval_batch_size", "predict_batch_size",
              "save_checkpoints_steps", "keep_checkpoint_max", "tf_random_seed")
_OPTIMIZERS = ("GradientDescentOptimizer", "AdagradOptimizer", "AdamOptimizer")
# Method of KerasTraining -> its arguments other than input_fn, given by name.
_METHODS = {"train": ("steps", "max_steps"), "evaluate": ("steps",), "predict": ()}
_REPORTED = ("hooks", "saving_listeners", "input_fn")  # those of the first two by all stages
_PACKAGE = "tpu_estimator_embedding"


class Keras3Writer(to_tf2.Writer):
    """Writes a program of this stage."""

    keeps_seeded_draws = False

    def _finished(self, place: cst.CSTNode, *args: Any, **options: Any) -> bytes:
        text = super()._finished(place, *args, **options)
        if _PACKAGE.encode() in text:
            raise NotSplitError(f"it would still use this package: {_first_use(text.decode())}",
                                self._source.module.body[0])
        return text

    def _layers(self) -> list[Problem]:
        return []  # Keras layers have no counterpart in the functions anyway

    def _bound(self) -> set[str]:
        return {*keras3_functions.WRITTEN, "keras", "keras_training", "embedding_config"}

    def _imports_of_model(self) -> str:
        return "import keras\n" + self._beside("keras_training")

    def _imports(self, found: EstimatorCall) -> str:
        if not found.model_fn.module:
            return self._imports_of_model() + self._beside("embedding_config")
        if not found.model_fn.prefix:  # the functions are others than those that it imports
            raise NotSplitError("its model_fn is imported by its name: import its module",
                                found.call)
        return self._beside("keras_training") + self._beside("embedding_config")

    def _forward(self, parts: Parts, function: cst.FunctionDef) -> str:
        if function not in self._source.module.body:
            raise NotSplitError("a model_fn inside another function has no counterpart: make it "
                                "a function of the module", function)
        problems = self._problems_of_optimizer(parts)
        own = [name for name in parameters(function) if name not in model_fn_parts.PARAMETERS]
        if own:
            raise NotSplitError.of([Problem(
                function, NotSplitError.code, f"the model_fn has its own parameters {own}: put "
                "their values into params"), *problems])
        text, found = keras3_functions.write(function, self._names)
        if found or problems:
            raise NotSplitError.of([*found, *problems])
        return text

    def _problems_of_optimizer(self, parts: Parts) -> list[Problem]:
        try:
            optimizer = self._only_optimizer(parts)
        except NotSplitError as error:
            return list(error.problems)
        found = []
        own = {*parts.rate.own_parameters, *parts.optimizer.own_parameters}
        if own:
            found.append(f"its optimizer uses {sorted(own)}, its own "
                         "parameters: put their values into params")
        if parts.gradients:
            found.append("it changes gradients, which has no counterpart here: delete that, or "
                         "pass `clipnorm` or `global_clipnorm` to the optimizer in what is written")
        name = optimizer.func.attr.value if isinstance(optimizer.func, cst.Attribute) else ""
        if name not in _OPTIMIZERS:
            found.append(f"`{name}` has no counterpart known in full: those that have one are "
                         f"{', '.join(_OPTIMIZERS)}")
        made = [*parts.rate.statements, *parts.optimizer.statements, parts.rate.value]
        if any(self._names.of_tensorflow(call.func)
               for node in made for call in find_all(node, cst.Call)):
            found.append("a learning rate that depends on the step has no counterpart here")
        return [Problem(optimizer, NotSplitError.code, message) for message in found]

    def _definitions(self, parts: Parts, given: GivenModelFn) -> list[str]:
        code, [optimizer] = self._source.module.code_for_node, parts.optimizers
        made = keras_optimizer.written(optimizer, code)
        self.report(optimizer, "TEE406", made.difference.replace("tf.keras", "keras"))
        self._check_free(parts, given.function)
        statements = [*parts.rate.statements, *parts.optimizer.statements]
        return ["def make_optimizer(params):\n"
                '    """Returns the optimizer of the dense variables."""\n'
                f"{self._indented(statements)}    learning_rate = {code(parts.rate.value)}\n"
                f"    return {made.call.removeprefix('tf_v2.')}\n"]

    def _other_uses(self, call: EstimatorCall) -> list[Problem]:
        found = super()._other_uses(call)
        for one in find_all(self._source.module, cst.Call):
            if last_word(one.func) == SPEC and "export_outputs" in arguments_of_spec(one):
                found.append(Problem(one, "TEE404", f"`export_outputs` of {SPEC}: {_EXPORT}"))
            if not isinstance(one.func, cst.Attribute) or self._names.paths(one.func):
                continue
            name = one.func.attr.value
            if name in (EXPORT, OLD_EXPORT):
                found.append(Problem(one, "TEE404", f"`{name}`: {_EXPORT}"))
            elif name in METHODS and name not in _METHODS:
                found.append(Problem(one, "TEE404", f"`{name}`: {_TRAINER} has no such "
                                            "method; its attribute `model` is the keras.Model"))
            elif name in _METHODS:
                odd = [argument for argument in one.args[1:] if argument.keyword is None
                       or argument.keyword.value not in (*_METHODS[name], *_REPORTED)]
                arguments = ", ".join(("input_fn", *_METHODS[name]))
                found += [Problem(argument, "TEE404", f"`{shown(argument)}`: `{name}` of "
                                  f"{_TRAINER} has no such argument, only {arguments}")
                          for argument in odd]
        return found

    def _trainer_call(self, found: EstimatorCall,
                      config: Mapping[str, cst.BaseExpression]) -> str:
        given = {**config, **found.given_arguments()}
        code = self._source.module.code_for_node
        for name in OF_TRAINER:
            if name in given and name not in _ARGUMENTS:
                self.report(given[name], "TEE408", f"`{name}`: {_TRAINER} has no such argument")
        functions = [f"{found.model_fn.prefix}{name}" for name in keras3_functions.WRITTEN]
        written = [f"({', '.join(functions)})", "embedding_config"]
        written += [f"{name}={code(given[name])}" for name in _ARGUMENTS if name in given]
        return f"keras_training.{_TRAINER}(\n    " + ",\n    ".join(written) + ")"


def _first_use(text: str) -> str:
    """Returns the first line of a program that uses this package, and what it uses."""
    lines, nodes = text.splitlines(), list(ast.walk(ast.parse(text)))
    imported = {(alias.asname or alias.name).partition(".")[0] for node in nodes
                if isinstance(node, (ast.Import, ast.ImportFrom))
                and _PACKAGE in ast.unparse(node) for alias in node.names}
    uses = [(node.lineno, node.id) for node in nodes
            if isinstance(node, ast.Name) and node.id in imported]
    if uses:
        number, name = min(uses)
        return f"`{name}` in `{lines[number - 1].strip()[:80]}`"
    line = next(line for line in lines if _PACKAGE in line)
    return f"`{line.strip()[:80]}`"


def writer(source: SourceFile, **options: Any) -> Keras3Writer:
    """Returns the writer of a module; the options are those of a `to_tf2.Writer`."""
    return Keras3Writer(source, to_tf2.LEGACY, _TRAINER, **options)


def runtime() -> bytes:
    """Returns the text of the module that every program of this stage imports."""
    return importlib.resources.files(f"{_PACKAGE}.migration").joinpath(
        "emitted", RUNTIME).read_bytes()
