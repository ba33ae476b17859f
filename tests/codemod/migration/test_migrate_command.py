# SPDX-License-Identifier: Apache-2.0
"""`migrate` as it is called: what it prints, writes and returns."""

import json
import pathlib
import subprocess

import pytest

from tests import docs
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.migration import captured_file
from tpu_estimator_embedding.migration.rewrite import MigratedFile
from tpu_estimator_embedding.migration.verify import verify_command as verify

BEFORE = "import tensorflow.compat.v1 as tf\nmode = tf.estimator.ModeKeys.TRAIN\n"
AFTER = ("from tpu_estimator_embedding import tf_estimator\n"
         "import tensorflow.compat.v1 as tf\nmode = tf_estimator.ModeKeys.TRAIN\n")
OPEN = "import tensorflow.compat.v1 as tf\nx = tf.estimator.BoostedTreesClassifier()\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer/data").mkdir(parents=True)
    (tmp_path / "trainer/task.py").write_text(BEFORE)
    (tmp_path / "trainer/data/reader.py").write_text("import os\n")
    (tmp_path / "trainer/__pycache__").mkdir()
    (tmp_path / "trainer/__pycache__/old.py").write_text(BEFORE)
    return tmp_path


def test_default_prints_a_diff_that_patch_takes(folder, capfdbinary):
    assert cli.main(["migrate", "trainer"]) == 0
    printed = capfdbinary.readouterr()
    assert (folder / "trainer/task.py").read_text() == BEFORE
    assert b"2 changes, 0 things left to do by hand, 0 decisions to make.\n" in printed.err
    subprocess.run(["patch", "-p1"], input=printed.out, cwd=folder, check=True)
    assert (folder / "trainer/task.py").read_text() == AFTER


def test_diff_of_a_file_without_last_newline_is_taken_by_patch(folder, capfdbinary):
    (folder / "trainer/task.py").write_text(BEFORE.rstrip("\n"))
    assert cli.main(["migrate", "--diff", "trainer/task.py"]) == 0
    subprocess.run(["patch", "-p1"], input=capfdbinary.readouterr().out, cwd=folder, check=True)
    assert (folder / "trainer/task.py").read_text() == AFTER.rstrip("\n")


def test_write_keeps_the_first_original(folder, capsys):
    (folder / "trainer/task.py").chmod(0o755)
    assert cli.main(["migrate", "--write", "trainer"]) == 0
    assert (folder / "trainer/task.py").read_text() == AFTER
    assert (folder / "trainer/task.py.orig").read_text() == BEFORE
    assert (folder / "trainer/task.py").stat().st_mode & 0o777 == 0o755
    assert not (folder / "trainer/data/reader.py.orig").exists()
    assert "written: trainer/task.py" in capsys.readouterr().out
    (folder / "trainer/task.py").write_text(BEFORE + "# again\n")
    assert cli.main(["migrate", "--write", "trainer"]) == 0
    assert (folder / "trainer/task.py.orig").read_text() == BEFORE


def test_write_keeps_links(folder, capsys):
    (folder / "trainer/linked.py").symlink_to("task.py")
    (folder / "shared.py").write_text(BEFORE)
    (folder / "trainer/shared.py").symlink_to("../shared.py")
    assert cli.main(["migrate", "--write", "trainer"]) == 0
    assert (folder / "trainer/linked.py").readlink() == pathlib.Path("task.py")
    assert (folder / "trainer/shared.py").is_symlink()
    for name in ("trainer/task.py", "shared.py"):
        assert (folder / name).read_text() == AFTER
        assert (folder / f"{name}.orig").read_text() == BEFORE
    assert not [*folder.glob("trainer/linked.py.orig"), *folder.glob("trainer/shared.py.orig")]


def test_output_gets_every_file_and_overwrites_nothing(folder, capsys):
    assert cli.main(["migrate", "--output", "new", "trainer"]) == 0
    assert (folder / "new/trainer/task.py").read_text() == AFTER
    assert (folder / "new/trainer/data/reader.py").read_text() == "import os\n"
    assert (folder / "trainer/task.py").read_text() == BEFORE
    assert not (folder / "new/trainer/__pycache__").exists()
    (folder / "new/trainer/task.py").write_text("mine")
    assert cli.main(["migrate", "--output", "new", "trainer"]) == 1
    assert (folder / "new/trainer/task.py").read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


