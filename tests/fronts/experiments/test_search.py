# SPDX-License-Identifier: Apache-2.0
"""A search for the best setting: what it finds, what it stops, and that it goes on when killed."""

import csv
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import pytest

from tests.fronts.experiments.planted_child import BEST, loss
from tests.fronts.experiments.sweeps import PROGRAM, run
from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.experiments import search
from tpu_estimator_embedding.experiments.search_space import (
    Choice,
    Range,
    search_space,
    setting_at,
)

pytest.importorskip("optuna", reason="a search needs Optuna, which the extra `search` has")

COMMAND = [sys.executable, "-m", "tests.fronts.experiments.search_planted", "sweep", PROGRAM,
           "--search", "optuna", "--metric", "loss"]


def rows(out):
    with (out / "results.csv").open() as file:
        return list(csv.DictReader(file))


def starts(out):
    path = out / "runs" / "started.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_finds_the_planted_multiplier_in_15_trials_though_it_is_killed(tmp_path):
    out = tmp_path / "out"
    command = [*COMMAND, "--trials", "15", "--multiplier", "log:0.001:10", "--clipping-limit",
               "1", "2", "--out", out]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PLANTED_SECONDS": "0.2"})
    deadline = time.monotonic() + 60
    while len(starts(out)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = starts(out)
    assert len(before) == 4

    done = start(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert len(found) == 15
    after = starts(out)
    # Only the run that was killed with its search may have had to be run again.
    assert set(before) < set(after) and len(after) - len(set(after)) <= 1
    assert len(set(after)) == 15
    best = min(found, key=lambda row: float(row["loss"]))
    assert 1 / 1.5 < float(best["multiplier"]) / BEST < 1.5
    for row in found:
        limit = float(row["clipping_limit"])
        assert float(row["loss"]) == pytest.approx(
            loss(float(row["multiplier"]), limit, 3), rel=1e-5)
    page = (out / "report.html").read_text()
    assert "estimated by PED-ANOVA from n = 15 trials" in page
    assert (out / "loss_by_multiplier.svg").exists()

    assert start(command, cwd=tmp_path).returncode == 0
    assert starts(out) == after  # there is nothing left to do
    other = start([*command, "--clipping-limit", "1"], cwd=tmp_path)
    assert other.returncode == 2 and "Choose another --out." in other.stderr
    grid = start([*command[:5], "--multiplier", "1", "--out", out], cwd=tmp_path)
    assert grid.returncode == 2 and "Choose another --out." in grid.stderr


def test_run_that_is_worse_than_the_median_of_the_others_is_stopped(tmp_path):
    done = start([*COMMAND, "--trials", "9", "--multiplier", "log:0.01:10", "--out", "out"],
                 cwd=tmp_path, PLANTED_SECONDS="0.3")
    assert done.returncode == 0, done.stderr
    out, complete, pruned = tmp_path / "out", [], 0
    for row, name in zip(rows(out), starts(out), strict=True):
        assert name == f"multiplier={row['multiplier']},seed=0"
        value = loss(float(row["multiplier"]), 0, 3)
        if row["error"]:
            pruned += 1
            [step] = map(int, re.findall("^pruned at step ([12])$", row["error"]))
            assert row["step"] == str(step)
            assert value > statistics.median(complete) and len(complete) >= 5
        else:
            complete.append(value)
    assert pruned
    assert f"{9 - pruned} of 9 runs were successful" in (out / "report.html").read_text()


def test_program_that_always_crashes_is_not_run_for_all_trials(tmp_path):
    command = [*COMMAND, "--trials", "20", "--multiplier", "log:0.01:10", "--out", "out"]
    done = start(command, cwd=tmp_path, PLANTED_ERROR="no data")
    assert done.returncode == 2
    assert "The first 5 trials failed, the last one with 'RuntimeError: no data" in done.stderr
    first = starts(tmp_path / "out")
    assert len(first) == 5
    assert start([*command[:-4], "--trials", "6", *command[-4:]], cwd=tmp_path).returncode == 0
    again = starts(tmp_path / "out")[5:]  # now they have their chance
    assert len(again) == 6 and set(first) < set(again)
    assert len(rows(tmp_path / "out")) == 6


def test_half_of_a_line_that_a_killed_search_left_does_no_harm(tmp_path):
    command = [*COMMAND, "--multiplier", "log:0.01:10", "--out", "out"]
    assert start([*command, "--trials", "2"], cwd=tmp_path).returncode == 0
    with (tmp_path / "out" / "search.journal").open("a") as file:
        file.write('{"op_code":4,"worker_id":"')
    for trials in ("3", "4"):
        done = start([*command, "--trials", trials], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(starts(tmp_path / "out")) == len(rows(tmp_path / "out")) == int(trials)


def test_search_ends_on_ctrl_c_with_a_report_and_goes_on(tmp_path):
    out = tmp_path / "out"
    command = list(map(str, [*COMMAND, "--trials", "4", "--multiplier", "log:0.01:10", "--out",
                             out]))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PLANTED_SECONDS": "60"})
    deadline = time.monotonic() + 120
    while not starts(out) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Interrupted. Run the same command again to continue." in said
    [first] = starts(out)
    assert "0 of 1 runs were successful" in (out / "report.html").read_text()
    done = start(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert starts(out)[:2] == [first, first] and len(rows(out)) == 4


def test_metric_that_no_run_has_is_said_after_the_first(tmp_path):
    done = start([*COMMAND[:-1], "auc", "--trials", "6", "--multiplier", "log:0.01:10", "--out",
                  "out"], cwd=tmp_path)
    assert done.returncode == 2
    assert "`--metric` must be one of loss, got 'auc'" in done.stderr
    assert len(starts(tmp_path / "out")) == 1


def test_mistyped_metric_costs_nothing(tmp_path):
    out = tmp_path / "out"
    command = [*COMMAND[:-1], "lsos", "--trials", "3", "--multiplier", "log:0.01:10", "--out", out]
    done = start(command, cwd=tmp_path)
    assert done.returncode == 2
    assert ("`--metric` must be one of loss, got 'lsos'. Nearest: loss. Finished runs are kept: "
            "run the same command again with that metric.") in done.stderr
    [first] = starts(out)

    other_ranges = start([*COMMAND, "--multiplier", "log:0.1:10", "--out", out], cwd=tmp_path)
    assert other_ranges.returncode == 2 and "Choose another --out." in other_ranges.stderr
    command[len(COMMAND) - 1] = "loss"
    done = start(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "No run has the metric 'lsos': the search begins again with 'loss'," in done.stdout
    assert len(rows(out)) == len(starts(out)) == 3
    assert starts(out).count(first) == 1
    assert first == f"multiplier={rows(out)[0]['multiplier']},seed=0"
    found = search.Search(out, search_space({"multiplier": ["log:0.01:10"]}), "loss")
    assert found._study.direction.name == "MINIMIZE"

    command[len(COMMAND) - 1] = "auc"  # the search has values of its metric now
    refused = start(command, cwd=tmp_path)
    assert refused.returncode == 2 and "Choose another --out." in refused.stderr
    command[len(COMMAND) - 1] = "loss"
    assert start(command, cwd=tmp_path).returncode == 0 and len(starts(out)) == 3


def test_second_sweep_in_a_directory_is_refused_until_the_first_is_killed(tmp_path):
    out = tmp_path / "out"
    command = list(map(str, [*COMMAND, "--multiplier", "log:0.01:10", "--out", out, "--trials"]))
    first = subprocess.Popen(
        [*command, "20"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PLANTED_SECONDS": "10"})
    try:
        deadline = time.monotonic() + 120
        while not starts(out) and time.monotonic() < deadline:
            time.sleep(0.02)
        second = start([*command, "20"], cwd=tmp_path)
        grid = start([*COMMAND[:5], "--multiplier", "1", "--out", out], cwd=tmp_path)
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    for refused in (second, grid):
        assert refused.returncode == 2
        assert (f"`--out` must be a directory in which no other sweep runs, got '{out}'. Process "
                f"{first.pid} runs one there: wait for its end, or choose another --out."
                ) in refused.stderr
    assert len(starts(out)) == 1
    done = start([*command, "2"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_search_of_a_real_program(tmp_path):
    done = run("sweep", PROGRAM, "--search", "optuna", "--trials", "2", "--jobs", "2", "--metric",
               "auc", "--learning-rate", "log:0.05:1", "--table", "tbl_user=0", "tbl_user=1",
               "--out", "out", "--", "--evaluations", "1", "--steps", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out")
    assert len(found) == 2
    for row in found:
        assert 0.05 <= float(row["learning_rate"]) <= 1 and row["table:tbl_user"] in ("0", "1")
        assert 0 <= float(row["auc"]) <= 1


@pytest.mark.parametrize("options, reason", [
    (["--multiplier", "log:0:1"], "LOW above 0 and below HIGH, got 'log:0:1'"),
    (["--multiplier", "uniform:2:1"], "got 'uniform:2:1'"),
    (["--learning-rate", "log:0.1"], "`--learning-rate` must be uniform:LOW:HIGH"),
    (["--multiplier", "log:0.1:1", "2"], "must be one range, or values only"),
    (["--multiplier", "slow"], "slow"),
    (["--clipping-limit", "uniform:-1:1"], "`clipping_limit` must be above 0"),
    (["--multiplier", "1"], "to choose from"),
    (["--multiplier", "0", "1", "--seeds", "2"], "`--seeds` must be 1 with --search"),
    (["--multiplier", "0", "1", "--trials", "0"], "`--trials` must be"),
])
def test_what_cannot_be_searched_is_refused_before_anything_is_written(
        options, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", str(PROGRAM), "--search", "optuna", "--metric", "auc", *options]) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options, reason", [
    (["--multiplier", "log:0.1:1"], "Add `--search optuna`"),
    (["--learning-rate", "fast"], "`--learning-rate` must be numbers, got ['fast']"),
    (["--multiplier", "1", "--trials", "3"], "`--trials` must be used with --search optuna only"),
    (["--multiplier", "0", "1", "--search", "optuna"], "`--metric` must be given"),
])
def test_options_of_a_search_need_it(options, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", str(PROGRAM), *options]) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_optuna_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape("[search]")):
        search.check_installed()


def test_values_are_short_and_stay_in_their_range():
    space = {"multiplier": Range(0.1, 0.12346, True), "clipping_limit": Choice(("1", "2"))}
    setting = setting_at(space, {"multiplier": 0.12346, "clipping_limit": "2"})
    assert setting.texts == {"multiplier": "0.12346", "clipping_limit": "2"}
    assert json.dumps(setting_at(space, {"multiplier": 1 / 9, "clipping_limit": "1"}).texts) == (
        '{"multiplier": "0.1111", "clipping_limit": "1"}')
