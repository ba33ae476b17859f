# SPDX-License-Identifier: Apache-2.0
"""Writes `embedding_config.py`: code that builds the configs of a captured plan."""

import dataclasses
import keyword
import re
from collections.abc import Iterable

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.migration.captured_config import CapturedConfig
from tpu_estimator_embedding.migration.function_text import (
    NoTextError,
    Texts,
)
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.value_sources import Source, expressions
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import TablePlan

FILE_NAME = "embedding_config.py"

# Rule of the engine -> class of the v2 vocabulary.
_CLASSES = {"Adagrad": "Adagrad", "AdagradMomentum": "AdagradMomentum", "Adam": "Adam",
            "FTRL": "FTRL", "SGD": "SGD"}

# Field of a rule -> argument of the class, where they differ.
_ARGUMENTS = {
    ("Adagrad", "initial_accumulator"): "initial_accumulator_value",
    ("FTRL", "initial_accumulator"): "initial_accumulator_value",
    ("Adam", "beta1"): "beta_1",
    ("Adam", "beta2"): "beta_2",
}

_HEADER = '''\
"""The embeddings of {program}, as it built them.

Written by `tpu-estimator-embedding migrate --capture`, which checked that it {checked}.
"""
'''


class ConfigWriter:
    """Writes the module for one captured program.

    Attributes:
        imports: variable -> import of the vocabulary of a stage.
        checked: what the header says of the module.
        findings: what could not be written.
        left: the differences of the plan that it makes, as `plan_comparison` calls them.
    """

    imports = {"mid_level": "from tpu_estimator_embedding import mid_level"}
    checked = "builds an equal\nplan"

    def __init__(self, captured: CapturedConfig) -> None:
        self._captured = captured
        self._texts = Texts(imports=dict(self.imports))
        self._sources = expressions(captured.sources)
        self._used: set[object] = set()  # meanings of sources that were written
        self._anchors: list[str] = []  # what stands in the line of each finding
        self._tables = {table.name: _identifier(table.name) for table in captured.plan.tables}
        self.findings: list[Finding] = []
        self.left: set[str] = set()

    def write(self) -> str:
        """Returns the text of the module."""
        functions, constants = self.functions(), self._constants()
        imports = "\n".join(_sorted_imports(self._texts.imports.values()))
        blocks = [constants.rstrip("\n"), *self._texts.definitions.values(), *functions]
        checked = self.checked + ", except for what is left to write (TEE302)" * bool(self.left)
        header = _HEADER.format(program=self._captured.program, checked=checked)
        text = f"{header}\n{imports}\n\n" + "\n\n\n".join(block for block in blocks if block)
        for function, name, value in self._texts.enclosed:
            self._report("TEE307", f"`{name}` of `{function}` is {value!r}",
                         f"def _make_{function}")
        self.findings = [dataclasses.replace(finding, line=_line_of(text, anchor))
                         for finding, anchor in zip(self.findings, self._anchors, strict=True)]
        return text

    def values_of_one_run(self) -> list[Finding]:
        """Returns findings, at lines of the program, about values that are fixed in the text."""
        return [Finding(source.path, source.line, 0, "TEE307",
                        f"`{source.argument}={source.text}` is no longer followed: "
                        f"{self._reason(source)}")
                for source in self._captured.sources
                if not source.is_fixed and source.meaning not in self._used]

    def _reason(self, source: Source) -> str:
        """Returns why the module has a value instead of an expression."""
        if source.value is None:
            return "only the program can compute it"
        if isinstance(source.value, (int, float)) and (
                source.argument, source.value) not in self._sources:
            return "another expression may give the same value, or one that is not known"
        return f"{FILE_NAME} cannot have this expression for it"

    def _value(self, argument: str, value: object) -> str:
        """Returns the expression that gave an argument its value in every run, or the value."""
        source = self._sources.get((argument, value))
        if source is None or any(
                name in self._tables.values() or name in self._texts.definitions
                or self._texts.imports.get(name, line) != line for name, line in source.imports):
            return repr(value)
        self._used.add(source.meaning)
        self._texts.imports.update(source.imports)
        for name in source.flags:
            self._texts.flags(name)
        return source.text

    def functions(self) -> list[str]:
        """Returns the blocks of the module below its constants."""
        plan = self._captured.plan
        tables = [self._table(table) for table in plan.tables]
        features = "".join(
            f"        {feature.name!r}: mid_level.FeatureConfig({self._tables[feature.table]}"
            + (f", max_sequence_length="
               f"{self._value('max_sequence_length', feature.max_sequence_length)}"
               if feature.max_sequence_length else "") + "),\n"
            for feature in plan.features)
        return ['def feature_config(global_step=None):\n'
                '    """Returns feature name -> FeatureConfig.\n\n'
                '    Args:\n'
                '        global_step: the variable that learning rates are functions of.\n'
                '    """\n' + "".join(tables) + f"    return {{\n{features}    }}\n"]

    def _constants(self) -> str:
        captured, plan = self._captured, self._captured.plan
        weights = {feature.name: feature.weight_key for feature in plan.features
                   if feature.weight_key}
        one_id = [feature.name for feature in plan.features
                  if plan.table_by_name[feature.table].combiner is None]
        lines = [f"BATCH_SIZE = {captured.batch_size!r}  # of training, over all replicas",
                 f"PIPELINED = {plan.pipelined!r}  # whether lookups miss the update before",
                 f"WEIGHT_KEYS = {weights!r}  # feature -> key of its weights",
                 "# Features with one id for each sample. In dense ids of the others 0 is padding.",
                 f"ONE_ID_FEATURES = {one_id!r}"]
        if captured.table_variables is not None:
            names = "".join(f"    {key!r}: {value!r},\n"
                            for key, value in captured.table_variables.items())
            lines.append("# Table, or table/slot -> its name in checkpoints of the Estimator.\n"
                         f"TABLE_VARIABLES = {{\n{names}}}")
        else:
            self._report("TEE303", "run again without `--capture-steps 0` to get TABLE_VARIABLES"
                         if captured.failure is None else
                         f"the program fails before they are known: {captured.failure}")
        multiplier = plan.gradient_multiplier_fn
        if multiplier is not None:
            lines.append("# Function of the step that scales every gradient of the tables.\n"
                         f"GRADIENT_MULTIPLIER = "
                         f"{self._function(multiplier, 'multiplier', 'gradient multiplier')}")
        own = {table.name: table.multiplier for table in plan.tables if table.multiplier}
        if own:
            texts = {name: self._function(schedule, "multiplier",
                                          f"gradient multiplier of table {name!r}")
                     for name, schedule in own.items()}
            lines.append("# Table -> its own gradient multiplier, instead of that of all.\n"
                         "TABLE_MULTIPLIERS = {\n" + "".join(
                             f"    {name!r}: {text},\n" for name, text in texts.items()) + "}")
        return self._after_definitions(lines)

    def _after_definitions(self, lines: list[str]) -> str:
        """Constants that name functions stand below them."""
        late = [line for line in lines if "GRADIENT_MULTIPLIER" in line]
        if late:
            self._texts.definitions["GRADIENT_MULTIPLIER"] = late[0]
        return "\n".join(line for line in lines if line not in late)

    def _table(self, table: TablePlan) -> str:
        combiner = table.combiner
        if combiner is None:
            combiner = "sum"  # of exactly one id, which is the row itself
            self._report("TEE306", f"table {table.name!r} has combiner None, one id for each "
                         "sample or position; TF2 has no such combiner, and 'sum' gives the same "
                         "result",
                         f"name={table.name!r})")
        try:
            initializer = self._texts.expression(table.initializer, "initializer")
        except NoTextError as error:
            what = f"initializer of table {table.name!r}"
            self._leave(what, f"the {what}: {error}; the default initializer is used here",
                        f"name={table.name!r})")
            initializer = "None"
        rows = self._value("vocabulary_size", table.vocabulary_size)
        lines = [f"vocabulary_size={rows}, dim={self._value('dimension', table.dimension)},",
                 f"initializer={initializer},",
                 f"optimizer={self._optimizer(table)},",
                 f"combiner={combiner!r}, name={table.name!r})"]
        body = "\n        ".join(lines)
        return f"    {self._tables[table.name]} = mid_level.TableConfig(\n        {body}\n"

    def _optimizer(self, table: TablePlan) -> str:
        optimizer = table.training_optimizer
        rule = type(optimizer.rule).__name__
        if rule not in _CLASSES:
            self._leave(f"optimizer of table {table.name!r}", f"table {table.name!r} is trained "
                        f"with {rule}, which TF2's TPUEmbedding does not have; choose another one, "
                        "or stay at stage 1", f"name={table.name!r})")
            return "None"
        defaults = {field.name: field.default for field in
                    dataclasses.fields(getattr(mid_level, _CLASSES[rule]))}
        given = {field.name: getattr(optimizer.rule, field.name)
                 for field in dataclasses.fields(optimizer.rule)}
        parts = [f"learning_rate={self._rate(table.name, optimizer)}"]
        for argument, value in {**given, **_shared_arguments(optimizer)}.items():
            name, text = _ARGUMENTS.get((rule, argument), argument), self._value(argument, value)
            if text != repr(value) or value != defaults[name] or name == "epsilon":
                parts.append(f"{name}={text}")
        return f"mid_level.{_CLASSES[rule]}({', '.join(parts)})"

    def _rate(self, table: str, optimizer: RowOptimizer) -> str:
        if not callable(optimizer.learning_rate):
            return self._value("learning_rate", optimizer.learning_rate)
        name = self._function(optimizer.learning_rate, f"learning_rate_of_{self._tables[table]}",
                              f"learning rate of table {table!r}")
        return f"lambda: {name}(global_step)"

    def _function(self, function: object, name: str, what: str) -> str:
        try:
            return self._texts.expression(function, name)
        except NoTextError as error:
            self._leave(what, f"`{name}`: {error}; write it in {FILE_NAME}",
                        f"def {name}(step):")
            self._texts.definitions[name] = (
                f"def {name}(step):\n    raise NotImplementedError({str(error)!r})")
            return name

    def _leave(self, what: str, message: str, anchor: str = "") -> None:
        """Reports what is left to be written, and that the plan therefore differs in it."""
        self.left.add(what)
        self._report("TEE302", message, anchor)

    def _report(self, code: str, message: str, anchor: str = "") -> None:
        """Adds a finding about the line that has a text; the whole file by default."""
        self._anchors.append(anchor)
        self.findings.append(Finding("", 0, 0, code, message))


