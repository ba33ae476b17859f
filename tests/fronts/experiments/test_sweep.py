# SPDX-License-Identifier: Apache-2.0
"""A sweep of an unmodified program, as a user runs it, and everything that it leaves."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.experiments.sweeps import PROGRAM, command, run
from tests.subprocesses import start
from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments import program_sweep
from tpu_estimator_embedding.experiments.overrides import StepTimer
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import grid, setting_of
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory

# Seed 1 fails.
OPTIONS = [PROGRAM, "--multiplier", "0", "1", "--seeds", "2", "--jobs", "2", "--metric", "auc",
           "--target", "0.7", "--out", "out", "--", "--seed", "{seed}", "--steps", "40"]
TABLES = [f"dense_features/{name}_embedding/embedding_weights" for name in ("item", "user")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def finished(directory):
    return run("sweep", *OPTIONS, cwd=directory)


@pytest.fixture(scope="module")
def out(directory, finished):
    return directory / "out"


def model(out, multiplier):
    return out / "runs" / f"multiplier={multiplier},seed=0" / "model"


def tensors(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_prints_a_row_for_every_setting_and_says_what_failed(finished, out):
    assert finished.returncode == 1, finished.stderr
    assert "setting       auc" in finished.stdout
    assert "steps to ≥ 0.7" in finished.stdout
    assert "1 of 2; ValueError: this seed brings bad luck (exit status 1)" in finished.stdout
    assert f"its log: {out}/runs/multiplier=0,seed=1/log.txt" in finished.stdout
    assert f"report   {out}/report.html\nresults  {out}/results.csv\n" in finished.stdout
    assert "other run" not in finished.stdout


def test_multiplier_0_leaves_tables_and_slots_as_they_were(out):
    before, after = (tensors(model(out, 0) / f"model.ckpt-{step}") for step in (0, 40))
    for name in before:
        if "embedding_weights" in name:
            np.testing.assert_array_equal(after[name], before[name])
    assert not np.array_equal(after["kernel"], before["kernel"])


def test_multiplier_1_is_the_program_as_it_is_bit_for_bit(out, tmp_path):
    done = start([*command("run", PROGRAM), "--steps", "40"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = tensors(tmp_path / "model" / "model.ckpt-40")
    found = tensors(model(out, 1) / "model.ckpt-40")
    assert set(TABLES) < set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_csv_and_json_have_every_run(out):
    with (out / "results.csv").open() as file:
        rows = {(row["multiplier"], row["seed"]): row for row in csv.DictReader(file)}
    assert set(rows) == {(multiplier, seed) for multiplier in "01" for seed in "01"}
    assert float(rows["1", "0"]["auc"]) > float(rows["0", "0"]["auc"]) + 0.1
    assert rows["1", "0"]["step"] == "40"
    assert float(rows["1", "0"]["examples_per_second"]) > 0
    assert "bad luck" in rows["1", "1"]["error"]
    results = json.loads((out / "results.json").read_text())
    assert results["metric"] == "auc"
    [zero, one] = results["settings"]
    assert (zero["setting"], one["setting"]) == ({"multiplier": "0"}, {"multiplier": "1"})
    assert one["mean"] == pytest.approx(float(rows["1", "0"]["auc"]), rel=1e-6)
    assert len(rows["1", "0"]["auc"].lstrip("0.")) <= 7
    curve = results["runs"][2]["curves"]["auc"]
    assert [step for step, _ in curve] == [20, 40]
    assert one["steps_to_target"] == [next(step for step, auc in curve if auc >= 0.7)]
    statistics = {name: [step for step, _ in points] for name, points in results["runs"][2][
        "curves"].items() if name.endswith("/update_ratio")}
    assert list(statistics.values()) == [[10, 20, 30, 40]] * 2
    never_trained = results["runs"][2]["tables"][TABLES[0]]["never_trained"]
    assert never_trained == 5  # the program's input has no ids of the last five items
    assert results["runs"][0]["tables"][TABLES[0]]["never_trained"] == 30


def test_report_has_its_pictures_in_it_and_beside_it(out):
    page = (out / "report.html").read_text()
    names = ["final_metric", "metric_over_steps", "loss_over_steps", "table_norms",
             "table_gradient_norm", "table_update_ratio"]
    assert page.count("<figure><img") == len(names)
    for name in names:
        for kind, first in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
            assert (out / f"{name}.{kind}").read_bytes().startswith(first)
    assert "http" not in re.sub("(?s)<(script|style)[ >].*?</\\1>", "", page)
    assert "The highest mean auc is that of multiplier=1." in page


def test_same_command_runs_only_what_is_missing_and_another_program_is_refused(directory, out):
    kept = (model(out, 1) / "checkpoint").stat().st_mtime_ns
    (out / "report.html").unlink()
    done = run("sweep", *OPTIONS[:4], *OPTIONS[6:], cwd=directory)  # of one seed
    assert done.returncode == 0, done.stderr
    assert (model(out, 1) / "checkpoint").stat().st_mtime_ns == kept
    assert (out / "report.html").exists()
    assert f"2 other runs in {out} are not in this report. To have all" in done.stdout
    other = run("sweep", *OPTIONS, "--evaluations", "1", cwd=directory)
    assert other.returncode == 2
    words = f"{PROGRAM} --seed '{{seed}}' --steps 40"
    assert (f"{out} has a sweep of {words}, and this one is of {words} --evaluations 1. Choose "
            "another --out.\n") in other.stderr


def test_metric_is_checked_against_the_runs_that_there_are_before_others_start(directory, out):
    unknown = [*OPTIONS[:2], "0", "1", "0.5", *OPTIONS[4:]]
    unknown[unknown.index("auc")] = "ndcg"
    done = run("sweep", *unknown, cwd=directory)
    assert done.returncode == 2
    assert "`--metric` must be one of" in done.stderr and "got 'ndcg'" in done.stderr
    assert " auc, " in done.stderr and "training/loss" in done.stderr
    assert not (out / "runs" / "multiplier=0.5,seed=0").exists()


def ended_run(directory, seed, outcome, steps=()):
    """Returns a run as a process left it, with summaries of training and of an evaluation."""
    one = Run(directory, setting_of({"multiplier": "1"}), seed)
    one.start_over()
    for name, tag in (("", "loss"), ("eval", "auc")):
        if steps:
            write_scalars(one.directory / "model" / name, tag, steps)
    one.end(outcome)
    return one


def write_scalars(path, tag, steps):
    with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(str(path)) as writer:
        for step in steps:
            writer.add_summary(tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(
                tag=tag, simple_value=0.5)]), step)


def test_first_run_decides_whether_there_is_the_metric(tmp_path):
    sweep = SweepDirectory(tmp_path, tuple(grid(["1"])), 3, "ndcg")
    with pytest.raises(ValueError, match="but multiplier=1,seed=0 wrote no metrics to "):
        sweep.check_metric(ended_run(tmp_path, 0, {"tables": {}}))
    sweep.check_metric(ended_run(tmp_path, 1, {"error": "before it evaluated"}))
    sweep.check_metric(sweep.runs[2])  # which was not started
    with pytest.raises(ValueError, match="must be one of auc, training/loss, got 'ndcg'"):
        sweep.check_metric(ended_run(tmp_path, 1, {"error": "at the end"}, [1, 2]))
    SweepDirectory(tmp_path, tuple(grid(["1"])), 1, "auc").check_metric(sweep.runs[1])


def test_runs_of_a_program_before_it_was_edited_are_named(tmp_path):
    program, sweep = tmp_path / "program.py", [
        "sweep", "program.py", "--multiplier", "1", "--seeds", "2", "--out", "out"]
    program.write_text("raise SystemExit('would train')")
    for seed in (0, 1):
        one = ended_run(tmp_path / "out", seed, {"tables": {}}, [1, 2])
    sentence = "program.py was changed after 2 of the runs in"
    for edited, is_named in ((-60, False), (60, True)):
        os.utime(program, 2 * ((one.directory / "outcome.json").stat().st_mtime + edited,))
        done = run(*sweep, cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (0, is_named), done.stderr
    ended_run(tmp_path / "out", 1, {"error": "will run again"})
    assert "program.py was changed after 1 of the runs in" in run(*sweep, cwd=tmp_path).stderr


class Line:
    """Remembers what a progress bar shows."""

    def __init__(self):
        self.shown = []

    def set_postfix_str(self, text):
        self.shown.append(text)


def test_line_without_a_terminal_shows_when_runs_start_and_begin_to_train(tmp_path):
    line, [first, second] = Line(), [Run(tmp_path, grid(["1"])[0], seed) for seed in (0, 1)]
    for one in (first, second):
        one.directory.mkdir(parents=True)
    program_sweep.show_progress(line, [first])
    timer = StepTimer(first.directory / "progress.json")
    timer.note()
    for _ in range(2):
        program_sweep.show_progress(line, [first])
    timer.count(3000, 1.0, 1)  # within the second
    timer.note()
    program_sweep.show_progress(line, [first])
    program_sweep.show_progress(line, [])
    program_sweep.show_progress(line, [second])
    assert line.shown == ["multiplier=1,seed=0: starting", "multiplier=1,seed=0: step 0",
                          "multiplier=1,seed=1: starting"]
    assert first.steps_so_far == 3000


def test_interrupted_sweep_ends_its_children_and_continues_later(tmp_path):
    arguments = [PROGRAM, "--multiplier", "1", "--metric", "auc", "--out", "out", "--",
                 "--steps", "40", "--evaluations", "1"]
    process = subprocess.Popen(
        command("sweep", *arguments), cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "CLICK_PROGRAM_IS_SLOW": "1"})
    directory = tmp_path / "out" / "runs" / "multiplier=1,seed=0"
    wait_for(lambda: steps_of(directory) > 0, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Interrupted. Run the same command again to continue." in output
    assert "0 of 1; interrupted" in output and "--metric" not in errors
    assert not children_of(directory)
    saved = max(int(path.stem.split("-")[1]) for path in (directory / "model").glob("*.index"))
    assert 0 < saved < 40  # it was told to stop, and saved what it had

    done = run("sweep", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (directory / "model" / "model.ckpt-40.index").exists()
    outcome = json.loads((directory / "outcome.json").read_text())
    assert outcome["steps_of_this_start"] == 40 - saved


def steps_of(directory):
    try:
        return json.loads((directory / "progress.json").read_text())["steps"]
    except (OSError, ValueError):  # not written yet, or only half
        return 0


def wait_for(is_there, process):
    deadline = time.monotonic() + 120
    while not is_there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(directory):
    """The processes that were started with the job of a run."""
    job = str(directory / "job.json").encode()
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if job in path.read_bytes() else []
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_program_that_cannot_be_swept_reports_why_and_stops(tmp_path):
    (tmp_path / "nothing.py").write_text("print('I make no estimator')")
    done = run("sweep", "nothing.py", "--multiplier", "0", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "ended without constructing a TPUEstimator" in done.stderr
    assert not (tmp_path / "sweep" / "runs" / "multiplier=1,seed=0" / "log.txt").exists()


@pytest.mark.parametrize("arguments, sentence", [
    (["--multiplier", "wramup:5"], "Nearest to 'wramup': warmup"),
    ([], "A sweep of one run compares nothing. Pass values of --multiplier"),
    (["--multiplier", "1", "--seeds", "0"], "`seeds` must be an int of at least 1, got 0"),
    (["--multiplier", "1", "--jobs", "1000"], "`--jobs` must be at most"),
    (["--clipping-limit", "0"], "`clipping_limit` must be above 0, got 0.0"),
    (["-m", "another"], "Pass one program"),
    (["--table", "user"], "`--table` must be KEY=M, a table and its multiplier, got 'user'."),
    (["--table", "user=wramup:5"], "Nearest to 'wramup': warmup"),
    (["--table", "re:(=1"], "must be keyed by regular expressions after 're:'")])
def test_bad_arguments_are_errors_before_anything_is_written(arguments, sentence, tmp_path,
                                                             monkeypatch, capsys):
    from tpu_estimator_embedding import cli
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(["sweep", str(PROGRAM), *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ['{"cluster": {}}', "{}", "{"])
def test_sweep_runs_on_one_machine(monkeypatch, tmp_path, capsys, value):
    from tpu_estimator_embedding import cli
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CONFIG", value)
    assert cli.main(["sweep", str(PROGRAM), "--multiplier", "1"]) == 2
    assert "TF_CONFIG describes a cluster" in capsys.readouterr().err


def test_sweeps_own_process_and_reports_need_no_tensorflow():
    done = start([sys.executable, "-c", "import sys\n"
                  "from tpu_estimator_embedding.experiments import model_report, sweep_command\n"
                  "assert 'tensorflow' not in sys.modules"])
    assert done.returncode == 0, done.stderr


def test_full_disk_is_reported_and_the_same_command_continues(tmp_path, monkeypatch, capsys):
    from tpu_estimator_embedding import cli
    from tpu_estimator_embedding.experiments import program_sweep
    monkeypatch.chdir(tmp_path)

    def run_missing(sweep, program, jobs):
        raise OSError(28, "No space left on device", "job.json")

    monkeypatch.setattr(program_sweep, "run_missing", run_missing)
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    assert cli.main(["sweep", str(PROGRAM), "--multiplier", "0", "1"]) == 1
    shown = capsys.readouterr()
    assert "No space left on device: 'job.json'. Run the same command again" in shown.err
    assert "0 of 1; not run" in shown.out
    assert "\nfigures  none: they need matplotlib, pip install " in shown.out


def test_half_written_file_leaves_what_was_there(tmp_path, monkeypatch):
    from tpu_estimator_embedding.experiments import files
    path = tmp_path / "results.csv"
    files.write_text(path, "before")

    def write_bytes(self, content):
        with self.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "after")
    monkeypatch.undo()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_runs_that_cannot_write_say_so_and_the_same_command_continues(tmp_path):
    """A limit on the size of files stands in for a full disk: TensorFlow's own writes fail."""
    sweep = command("sweep", PROGRAM, "--multiplier", "1", "--out", "out", "--", "--steps", "4",
                    "--evaluations", "1")
    done = start(["bash", "-c", 'ulimit -f 60 && exec "$@"', "bash", *sweep], cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "0 of 1; " in done.stdout and "File too large" in done.stdout
    assert re.search("the report is not complete: .*File too large: '.*report.html'", done.stderr)
    done = start(sweep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
