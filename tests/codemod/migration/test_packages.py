# SPDX-License-Identifier: Apache-2.0
"""Programs of several modules: the model_fn in another one than the TPUEstimator, and packages.

`packages` has each of them before and after `--to tf2`.
"""

import pathlib
import re
import shutil
import sys

import pytest

from tests.selection import ROOT
from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.migration import programs
from tpu_estimator_embedding.migration.rewrite import rewrite_files

PACKAGES = pathlib.Path(__file__).parent / "packages"
PROGRAMS = {"relative": "trainer/task.py", "absolute": "trainer/task.py", "script": "task.py"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    def copied(name):
        shutil.copytree(PACKAGES / name / "before", tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return copied


def migrated(name, to="tf2"):
    program = pathlib.Path(PROGRAMS[name])
    return {str(file.path): file for file in rewrite_files(
        programs.find([program, "."]), to=to, program=program)}


def left(files):
    return [f"{finding.path}:{finding.line}: {finding.code} {finding.message}"
            for file in files.values() for finding in file.findings
            if finding.code in ("TEE402", "TEE404", "TEE409", "TEE411")]


def edit(path, *replacements):
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_model_fn_of_another_module_is_split_there(name, folder):
    folder(name)
    files = migrated(name)
    assert left(files) == []
    after = {str(path.relative_to(PACKAGES / name / "after")): path.read_text()
             for path in (PACKAGES / name / "after").rglob("*.py")}
    assert {path: file.after.decode() for path, file in files.items()
            if file.after != file.before} == after


def command(*arguments, cwd):
    done = start([sys.executable, "-m", *arguments], cwd=cwd, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("stage", ["tf2", "layers"])
def test_migrated_program_trains_on_the_same_numbers(name, stage, folder):
    printed = command(
        "tpu_estimator_embedding", "migrate", "--to", stage, "--output", "new", "--verify",
        PROGRAMS[name], "." if name == "script" else "trainer", "--", "--steps", "12",
        cwd=folder(name))
    assert "They agree in all 17 steps" in printed


@pytest.mark.long
def test_migrated_package_runs_with_plain_python(folder):
    directory = folder("relative")
    command("tpu_estimator_embedding", "migrate", "--to", "tf2", "--output", "new",
            "trainer/task.py", "trainer", cwd=directory)
    printed = command("trainer.task", "--steps", "3", cwd=directory / "new")
    assert re.search(r"'global_step': (np.int64\()?3", printed)


BUILDER = (
    ("def model_fn(features", "def build(columns):\n    def model_fn(features"),
    ("    net =", "        net ="), ("    logits =", "        logits ="),
    ("    loss = tf", "        loss = tf"), ("    train_op = None", "        train_op = None"),
    ("    if mode", "        if mode"), ("        train_op = make", "            train_op = make"),
    ("    return tf.compat.v1.estimator", "        return tf.compat.v1.estimator"),
    ("train_op=train_op)\n", "train_op=train_op)\n    return model_fn\n"),
    ('params["columns"]', "columns"))


def test_model_fn_that_a_function_of_another_module_returns_is_split_there(folder):
    directory = folder("script")
    edit(directory / "model.py", *BUILDER)
    edit(directory / "task.py", ("model_fn=model.model_fn", "model_fn=model.build(columns)"))
    files = migrated("script")
    assert left(files) == []
    assert "Trainer(\n        model.build(columns), " in files["task.py"].after.decode()
    model = files["model.py"].after.decode()
    assert "def build(columns):\n    def model_fn(features, labels, mode, params):\n" in model
    assert "        net = activations_of(features, columns)\n" in model
    assert model.index("def make_optimizer") < model.index("def build")
    (directory / "serve.py").write_text("import model\nfn = model.build([])\n")
    [problem] = left(migrated("script"))
    assert "TEE409 `build` is also used outside its TPUEstimator, in serve.py" in problem
    (directory / "serve.py").unlink()
    edit(directory / "model.py",
         ("AdagradOptimizer(rate)", "AdagradOptimizer(rate * len(columns))"),
         ("def make_train_op(loss, rate)", "def make_train_op(loss, rate, columns)"),
         ('params["rate"])', 'params["rate"], columns)'))
    assert any("TEE402" in problem and problem.startswith("model.py:")
               for problem in left(migrated("script")))


def test_model_fn_of_a_module_that_is_not_given_is_named(folder):
    folder("script")
    [file] = rewrite_files(programs.find(["task.py"]), to="tf2")
    [finding] = [one for one in file.findings if one.code == "TEE402"]
    assert "its model_fn is `model.model_fn` of another module, which must be given to `migrate`" \
        in finding.message
    assert b"TPUEstimator(" in file.after


@pytest.mark.parametrize("module", ["missing", "task_of_another"])
def test_program_whose_model_fn_is_no_function_of_the_module_is_left(module, folder):
    directory = folder("script")
    if module == "missing":
        edit(directory / "model.py", ("def model_fn(", "def another("))
    else:
        edit(directory / "model.py", ("def model_fn(", "if True:\n  def model_fn("))
        text = (directory / "model.py").read_text()
        top, body = text.split("  def model_fn(")
        (directory / "model.py").write_text(top + "  def model_fn(" + body.replace("\n", "\n  "))
    files = migrated("script")
    [problem] = left(files)
    assert problem == ("task.py:19: TEE402 its model_fn is `model.model_fn`, which is not one "
                       "function at the top of that module: import it from the module that "
                       "defines it")
    assert b"Outputs" not in files["model.py"].after


def test_problem_of_the_model_is_reported_in_its_module_and_nothing_is_split(folder):
    directory = folder("script")
    edit(directory / "model.py", ("tf.compat.v1.train.AdagradOptimizer(rate)", "unknown(rate)"))
    files = migrated("script")
    [problem] = left(files)
    assert problem.startswith("model.py:") and "TEE402" in problem
    assert b"Outputs" not in files["model.py"].after
    assert b"TPUEstimator(" in files["task.py"].after


def test_model_fn_that_a_third_module_reads_is_reported(folder):
    directory = folder("script")
    (directory / "serve.py").write_text("import model\nfn = model.model_fn\n")
    [problem] = left(migrated("script"))
    assert problem == ("model.py:16: TEE409 `model_fn` is also used outside its TPUEstimator, in "
                       "serve.py: it returns Outputs, without a train_op, from now on")
    edit(directory / "task.py", ("    main()", "    main()\n    model.model_fn({}, None, 'eval')"))
    (directory / "serve.py").unlink()
    [problem] = left(migrated("script"))
    assert problem.startswith("task.py:30: TEE409 `model_fn` is also used outside")


USES = {
    "another module": ("import model\nspec = model.model_fn(0, 0, 0, 0)\n", "serve.py"),
    "by its name": ("from model import model_fn\nmodel_fn(0, 0, 0, 0)\n", "serve.py"),
    "a star import": ("from model import *\nmodel_fn(0, 0, 0, 0)\n", "serve.py"),
    "a star import that does not use it": ("from model import *\nprint(columns())\n", None),
    "another function": ("import model\nmodel.columns()\n", None),
}


def with_own_estimator(directory):
    """Puts the TPUEstimator of task.py into the module of the model; returns the former task.py."""
    task = (directory / "task.py").read_text()
    one = (directory / "model.py").read_text() + task.split("\n\n\n")[1].replace(
        "model.", "").replace("columns = columns()", "its = columns()").replace(
        "columns=columns", "columns=its").replace('"columns": columns', '"columns": its')
    (directory / "model.py").write_text(one + "\n")
    edit(directory / "model.py", ("import tensorflow as tf", "import argparse\nimport tensorflow "
                                  "as tf\nfrom input import make_input_fn"))
    (directory / "task.py").write_text("import model\n\nmodel.main()\n")
    return task


@pytest.mark.parametrize("text, place", USES.values(), ids=USES)
def test_use_of_a_model_fn_in_another_module_than_its_estimator_is_reported(text, place, folder):
    directory = folder("script")
    with_own_estimator(directory)
    (directory / "serve.py").write_text(text)
    found = [one for one in left(migrated("script")) if one.startswith("model.py")]
    assert [one.partition(" TEE")[2] for one in found] == ([
        f"409 `model_fn` is also used outside its TPUEstimator, in {place}: it returns Outputs, "
        "without a train_op, from now on"] if place else [])


@pytest.mark.parametrize("passed_on", ["from trainer.model import model_fn\n",
                                       "from .model import *\n"])
def test_package_that_only_passes_a_model_fn_on_does_not_use_it(passed_on, folder):
    directory = folder("absolute")
    (directory / "trainer/__init__.py").write_text(passed_on)
    assert left(migrated("absolute")) == []
    (directory / "trainer/serve.py").write_text("from trainer import model_fn\nmodel_fn(0)\n")
    [problem] = left(migrated("absolute"))
    assert "outside its TPUEstimator, in trainer/serve.py: it" in problem


def test_modes_beside_the_estimator_of_another_modules_model_fn(folder):
    directory = folder("script")
    edit(directory / "task.py", ("    print(estimator", "    print(tf.estimator.ModeKeys.EVAL)\n"
                                 "    print(estimator"))
    files = migrated("script")
    assert left(files) == []
    assert "print(ModeKeys.EVAL)" in files["task.py"].after.decode()


def test_program_with_an_embedding_config_of_its_own_is_refused(folder, capsys):
    directory = folder("script")
    (directory / "embedding_config.py").write_text("TABLES = {}\n")
    assert cli.main(["migrate", "--to", "tf2", "--output", "new", "task.py", "."]) == 1
    assert ("`paths` must have no module embedding_config.py of their own, got "
            "['embedding_config.py']. --to tf2 writes tables and features to that name: rename the "
            "module.") in capsys.readouterr().err
    assert not (directory / "new").exists()
    (directory / "embedding_config.py").write_text("def feature_config(global_step=None): pass\n")
    assert cli.main(["migrate", "--to", "tf2", "--output", "new", "task.py", "."]) == 0


def test_program_whose_estimator_is_in_a_file_that_is_not_given_is_told(folder, capsys):
    folder("script")
    assert cli.main(["migrate", "--to", "tf2", "--output", "new", "input.py"]) == 0
    assert "No file that was given constructs a TPUEstimator" in capsys.readouterr().err


def test_function_that_is_imported_inside_another_is_left(folder):
    directory = folder("script")
    edit(directory / "task.py", ("import model\n", ""), ("model.columns()", "[]"),
         ("    columns = ", "    from model import model_fn\n    columns = "),
         ("model_fn=model.model_fn", "model_fn=model_fn"))
    files = migrated("script")
    assert any("TEE402 its model_fn is imported by its name inside a function, or through "
               "`import *`: import its module" in one for one in left(files))
    assert b"Outputs" not in files["model.py"].after


def test_absolute_import_is_found_beside_the_program(folder):
    directory = folder("script")
    (directory / "jobs").mkdir()
    (directory / "jobs/model.py").write_text((directory / "model.py").read_text())
    (directory / "task.py").rename(directory / "jobs/build.py")
    (directory / "task.py").write_text("from jobs import build\nbuild.main()\n")
    files = migrated("script")
    assert b"Outputs" in files["model.py"].after
    assert b"Outputs" not in files["jobs/model.py"].after


def test_two_model_fns_of_a_module_are_not_split_at_once(folder):
    directory = folder("script")
    model = (directory / "model.py").read_text()
    (directory / "model.py").write_text(model + "\n\ndef second" + model.split("def model_fn")[1])
    shutil.copy("task.py", "other.py")
    edit(directory / "other.py", ("model.model_fn", "model.second"))
    files = migrated("script")
    assert [one.partition(" its")[0] for one in left(files)] == [
        "other.py:0: TEE402", "task.py:0: TEE402"]
    assert b"Outputs" not in files["model.py"].after


def test_function_that_an_import_replaces_is_no_model_fn(folder):
    directory = folder("script")
    with (directory / "model.py").open("a") as file:
        file.write("\n\nfrom input import model_fn\n")
    [problem] = left(migrated("script"))
    assert "is not one function at the top of that module" in problem


def test_two_programs_share_a_model(folder):
    directory = folder("script")
    shutil.copy("task.py", "evaluate.py")
    files = migrated("script")
    assert left(files) == []
    assert b"Outputs" in files["model.py"].after
    assert files["evaluate.py"].after == files["task.py"].after
    edit(directory / "evaluate.py", ("train_batch_size=32", "**{'train_batch_size': 32}"))
    files = migrated("script")
    assert left(files) == [
        "evaluate.py:18: TEE402 its TPUEstimator has * or ** arguments",
        "task.py:0: TEE402 its model_fn, `model_fn` of model.py, is not for it alone: "
        "evaluate.py needs it as it is: mend what the report says there, or give each a function "
        "for its TPUEstimator alone"]
    assert b"Outputs" not in files["model.py"].after
    edit(directory / "evaluate.py", ("**{'train_batch_size': 32}", "train_batch_size=32"),
         ("model.model_fn,", "lambda *args: model.model_fn(*args),"))
    assert [one.partition(": TEE")[0] for one in left(migrated("script"))] == [
        "evaluate.py:18", "task.py:0"]


def test_two_programs_share_a_model_in_the_module_of_one_of_them(folder):
    directory = folder("script")
    (directory / "evaluate.py").write_text(with_own_estimator(directory))
    files = migrated("script")
    assert left(files) == []
    made = files["evaluate.py"].after.decode()
    assert ("model.model_fn, embedding_config, model.make_optimizer, model.dense_learning_rate"
            in made)
    text = files["model.py"].after.decode()
    assert text.count("def make_optimizer(") == text.count("Trainer(") == 1


KEEPS = {
    "a program that stays": (("train_batch_size=32", "**{'train_batch_size': 32}"),),
    "a use of its own": (("model_fn=model.model_fn", "model_fn=another"),
                         ("\ndef main", "\ndef another(features, labels, mode, params):\n"
                          "    return model.model_fn(features, labels, mode, params)\n\n\n"
                          "def main")),
    "another model_fn of the module": (("model.model_fn", "model.another"),),
}
OTHERS = {"another model_fn of the module": "evaluate.py has a TPUEstimator with another model_fn"}


@pytest.mark.parametrize("case", KEEPS)
def test_model_fn_stays_where_another_estimator_needs_it(case, folder):
    directory = folder("script")
    (directory / "evaluate.py").write_text(with_own_estimator(directory))
    text = (directory / "model.py").read_text()
    copied = text[text.index("def model_fn"):text.index("def main")].replace("model_fn", "another")
    edit(directory / "model.py", ("def main", f"{copied}def main"))
    edit(directory / "evaluate.py", *KEEPS[case])
    files = migrated("script")
    assert b"Outputs" not in files["model.py"].after
    assert b"TPUEstimator(" in files["evaluate.py"].after
    assert {one.partition(":")[0] for one in left(files)} == {"model.py", "evaluate.py"}
    [about] = [one for one in left(files) if one.startswith("model.py:0")]
    assert OTHERS.get(case, "evaluate.py needs it as it is: mend what the report says") in about


BY_TURNS = """\
import tensorflow as tf

import model
from input import make_input_fn


def train_and_evaluate(steps):
    estimator = model.build("out")
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(make_input_fn(1), max_steps=steps),
        tf.estimator.EvalSpec(make_input_fn(2), steps=2))


train_and_evaluate(6)
"""


def one_file(directory):
    """Puts the TPUEstimator into the module of the model, in a function `build`."""
    task = (directory / "task.py").read_text()
    body = task.split("    columns")[1].split("    estimator.train")[0]
    for old, new in (("model.columns()", "columns()"), ("    estimator = ", "    return "),
                     ("args.job_dir", "model_dir"), ("model.model_fn", "model_fn")):
        body = body.replace(old, new)
    own = "    its_columns" + body.replace("columns=columns", "columns=its_columns").replace(
        '"columns": columns', '"columns": its_columns')
    with (directory / "model.py").open("a") as file:
        file.write(f"\n\ndef build(model_dir):\n{own}")


def test_train_and_evaluate_of_another_modules_estimator_takes_its_trainer(folder):
    directory = folder("script")
    one_file(directory)
    (directory / "task.py").write_text(BY_TURNS)
    files = migrated("script")
    assert left(files) == []
    task = files["task.py"].after.decode()
    assert "from tpu_estimator_embedding import trainer as tee_trainer\n" in task
    assert "    tee_trainer.train_and_evaluate(\n        estimator, tee_trainer.TrainSpec(" in task
    assert "tf_estimator" not in task
    edit(directory / "task.py", ("max_steps=steps", "max_steps=steps, hooks=[print]"))
    [problem] = left(migrated("script"))
    assert problem.startswith("task.py:10: TEE404 `hooks` of `TrainSpec`: hooks run in sessions")
    edit(directory / "model.py", ("tf.compat.v1.train.AdagradOptimizer(rate)", "unknown(rate)"))
    files = migrated("script")
    assert "tf_estimator.train_and_evaluate(" in files["task.py"].after.decode()


@pytest.mark.long
def test_train_and_evaluate_of_another_modules_estimator_gives_the_same_numbers(folder):
    directory = folder("script")
    one_file(directory)
    (directory / "task.py").write_text(BY_TURNS)
    assert "They agree in all 11 steps" in command(
        "tpu_estimator_embedding", "migrate", "--to", "tf2", "--output", "new", "--verify",
        "task.py", ".", cwd=directory)


def test_name_that_the_model_has_already_is_not_written_again(folder):
    directory = folder("script")
    edit(directory / "model.py", ("def columns():", "def make_optimizer():\n    pass\n\n\n"
                                  "def columns():"))
    [problem] = left(migrated("script"))
    assert problem.startswith("model.py:") and "['make_optimizer'] itself; rename" in problem


def test_seed_of_the_program_is_compared_with_what_the_model_draws(folder):
    directory = folder("script")
    edit(directory / "task.py", ("model_dir=args.job_dir,",
                                 "model_dir=args.job_dir, tf_random_seed=3,"))
    [problem] = left(migrated("script"))
    assert problem.startswith("task.py:") and "TEE411" in problem
    assert "`embedding_column(...)` on line 8 of model.py draws initial values" in problem


def test_keras_3_takes_a_model_of_a_module_but_not_a_function_that_is_imported(folder):
    directory = folder("relative")
    edit(directory / "trainer/model.py", ('params["columns"]', "WORDS"), (
        "def columns():", 'WORDS = [tf.compat.v1.tpu.experimental.embedding_column(\n'
        '    tf.feature_column.categorical_column_with_identity("words", 50), dimension=4)]\n\n\n'
        "def columns():"), (", rate=0.1):", "):"), ("AdagradOptimizer(rate)",
                                                    "AdagradOptimizer(0.1)"),
        ("        gradients, variables = zip(*optimizer.compute_gradients(loss))\n", ""),
        ("        gradients, _ = tf.clip_by_global_norm(gradients, 0.05)\n", ""),
        ("apply_gradients(zip(gradients, variables), step)", "minimize(loss, step)"))
    edit(directory / "trainer/task.py", (
        "functools.partial(model.model_fn, rate=0.2)", "model.model_fn"))
    [problem] = [one for one in left(migrated("relative", "keras3")) if "TEE402" in one]
    assert problem.startswith("trainer/model.py:1: TEE402 it would still use this package: `tf.")
    edit(directory / "trainer/model.py", (
        'return [tf.compat.v1.tpu.experimental.embedding_column(words, dimension=4, '
        'combiner="mean")]', "return [words]"))
    files = migrated("relative", "keras3")
    assert [one for one in left(files) if "TEE402" in one] == []
    text = files["trainer/task.py"].after.decode()
    assert "from . import keras_training\nfrom . import embedding_config\n" in text
    assert "(model.forward, model.loss_of, " in text
    edit(directory / "trainer/task.py", ("from . import model", "from .model import model_fn"),
         ("model.model_fn", "model_fn"), ("model.columns()", "[]"))
    [problem] = [one for one in left(migrated("relative", "keras3")) if "TEE402" in one]
    assert "its model_fn is imported by its name: import its module" in problem


def test_output_in_the_given_directory_is_not_read_again(folder):
    folder("script")
    files = rewrite_files(programs.find(["task.py", "."], "new"), to="tf2")
    programs.write_to("new", files)
    again = programs.find(["task.py", "."], "new")
    assert [str(path) for path, _ in again] == ["input.py", "model.py", "task.py"]
    assert programs.find(["task.py", "."], "newer") == again
    assert programs.left_out(["."]) == {pathlib.Path("new"): "written by migrate"}
    assert len(programs.find(["new"])) == 3


def test_environments_in_the_given_directory_are_left_out_with_a_line(folder, capsys):
    directory = folder("script")
    for sign in ("venv/pyvenv.cfg", "env/conda-meta"):
        (directory / sign).mkdir(parents=True)
        (directory / sign).parent.joinpath("library.py").write_text(
            "import tensorflow as tf\ntf.estimator.Estimator\n")
    assert cli.main(["migrate", "."]) == 0
    written = capsys.readouterr()
    assert "library" not in written.out
    assert written.err.startswith(
        "left out: env, a conda environment. To include it, pass its path, too.\n"
        "left out: venv, a virtual environment. To include it, pass its path, too.\n")
    assert programs.left_out([".", "venv"]) == {pathlib.Path("env"): "a conda environment"}
    for file in directory.glob("*.py"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"but in env \(a conda environment\), venv \("):
        programs.find(["."])
