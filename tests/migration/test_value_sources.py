# SPDX-License-Identifier: Apache-2.0
"""Captured values that came from flags are written as flags, or reported as those of one run."""

import dataclasses
import importlib.util

import pytest
from absl import flags

from tests.migration.test_config_text import captured, codes_of
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.migration.captured_file import written
from tpu_estimator_embedding.migration.value_sources import sources_of

PROGRAM = '''
FLAGS = flags.FLAGS
ROWS = 1000
OTHER = ROWS // 10
spec = EmbeddingConfigSpec(
    optimization_parameters=AdagradParameters(FLAGS.rate * 0.5),
    table_to_config_dict={"words": TableConfig(ROWS, 8, combiner="sum")})
'''


@pytest.fixture(name="values")
def flag_values():
    values = flags.FlagValues()
    flags.DEFINE_float("rate", 0.2, "", flag_values=values)
    values(["train.py"])
    return values


def with_sources(program, values):
    names = {"FLAGS": values, "ROWS": 1000, "OTHER": 100}
    return dataclasses.replace(captured(AdagradParameters(0.1)),
                               sources=tuple(sources_of(program, names)))


def test_expression_of_flags_is_written_and_followed(values, monkeypatch, tmp_path):
    monkeypatch.setattr(flags, "FLAGS", values)
    text, findings = written(with_sources(PROGRAM, values), "tf2")
    assert codes_of(findings) == ["TEE301"]
    assert "learning_rate=FLAGS.rate * 0.5)" in text
    assert "vocabulary_size=1000, dim=8" in text
    (tmp_path / "written.py").write_text(text)
    module = imported(tmp_path / "written.py", "written")
    values.rate = 3.0
    assert module.feature_config()["title"].table.optimizer.learning_rate == 1.5


@pytest.mark.parametrize("old, new, message", [
    ("FLAGS.rate * 0.5", "args.rate", "learning_rate=args.rate"),
    ("FLAGS.rate * 0.5", "scaled(FLAGS.rate)", "learning_rate=scaled(FLAGS.rate)"),
    ("FLAGS.rate * 0.5", "float(os.environ['RATE'])", "learning_rate=float(os.environ['RATE'])"),
    ("FLAGS.rate * 0.5", "0.1, clip_weight_max=FLAGS.rate", "clip_weight_max=FLAGS.rate"),
    ("FLAGS.rate * 0.5", "**given", "**=given"),
    ("TableConfig(ROWS", "TableConfig(rows_of()", "vocabulary_size=rows_of()"),
    ("spec = ", "def make(size):\n  return TableConfig(size, 8)\nspec = ", "vocabulary_size=size"),
    # Another table has the same value, which may not come from the flag.
    ("spec = ", "other = AdagradParameters(0.1)\nspec = ", "learning_rate=FLAGS.rate * 0.5"),
])
def test_other_values_are_decisions_at_the_line_of_the_program(old, new, message, values):
    program = PROGRAM.replace(old, new)
    text, findings = written(with_sources(program, values), "tf2")
    [found] = [one for one in findings if one.code == "TEE307"]
    assert message in found.message
    assert found.path == "train.py"
    assert message.partition("=")[2] in program.splitlines()[found.line - 1]
    assert "FLAGS" not in text or new.startswith(("TableConfig", "def make"))


def test_fixed_values_are_no_decisions(values):
    _, findings = written(with_sources(PROGRAM.replace("FLAGS.rate * 0.5", "0.1").replace(
        "TableConfig(ROWS", "TableConfig(OTHER"), values), "tf2")
    assert codes_of(findings) == ["TEE301"]


def test_values_do_not_matter_where_the_program_reads_its_own(values):
    program = PROGRAM.replace("FLAGS.rate * 0.5", "args.rate")
    assert codes_of(written(with_sources(program, values), "imports")[1]) == ["TEE301"]


def imported(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_flags_in_a_learning_rate_stay_flags(values, monkeypatch, tmp_path):
    monkeypatch.setattr(flags, "FLAGS", values)
    (tmp_path / "program.py").write_text(
        "import tensorflow as tf\nfrom absl import flags\nFLAGS = flags.FLAGS\n\n\n"
        "def rate(step):\n    return FLAGS.rate / (1.0 + tf.cast(step, tf.float32))\n")
    table = TableConfig(400, 8, None, "sum", learning_rate_fn=imported(
        tmp_path / "program.py", "program").rate)
    text, findings = written(captured(table=table), "tf2")
    assert codes_of(findings) == ["TEE301"]
    assert "FLAGS = flags.FLAGS" in text and "from absl import flags" in text


def made(rate):
    return lambda step: rate / (1.0 + step)


def test_variables_around_a_learning_rate_are_decisions_at_their_line():
    table = TableConfig(400, 8, None, "sum", learning_rate_fn=made(0.25))
    text, findings = written(captured(table=table), "tf2")
    [found] = [one for one in findings if one.code == "TEE307"]
    assert "`rate`" in found.message and "0.25" in found.message
    assert text.splitlines()[found.line - 1].startswith("def _make_")
