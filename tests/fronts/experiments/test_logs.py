# SPDX-License-Identifier: Apache-2.0
"""`sweep --log`: what trackers store, read from their files without them."""

import math
import pathlib
import sqlite3

import pytest
from tensorboard.compat.proto import summary_pb2

from tpu_estimator_embedding import cli
from tpu_estimator_embedding.experiments import Setting, run_records
from tpu_estimator_embedding.experiments.event_files import write_summaries
from tpu_estimator_embedding.experiments.run_directory import Run

LOSSES = {"0": [0.5, math.nan, 0.25], "1": [0.75, 0.125]}
AUC = 0.625


def write_run(out, multiplier, losses, error=None):
    """The files of a run that has ended."""
    run = Run(out, Setting(multiplier=multiplier), 0)
    for name, tag, values in (("model", "loss (sum)", losses), ("model/eval", "auc", [AUC])):
        write_summaries(run.directory / name, "1", [
            (10 * place, summary_pb2.Summary(value=[
                summary_pb2.Summary.Value(tag=tag, simple_value=value)]))
            for place, value in enumerate(values, 1)])
    run.end({"error": error} if error else {"examples_per_second": 10.0, "tables": {}})


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Runs the command on a sweep whose runs have ended; returns its exit status."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "a sweep"
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('the program runs, but its runs have ended')")
    for multiplier, losses in LOSSES.items():
        write_run(out, multiplier, losses)

    def run(tracker):
        return cli.main(["sweep", str(program), "--multiplier", *LOSSES, "--metric", "auc",
                         "--figures", "svg", "--out", str(out), "--log", tracker])
    run.out = out
    return run


def rows(out, query):
    with sqlite3.connect(out / "mlflow.db") as store:
        return store.execute(query).fetchall()


def live_runs(out):
    return dict(rows(out, "select name, status from runs where lifecycle_stage = 'active'"))


def test_mlflow_gets_settings_all_steps_and_figures(sweep, capsys):
    pytest.importorskip("mlflow", reason="the extra `mlflow` has it")
    assert sweep("mlflow") == 0
    assert f"mlflow   mlflow ui --backend-store-uri 'sqlite:///{sweep.out}/mlflow.db'" in (
        capsys.readouterr().out)
    names = [f"multiplier={multiplier},seed=0" for multiplier in LOSSES]
    assert live_runs(sweep.out) == {"report": "FINISHED", **dict.fromkeys(names, "FINISHED")}
    assert rows(sweep.out, "select name from experiments where name != 'Default'") == [
        (str(sweep.out),)]
    for name, (multiplier, losses) in zip(names, LOSSES.items(), strict=True):
        of_run = f"(select run_uuid from runs where name = '{name}')"
        assert dict(rows(sweep.out, f"select key, value from params where run_uuid = {of_run}")) \
            == {"multiplier": multiplier, "seed": "0"}
        found = rows(sweep.out, "select step, case is_nan when 1 then null else value end from "
                     f"metrics where key = 'training/loss _sum_' and run_uuid = {of_run} "
                     "order by step")
        assert found == [(10 * place, None if math.isnan(loss) else loss)
                         for place, loss in enumerate(losses, 1)]
        assert rows(sweep.out, f"select step, value from metrics where key = 'auc' and run_uuid = "
                    f"{of_run}") == [(10, AUC)]
        [[parent]] = rows(sweep.out, "select value from tags where key = 'mlflow.parentRunId' and "
                          f"run_uuid = {of_run}")
        assert rows(sweep.out, f"select name from runs where run_uuid = '{parent}'") == [
            ("report",)]
    stored = {path.name for path in (sweep.out / "mlflow").rglob("*") if path.is_file()}
    assert stored == {"report.html", *(path.name for path in sweep.out.glob("*.svg"))}
    assert len(stored) > 1


def test_mlflow_keeps_what_it_has_and_replaces_what_has_changed(sweep):
    pytest.importorskip("mlflow", reason="the extra `mlflow` has it")
    query = "select run_uuid, name from runs where lifecycle_stage = 'active'"
    assert sweep("mlflow") == 0
    before = dict(rows(sweep.out, query))
    assert sweep("mlflow") == 0
    assert dict(rows(sweep.out, query)) == before
    write_run(sweep.out, "1", [0.75, 0.0625])
    assert sweep("mlflow") == 0
    after = dict(rows(sweep.out, query))
    assert sorted(after.values()) == sorted(before.values())
    assert {after[key] for key in after.keys() - before.keys()} == {"multiplier=1,seed=0"}


def test_weights_and_biases_is_refused_with_its_own_import(sweep, capsys):
    assert sweep("wandb") == 2
    message = capsys.readouterr().err
    assert message.startswith("tpu-estimator-embedding sweep: `--log` with wandb is no longer ")
    assert "wandb.init(sync_tensorboard=True)" in message
    assert not (sweep.out / "sweep.json").exists()


def test_tracker_that_is_missing_is_said_before_anything_runs(sweep, monkeypatch, capsys):
    monkeypatch.setattr(run_records.importlib.util, "find_spec", lambda name: None)
    assert sweep("mlflow") == 2
    assert "pip install 'tpu_estimator_embedding[mlflow]'" in capsys.readouterr().err
    assert not (sweep.out / "sweep.json").exists()
    assert not pathlib.Path(sweep.out, "report.html").exists()
