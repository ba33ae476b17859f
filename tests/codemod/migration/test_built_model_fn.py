# SPDX-License-Identifier: Apache-2.0
"""A function that makes a model_fn becomes functools.partial, where nothing else changes."""

import ast
import textwrap

import pytest

from tests.codemod.migration.test_to_tf2 import PROGRAM, migrated
from tpu_estimator_embedding.migration import programs
from tpu_estimator_embedding.migration.rewrite import rewrite, rewrite_files

MODEL_FN = PROGRAM[PROGRAM.index("def model_fn"):PROGRAM.index("\n\ndef main")]
RATED = MODEL_FN.replace("exponential_decay(0.1", "exponential_decay(base")
BUILDER = (f'def builder(base, units=4):\n    """Returns a model_fn."""\n'
           f'{textwrap.indent(RATED, "    ")}    return model_fn\n')
BUILT = PROGRAM.replace(MODEL_FN, BUILDER)


def program(call, *replacements):
    text = BUILT.replace("        model_fn, config", f"        {call}, config")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("call, written", [
    ("builder(0.5)", "functools.partial(model_fn, base=0.5)"),
    ("builder(0.5, units=3)", "functools.partial(model_fn, base=0.5, units=3)"),
    ("builder(\n            units=3, base=0.5)",
     "functools.partial( model_fn, units=3, base=0.5)")])
def test_builder_becomes_a_partial(call, written):
    text, findings = migrated(program(call))
    assert {one.code for one in findings} == {"TEE401", "TEE403"}
    assert written in " ".join(text.split())
    names = [one.name for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    assert "builder" not in names and "model_fn" in names
    assert "def dense_learning_rate(global_step, params, *, base):" in text
    assert text.count("import functools") == 1


def test_builder_whose_function_has_the_name_of_a_variable():
    text, findings = migrated(program("model_fn", (
        "    estimator = tf", "    model_fn = builder(0.5)\n    estimator = tf")))
    assert {one.code for one in findings} == {"TEE401", "TEE403"}
    assert "model_fn = functools.partial(own_model_fn, base=0.5)" in text
    assert "def own_model_fn(features, labels, mode, params, base, units=4):" in text
    assert "functools.partial(dense_learning_rate, base=model_fn.keywords[\"base\"])" in text


@pytest.mark.parametrize("call, old, new", [
    ("builder(**{'base': 0.5})", "", ""),
    ("builder(0.5)", "    estimator = tf", "    builder(0.1)\n    estimator = tf"),
    ("builder(0.5)", "    estimator = tf", "    keep(builder)\n    estimator = tf"),
    ("builder(0.5)", "def builder(base,", "def builder(base, *others,"),
    ("builder(0.5, units=(one for one in (1, 2)))", "", ""),
    ("builder(0.5, units=iter((1, 2)))", "", ""),
    ("builder(0.5)", "        # The rate", "        print(model_fn)\n        # The rate"),
    ("builder(0.5)", "def builder(base,", "functools = None\n\n\ndef builder(base,"),
    ("builder(0.5)", "def builder(", "@registered\ndef builder("),
    ("builder(0.5)", "    return model_fn\n", "    print(base)\n    return model_fn\n"),
    ("builder(0.5)", "        # The rate", "        units = 3\n        # The rate")])
def test_builder_of_another_shape_stays(call, old, new):
    text = program(call, (old, new)) if old else program(call)
    result = rewrite(text, to="tf2")
    assert "TEE402" in {one.code for one in result.findings}
    assert result.data == rewrite(text).data


def test_builder_that_another_module_may_read_stays(tmp_path):
    (tmp_path / "task.py").write_text(program("builder(0.5)"))
    (tmp_path / "serve.py").write_text("from task import builder\n")
    files = rewrite_files(programs.find([tmp_path]), to="tf2")
    assert "TEE402" in {one.code for file in files for one in file.findings}


def test_argument_of_the_model_fn_outlives_a_call():
    text = PROGRAM.replace(
        "params):\n    net", "params, kept):\n    kept.append(1)\n    net").replace(
            "        model_fn, config", "        functools.partial(model_fn, kept=KEPT), config")
    found = rewrite("import functools\n\nKEPT = []\n" + text, to="tf2").findings
    assert "TEE409" in {one.code for one in found}


@pytest.mark.parametrize("value", ["(one for one in (1, 2))", "iter((1, 2))"])
def test_argument_of_the_model_fn_that_can_be_read_once_is_refused(value):
    text = PROGRAM.replace("params):\n    net", "params, kept):\n    net").replace(
        "    estimator = tf", f"    fn = functools.partial(model_fn, kept={value})\n"
        "    estimator = tf").replace("        model_fn, config", "        fn, config")
    found = rewrite("import functools\n\n" + text, to="tf2").findings
    [about] = [one.message for one in found if one.code == "TEE402"]
    assert about.endswith(f"`kept={value}` of `functools.partial` can be read once, and the "
                          "forward pass is called more often: pass a list")