def test_what_is_left_is_reported_and_sets_the_status(folder, capsys):
    (folder / "trainer/task.py").write_text(OPEN)
    assert cli.main(["migrate", "--report", "report.json", "trainer"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("trainer/task.py:2:5: TEE201 name without a counterpart: "
            "`tf.estimator.BoostedTreesClassifier`") in printed.err
    assert "\n    explained by: migrate --explain TEE201\n" in printed.err
    report = json.loads((folder / "report.json").read_text())
    assert report["exit_status"] == 2
    [finding] = report["findings"]
    assert (finding["path"], finding["line"], finding["code"], finding["kind"]) == (
        "trainer/task.py", 2, "TEE201", "left")


@pytest.mark.parametrize("code, status, words", [
    ("TEE201", 0, "TEE201\nname without a counterpart (left to do by hand). Use what the"),
    ("tee411", 0, "TEE411\nrandom numbers that differ (a decision). Decide whether"),
    ("TEE999", 2, "`--explain` must be a code of the report, such as TEE201, got 'TEE999'.")])
def test_codes_are_explained(code, status, words, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["migrate", "--explain", code])
    assert exit_.value.code == status
    printed = capsys.readouterr()
    assert words in (printed.err if status else printed.out)


def test_names_of_tf_slim_get_their_own_advice(folder, capsys):
    (folder / "alone.py").write_text(
        "import tensorflow as tf\ny = tf.contrib.layers.dense_to_sparse([0, 1])\n")
    assert cli.main(["migrate", "--output", "one", "alone.py"]) == 2
    printed = capsys.readouterr()
    assert "tf.sparse.from_dense" in printed.err
    assert "1 file below one" in printed.out + printed.err


def test_a_file_that_cannot_be_parsed_stops_no_other(folder):
    (folder / "trainer/broken.py").write_text("import tensorflow as tf\nprint 'x'\n")
    assert cli.main(["migrate", "--write", "trainer"]) == 2
    assert (folder / "trainer/task.py").read_text() == AFTER
    assert (folder / "trainer/broken.py").read_text() == "import tensorflow as tf\nprint 'x'\n"


@pytest.mark.parametrize("content, code", [
    (b"x = = 1\n", "broken.py:1:5: TEE207"), (b"\x00\xff\x93 = 1\n", "broken.py: TEE207"),
    (b"# \xff\xfe\n", "broken.py: TEE208"), (b"print 'x'\n", "broken.py:1:1: TEE206")])
def test_a_program_that_is_not_python_is_reported(folder, capsys, content, code):
    (folder / "trainer/broken.py").write_bytes(content)
    assert cli.main(["migrate", "trainer/broken.py"]) == 2
    printed = capsys.readouterr().err
    assert f"trainer/{code}" in printed
    assert "1 thing left to do by hand" in printed
    assert cli.main(["migrate", "trainer"]) == 0  # it does not use TensorFlow


def test_file_that_is_not_python_and_has_no_tensorflow_is_left_out(folder, capsys):
    (folder / "trainer/old.py").write_text("# by the contributors, of an estimator\nprint 'x'\n")
    assert cli.main(["migrate", "trainer"]) == 0
    assert "old.py" not in capsys.readouterr().err


def test_a_notebook_is_refused(folder, capsys):
    (folder / "notebook.ipynb").write_text('{"cells": [{"source": ["import tensorflow"]}]}')
    assert cli.main(["migrate", "notebook.ipynb"]) == 1
    assert ("`paths` must be Python files and directories, got ['notebook.ipynb']. Write a "
            "notebook as a program first: jupyter nbconvert" in capsys.readouterr().err)


def test_a_missing_file_is_named(folder, capsys):
    assert cli.main(["migrate", "--write", "trainer", "nowhere.py"]) == 1
    assert "There is no file or directory 'nowhere.py'." in capsys.readouterr().err
    assert (folder / "trainer/task.py").read_text() == BEFORE


def test_a_directory_without_programs_is_named(folder, capsys):
    (folder / "empty").mkdir()
    assert cli.main(["migrate", "empty"]) == 1
    assert "There is no Python file in 'empty'." in capsys.readouterr().err


@pytest.mark.parametrize("options, error", [
    (["--output", "/dev/null"], "`--output` must be a directory or a new path, got '/dev/null'. It "
     "is a file"),
    (["--output", "new", "--report", "nowhere/r.json"], "`--report` must be a file in a directory "
     "that exists, got 'nowhere/r.json'. There is no directory"),
    (["--output", "new", "--report", "trainer"], "`--report` must be a file, got 'trainer'")])
def test_outputs_are_checked_before_anything_is_written(folder, capsys, options, error):
    assert cli.main(["migrate", "trainer", *options]) == 1
    assert error in capsys.readouterr().err
    assert not (folder / "new").exists()


def test_report_may_be_in_the_new_output(folder):
    assert cli.main(["migrate", "trainer", "--output", "new", "--report", "new/r.json"]) == 0
    assert (folder / "new/r.json").exists()


@pytest.mark.parametrize("stage, rtol", [("imports", ""), ("tf2", "--rtol=1e-05 ")])
def test_the_command_that_compares_is_printed(folder, capsys, stage, rtol):
    assert cli.main(["migrate", "--to", stage, "--output", "new", "trainer/task.py"]) == 0
    assert (f"tpu-estimator-embedding verify {rtol}--to={stage} trainer/task.py new/task.py\n"
            in capsys.readouterr().err)
    assert cli.main(["migrate", "--output", "other", "trainer"]) == 0
    assert "verify" not in capsys.readouterr().err


@pytest.mark.parametrize("status, expected", [(0, 0), (1, 1), (2, 1)])
def test_verify_runs_what_was_written(folder, monkeypatch, status, expected):
    seen = []
    monkeypatch.setattr(verify, "run", lambda args: seen.append(args) or status)
    assert cli.main(["migrate", "--output", "new", "--verify", "trainer/task.py", "--",
                     "--data", "logs"]) == expected
    [args] = seen
    assert (args.legacy, args.migrated, args.rtol, args.to) == (
        "trainer/task.py", "new/task.py", 0.0, "imports")
    assert args.program_arguments == ["--data", "logs"]


def test_verify_waits_for_hand_work(folder, monkeypatch, capsys):
    monkeypatch.setattr(verify, "run", lambda args: pytest.fail("verify has run"))
    (folder / "open.py").write_text(OPEN)
    assert cli.main(["migrate", "--output", "new", "--verify", "open.py"]) == 2
    assert ("--verify compared nothing, because hand work is left. Then run "
            "tpu-estimator-embedding verify --to=imports open.py new/open.py\n"
            in capsys.readouterr().err)


def test_verify_needs_two_programs(folder, capsys):
    for arguments in (["trainer/task.py"], ["--output", "new", "trainer"]):
        with pytest.raises(SystemExit):
            cli.main(["migrate", "--verify", *arguments])
    assert "--verify needs --output" in (printed := capsys.readouterr().err)
    assert "--verify needs exactly one program file among the paths, got ['trainer']" in printed


def test_verify_of_a_later_stage_needs_the_captured_configuration(folder, monkeypatch, capsys):
    monkeypatch.setattr(verify, "run", lambda args: 0)
    command = ["migrate", "--to", "tf2", "--output", "new", "--verify", "trainer/task.py"]
    with pytest.raises(SystemExit):
        cli.main([*command, "--no-capture"])
    assert "--verify at the stage tf2 needs --capture" in capsys.readouterr().err
    (folder / "new").mkdir()
    (folder / "new/embedding_config.py").write_text("")
    assert cli.main(command) == 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["tf2", "keras3"])
def test_program_without_the_captured_module_has_work_left(folder, stage, capsys):
    """Its settings of tables would be lost without a word."""
    program = (docs.ROOT / "migration_guide" / "jax" / "before.py").read_text()
    (folder / "program.py").write_text(program)
    arguments = ["migrate", "--to", stage, "--output", "new", "program.py", "--no-capture"]
    assert cli.main(arguments) == 2
    printed = capsys.readouterr().err
    assert "TEE308" in printed and "run the tool with --capture" in printed
    (folder / "embedding_config.py").write_text("def feature_config(): pass\n")
    cli.main(arguments[:4] + ["other", "program.py"])  # which keeps that file
    printed = capsys.readouterr().err
    assert "TEE308" not in printed
    assert "kept: embedding_config.py. If the program's tables have changed since" in printed


@pytest.mark.slow
def test_the_stage_keras_rs_is_keras3_and_says_so(folder, capsys):
    program = (docs.ROOT / "migration_guide" / "jax" / "before.py").read_text()
    (folder / "program.py").write_text(program)
    cli.main(["migrate", "--to", "keras-rs", "--output", "old", "program.py", "--no-capture"])
    assert capsys.readouterr().err.startswith("--to keras-rs means --to keras3: ")
    cli.main(["migrate", "--to", "keras3", "--output", "new", "program.py", "--no-capture"])
    assert "keras-rs" not in capsys.readouterr().err
    for name in ("program.py", "keras_training.py"):
        assert (folder / "old" / name).read_bytes() == (folder / "new" / name).read_bytes()


@pytest.mark.long
def test_a_program_beside_its_packages_is_the_one_that_runs(folder, monkeypatch, capsys):
    """Other files of the package import the captured module, which is beside the program."""
    seen = []
    monkeypatch.setattr(captured_file, "capture_file", lambda path, name, *given, **options: (
        seen.append((path, name)), MigratedFile(
            path.with_name("embedding_config.py"), name.with_name("embedding_config.py"), b"",
            b"", ()))[1])
    program = (docs.ROOT / "migration_guide" / "jax" / "before.py").read_text()
    (folder / "trainer/model.py").write_text(program)
    (folder / "zero.py").write_text("from trainer import model\nmodel.main()\n")
    arguments = ["migrate", "--to", "tf2", "--output"]
    assert cli.main([*arguments, "none", "trainer"]) == 2
    assert not seen and "give the file that is run" in capsys.readouterr().err
    for options in ([], ["--capture"]):
        output = f"new{len(options)}"
        assert cli.main([*arguments, output, "trainer", "zero.py", *options]) == 0
        printed = capsys.readouterr().err
        assert "TEE308" not in printed and f"--to=tf2 zero.py {output}/zero.py" in printed
        assert (folder / output / "embedding_config.py").exists()
        assert (folder / output / "trainer/model.py").exists()
    assert seen == 2 * [(pathlib.Path("zero.py"), pathlib.PurePath("zero.py"))]
    (folder / "embedding_config.py").write_text("def feature_config(): pass\n")
    assert cli.main([*arguments, "kept", "trainer", "zero.py"]) == 0 and len(seen) == 2