def _line_of(text: str, anchor: str) -> int:
    """Returns the first line that has an anchor, from 1; 0 if there is none."""
    lines = text.splitlines() if anchor else []
    return next((index for index, line in enumerate(lines, 1) if anchor in line), 0)


def _shared_arguments(optimizer: RowOptimizer) -> dict[str, object]:
    low, high = optimizer.weight_limits
    return {
        "use_gradient_accumulation": optimizer.use_gradient_accumulation,
        "clip_weight_min": low, "clip_weight_max": high,
        "clipvalue": _clipvalue(optimizer.gradient_limits),
        "weight_decay_factor": optimizer.weight_decay_factor or None,
        "multiply_weight_decay_factor_by_learning_rate":
            optimizer.multiply_weight_decay_by_learning_rate or None}


def _clipvalue(limits: Limits) -> float | Limits | None:
    low, high = limits
    if limits == (None, None):
        return None
    return high if low is not None and high is not None and low == -high else limits


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"table_{text}" if not text.isidentifier() or keyword.iskeyword(text) or (
        text in ("mid_level", "global_step", "tf", "np")) else text


def _sorted_imports(imports: Iterable[str]) -> list[str]:
    """Sorts imports: the standard library, this package, which chooses Keras 2, the others."""
    def rank(line: str) -> tuple[int, str]:
        module = line.split()[1].split(".")[0]
        if module in ("functools", "math", "os"):
            return 0, line
        return (1 if module == "tpu_estimator_embedding" else 2), line
    return sorted(imports, key=rank)
