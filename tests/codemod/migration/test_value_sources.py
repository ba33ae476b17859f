# SPDX-License-Identifier: Apache-2.0
"""Captured values that came from flags are written as flags, or reported as those of one run."""

import dataclasses
import importlib.util
import re
import textwrap
import types

import pytest
from absl import flags

from tests.codemod.migration.test_config_text import captured, codes_of
from tests.subprocesses import run_python
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.migration.captured_file import written
from tpu_estimator_embedding.migration.value_sources import ProgramModule, sources_of

PROGRAM = '''
import settings
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


def with_sources(program, values, parameters=None):
    names = {"FLAGS": values, "ROWS": 1000, "OTHER": 100,
             "settings": types.SimpleNamespace(LIMITS=[values.rate])}
    return dataclasses.replace(captured(parameters or AdagradParameters(0.1)),
                               sources=tuple(sources_of([
                                   ProgramModule("train.py", "__main__", program, names),
                                   ProgramModule("settings.py", "settings", "", {"LIMITS": []})])))


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


ADAM = "AdamParameters(0.1, {}, clip_weight_max=FLAGS.rate * 2)"


@pytest.mark.parametrize("given, text", [
    ("beta1=FLAGS.rate, beta2=0.5 + FLAGS.rate", "beta_1=FLAGS.rate, beta_2=0.5 + FLAGS.rate"),
    ("FLAGS.rate, epsilon=FLAGS.rate / 2", "beta_1=FLAGS.rate, epsilon=FLAGS.rate / 2"),
    ("beta2=0.799 + FLAGS.rate", "beta_2=0.799 + FLAGS.rate"),  # which is the default
])
def test_settings_of_parameters_are_followed(given, text, values, monkeypatch):
    monkeypatch.setattr(flags, "FLAGS", values)
    parameters = eval(ADAM.format(given), {"FLAGS": values, "AdamParameters": AdamParameters})
    program = PROGRAM.replace("AdagradParameters(FLAGS.rate * 0.5)", ADAM.format(given))
    found, findings = written(with_sources(program, values, parameters), "tf2")
    assert codes_of(findings) == ["TEE301"], findings
    assert text in found and "clip_weight_max=FLAGS.rate * 2" in found


@pytest.mark.parametrize("other", ["AdamParameters(0.1)", "AdamParameters(**given)"])
def test_default_of_other_parameters_may_be_the_value(other, values):
    program = PROGRAM.replace("AdagradParameters(FLAGS.rate * 0.5)",
                              "AdamParameters(0.1, beta1=FLAGS.rate * 4.5)") + f"\nother = {other}"
    text, findings = written(with_sources(program, values, AdamParameters(0.1)), "tf2")
    messages = [one.message for one in findings if one.code == "TEE307"]
    assert "FLAGS" not in text and messages[0] == (
        "`beta1=FLAGS.rate * 4.5` is no longer followed: another expression may give the same "
        "value, or one that is not known")


@pytest.mark.parametrize("old, new, message", [
    ("FLAGS.rate * 0.5", "args.rate", "learning_rate=args.rate"),
    ("FLAGS.rate * 0.5", "scaled(FLAGS.rate)", "learning_rate=scaled(FLAGS.rate)"),
    ("FLAGS.rate * 0.5", "float(os.environ['RATE'])", "learning_rate=float(os.environ['RATE'])"),
    ("FLAGS.rate * 0.5", "0.1, clip_gradient_max=FLAGS.rate", "clip_gradient_max=FLAGS.rate"),
    ("FLAGS.rate * 0.5", "**given", "**=given"),
    ("TableConfig(ROWS", "TableConfig(rows_of()", "vocabulary_size=rows_of()"),
    ("spec = ", "def make(size):\n  return TableConfig(size, 8)\nspec = ", "vocabulary_size=size"),
    ("FLAGS.rate * 0.5", "0.1, limits=settings.LIMITS", "limits=settings.LIMITS"),  # a list
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


@pytest.mark.parametrize("argument", [
    "exit(3)", "read()", "int(read())", "len(read())", "[read() for _ in range(1)][0]",
    "next(DATA)", "sum(DATA)", "[one for one in DATA]", "(*DATA,)", "sum(one for one in DATA)",
    "{one: one for one in DATA}", "int(*DATA)", "(ROWS := 5)", "__import__('os').remove(PATH)",
    "(lambda: read())()", "max(DATA)", "f'{read()}'", "min(1, 2)"])
@pytest.mark.parametrize("program", [
    "def never_run():\n  return TableConfig({}, 8)",
    "def min(*args):\n  return read()\nTableConfig({}, 8)"])
def test_nothing_is_called_or_read_to_know_a_value(argument, program):
    data, calls = iter([1, 2, 3]), []
    names = {"DATA": data, "read": lambda: calls.append(1), "ROWS": 1, "PATH": "none",
             "min": lambda *args: calls.append(1)}
    sources_of([ProgramModule("train.py", "__main__", program.format(argument), names)])
    assert not calls and list(data) == [1, 2, 3] and names["ROWS"] == 1


@pytest.mark.parametrize("argument, value", [
    ("int(1e3) + 1", 1001), ("max(ROWS, 7)", 7), ("len(WORDS)", 2),
    ("ROWS if ROWS > 2 else -ROWS", -1)])
def test_numbers_are_known_without_calls_of_the_program(argument, value):
    [source, _] = sources_of([ProgramModule(
        "train.py", "__main__", f"WORDS = ['a', 'b']\nTableConfig({argument}, 8)",
        {"ROWS": 1, "WORDS": ["a", "b"]})])
    assert source.value == value


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


def fixed(main, **others):
    """Whether the number of rows of each TableConfig in modules is the same in every run."""
    modules = []
    for name, text in {**others, "__main__": main}.items():
        names = dict.fromkeys(re.findall("[A-Z]{3,}", text), 40)
        modules.append(ProgramModule(f"{name}.py", name, text, names))
    found = [one for one in sources_of(modules) if one.argument == "vocabulary_size"]
    return [one.is_fixed for one in found], [dict(one.imports) for one in found]


FROM = "from settings import ROWS\nTableConfig(ROWS, 8)"
DOTTED = "import settings\nTableConfig(settings.ROWS, 8)"


@pytest.mark.parametrize("main, settings, is_fixed", [
    (FROM, "ROWS = 40", True),
    (DOTTED, "BASE = 20\nROWS = BASE * 2", True),
    ("from settings import *\nTableConfig(ROWS, 8)", "ROWS = 40", True),
    (FROM, "ROWS = int(os.environ['ROWS'])", False),
    (DOTTED, "ROWS = args.rows", False),
    ("from settings import *\nTableConfig(ROWS, 8)", "ROWS = args.rows", False),
    (DOTTED + "\nsettings.ROWS = args.rows", "ROWS = 40", False),
    (DOTTED + "\nsetattr(settings, name, args.rows)", "ROWS = 40", False),
    (DOTTED + "\nvars(settings).update(given)", "ROWS = 40", False),
    (DOTTED + "\nsettings.__dict__[name] = args.rows", "ROWS = 40", False),
    (FROM, "ROWS = 40\nexec(open('overrides.py').read())", False),
    ("import settings\nsettings.SIZES['a'] = args.rows\nTableConfig(settings.SIZES['a'], 8)",
     "SIZES = {'a': 40}", False),
    ("SIZES = {'a': 40}\nSIZES.update(given)\nTableConfig(SIZES['a'], 8)", "", False),
])
def test_values_of_other_modules_are_fixed_where_nothing_can_change_them(
        main, settings, is_fixed):
    assert fixed(main, settings=settings)[0] == [is_fixed]


@pytest.mark.parametrize("main, imports", [
    (FROM, {"ROWS": "from settings import ROWS"}),
    (DOTTED, {"settings": "import settings"}),
    ("import settings as s\nTableConfig(s.ROWS * 2, 8)", {"s": "import settings as s"}),
    ("from settings import *\nTableConfig(ROWS, 8)", {}),
    ("from settings import ROWS\nTableConfig(int(ROWS), 8)", {}),
    (f"{FROM}\nROWS = 7", {}),
])
def test_variables_of_other_modules_are_imported_as_the_program_does(main, imports):
    assert fixed(main, settings="ROWS = args.rows") == ([False], [imports])


def test_module_that_will_import_the_configuration_is_not_imported_by_it():
    others = {"settings": "import model\nROWS = args.rows", "model": "TPUEstimator(model_fn)"}
    assert fixed(FROM, **others) == ([False], [{}])


MODULES = {
    "settings.py": """
        import os
        from absl import flags
        flags.DEFINE_float("rate", 0.2, "")
        ROWS = int(os.environ.get("ROWS", "40"))
        DIM = 8
        """,
    "tables.py": """
        import os
        import settings
        from absl import flags
        from settings import DIM
        from tpu_estimator_embedding import AdagradParameters, FeatureConfig, TableConfig
        FLAGS = flags.FLAGS

        def spec():
            return ({"title": FeatureConfig("words"), "body": FeatureConfig(
                        "words", max_sequence_length=int(os.environ.get("LENGTH", "5")))},
                    {"words": TableConfig(settings.ROWS, DIM, combiner="sum")},
                    AdagradParameters(FLAGS.rate * 0.5))
        """,
    "train.py": """
        import sys
        import tables
        from absl import flags
        from tpu_estimator_embedding import EmbeddingConfigSpec, TPUEstimator, tf_estimator
        flags.FLAGS(sys.argv)
        features, configs, parameters = tables.spec()
        TPUEstimator(
            lambda features, labels, mode, params: None, train_batch_size=8,
            config=tf_estimator.tpu.RunConfig(model_dir="model"),
            embedding_config_spec=EmbeddingConfigSpec(
                feature_to_config_dict=features, table_to_config_dict=configs,
                optimization_parameters=parameters))
        """,
}


@pytest.mark.long
def test_flags_and_variables_of_imported_modules_are_followed_or_reported(tmp_path):
    for name, text in MODULES.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    done = run_python("""
        import json, sys
        from tpu_estimator_embedding.migration.captured_config import capture
        from tpu_estimator_embedding.migration.captured_file import written
        text, findings = written(capture("train.py", ["--rate=0.4"]), "tf2")
        open("embedding_config.py", "w").write(text)
        print(json.dumps([[one.code, one.path, one.line] for one in findings]), file=sys.stderr)
        """, cwd=tmp_path)
    line = 1 + [index for index, text in enumerate(textwrap.dedent(
        MODULES["tables.py"]).splitlines()) if "LENGTH" in text][0]
    assert f'["TEE307", "tables.py", {line}]' in done.stderr, done.stderr
    assert done.stderr.count("TEE307") == 1 and "TEE305" not in done.stderr
    done = run_python("""
        import embedding_config, settings
        from absl import flags
        flags.FLAGS(["train.py", "--rate=3"])
        table = embedding_config.feature_config()["title"].table
        print(table.vocabulary_size, table.dim, table.optimizer.learning_rate)
        """, cwd=tmp_path, ROWS="70")
    assert done.stdout.split()[-3:] == ["70", "8", "1.5"], done.stderr


@pytest.mark.long
@pytest.mark.parametrize("is_installed", [True, False])
def test_a_distribution_below_the_program_is_not_followed(is_installed, tmp_path):
    for name, text in MODULES.items():
        path = tmp_path / ("train.py" if name == "train.py" else f"extra/{name}")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    for name, record in {"whole": "tables.py,,\nsettings.py,,\n", "other": "other.py,,\n"}.items():
        if is_installed or name == "other":
            (tmp_path / f"extra/{name}-1.0.dist-info").mkdir()
            (tmp_path / f"extra/{name}-1.0.dist-info/RECORD").write_text(record)
    done = run_python("""
        import sys
        sys.path.append("extra")
        from tpu_estimator_embedding.migration.captured_config import capture
        print(sorted({source.path for source in capture("train.py", ["--rate=0.4"]).sources}))
        """, cwd=tmp_path)
    assert done.stdout == ("[]\n" if is_installed else "['extra/tables.py']\n"), done.stderr
