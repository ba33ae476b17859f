# SPDX-License-Identifier: Apache-2.0
"""The demo as a reader runs it: in a separate process, interrupted, and run again."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

OPTIONS = ["--examples", "6000", "--batch-size", "32", "--seed", "3"]
STEPS = 169  # one pass over 5400 training records


def demo_command(model_dir: pathlib.Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "tpu_estimator_embedding", "demo", "--model-dir",
            str(model_dir), *(options or OPTIONS)]


def run_demo(model_dir: pathlib.Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(demo_command(model_dir, *options), capture_output=True, text=True,
                          timeout=300)


def metrics(output: str) -> dict[str, str]:
    section = output.partition("Metrics on held-out records\n")[2].partition("\n\n")[0]
    return dict(re.split(r"\s{2,}", line.strip()) for line in section.splitlines())


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def first_run(model_dir) -> subprocess.CompletedProcess:
    result = run_demo(model_dir)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.mark.smoke
def test_trained_tables_beat_untrained_ones(first_run):
    auc = {name: float(value) for name, value in metrics(first_run.stdout).items()}
    assert auc["AUC, trained tables"] > 0.65
    assert auc["AUC, trained tables"] > auc["AUC, untrained tables"] + 0.05
    assert auc["AUC, trained tables"] < auc["AUC, knowing the hidden model"]


@pytest.mark.smoke
def test_progress_line_ends_at_the_last_step(first_run):
    last = [line for line in re.split(r"[\r\n]", first_run.stderr) if "Training:" in line][-1]
    assert "100%" in last
    assert f"step={STEPS}" in last
    assert "loss=" in last
    assert "examples/s" in last


# TensorFlow 2.16 to 2.20 print these two lines whatever TF_CPP_MIN_LOG_LEVEL is.
PRINTED_AT_ANY_LEVEL = re.compile(
    r"WARNING: All log messages before absl.*\n.*MLIR V1 optimization pass is not enabled\n")


@pytest.mark.smoke
def test_nothing_of_tensorflows_own_is_shown(first_run):
    shown = PRINTED_AT_ANY_LEVEL.sub("", first_run.stderr)
    assert not re.search(r"\.cc:\d+\]|All log messages|rebuild TensorFlow", shown)
    assert "WARNING" not in shown


@pytest.mark.smoke
def test_summary_has_plan_speed_and_files(first_run, model_dir):
    assert first_run.stdout.startswith("Embedding plan: 9 tables, 10 features")
    assert re.search(r"Trained on 5,400 examples in [\d.]+ s, [\d,]+ examples/s",
                     first_run.stdout)
    for name in ("click logs", "checkpoints", "SavedModel", "report"):
        [path] = re.findall(rf"^  {name} +(/[^,\n]*)", first_run.stdout, re.MULTILINE)
        assert pathlib.Path(path).exists()
        assert model_dir in pathlib.Path(path).parents


@pytest.mark.smoke
def test_saved_model_serves_what_the_estimator_predicts(first_run):
    [difference] = re.findall(r"whose predictions equal the estimator's within (\S+)",
                              first_run.stdout)
    assert float(difference) < 1e-6


@pytest.mark.smoke
def test_report_has_the_curve_and_the_next_experiment_is_named(first_run, model_dir):
    page = (model_dir / "report" / "report.html").read_text()
    assert f"The newest checkpoint is from step {STEPS}." in page
    assert "auc over steps" in page and "items" in page
    next_command = first_run.stdout.strip().splitlines()[-1]
    assert next_command.endswith(
        "--multiplier 0 0.1 1 --metric auc --out demo_sweep -- demo --examples 6000 --seed 3 "
        f"--batch-size 32 --model-dir {model_dir}")


@pytest.mark.long
def test_run_again_keeps_logs_and_model(first_run, model_dir):
    again = run_demo(model_dir)
    assert again.returncode == 0, again.stderr
    assert "are complete; they are used as they are." in again.stdout
    assert f"The model is already trained: step {STEPS} of {STEPS}." in again.stdout
    assert metrics(again.stdout) == metrics(first_run.stdout)


@pytest.mark.smoke
def test_run_again_with_another_seed_names_the_fix(first_run, model_dir):
    other = run_demo(model_dir, *OPTIONS[:-1], "4")
    assert other.returncode == 2
    assert f"`--seed` must be 3, with which {model_dir} was created, got 4." in other.stderr
    assert "Traceback" not in other.stderr


@pytest.mark.smoke
def test_multiplier_is_one_that_exists_and_stays_the_same(first_run, model_dir, tmp_path):
    unknown = run_demo(tmp_path / "other", "--multiplier", "wramup:10")
    assert unknown.returncode == 2
    assert "Nearest to 'wramup': warmup" in unknown.stderr
    assert not (tmp_path / "other").exists()
    other = run_demo(model_dir, *OPTIONS, "--multiplier", "0")
    assert other.returncode == 2
    assert f"`--multiplier` must be 1, with which {model_dir} was created, got '0'." in other.stderr


def wait_for_a_checkpoint(directory: pathlib.Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not list(directory.glob("model.ckpt-[1-9]*.index")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_interrupted_run_resumes_and_ends_where_the_other_did(first_run, tmp_path):
    process = subprocess.Popen(demo_command(tmp_path), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    wait_for_a_checkpoint(tmp_path / "model", process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, output + errors
    assert "Interrupted. Run the same command again to continue from the last checkpoint." in output

    resumed = run_demo(tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    [step] = re.findall(rf"Resuming the interrupted run at step (\d+) of {STEPS}", resumed.stdout)
    assert 0 < int(step) < STEPS
    assert metrics(resumed.stdout) == metrics(first_run.stdout)


@pytest.mark.long
def test_a_cluster_trains_what_the_demo_then_evaluates_and_serves(tmp_path):
    done = run_demo(tmp_path, *OPTIONS, "--cluster")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\[chief 0\] step \d+ of {STEPS}, loss ", done.stdout)
    assert list((tmp_path / "model" / "eval").glob("events*"))  # of the evaluator
    found = {name: float(value) for name, value in metrics(done.stdout).items()}
    assert found["AUC, trained tables"] > found["AUC, untrained tables"] + 0.02
    assert "whose predictions equal the estimator's" in done.stdout


def test_file_in_the_way_of_the_directory_is_refused(tmp_path):
    (tmp_path / "taken").write_text("kept")
    done = run_demo(tmp_path / "taken" / "run")
    assert done.returncode == 2
    assert "`--model-dir` must be a directory or a new path, got " in done.stderr
    assert (tmp_path / "taken").read_text() == "kept"
