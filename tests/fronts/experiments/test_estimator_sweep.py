# SPDX-License-Identifier: Apache-2.0
"""`experiments.sweep` from Python, and its directory in TensorBoard and in a browser.

The program counts: a row is the sum of multiplier times learning rate over the steps that saw
its id, all exact in float32.
"""

import functools
import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests import browser
from tests.fronts.estimator import counting
from tests.fronts.experiments import tensorboard_server
from tpu_estimator_embedding import experiments, multipliers
from tpu_estimator_embedding.experiments import Setting, directory_lock, run_records

STEPS = 6
IDS = [0, 1, 1, 1, 2, 3]  # two in a step; each of the two calls of train sees all of them
SETTINGS = [0, 1, "freeze_until:2", multipliers.constant(0.5) * 0.5,
            Setting(multiplier=2, learning_rate=0.25), Setting(clipping_limit=1.5),
            Setting(multiplier=1, tables={"count*": 0.25})]

# What a step with one id, and the one with the id 1 twice, add to a row.
ADDED = {"multiplier=0": (0, 0), "multiplier=1": (1, 2), "multiplier=0.5*0.5": (0.25, 0.5),
         "multiplier=2,learning_rate=0.25": (0.5, 1), "clipping_limit=1.5": (1, 1.5),
         "multiplier=1,table:count*=0.25": (0.25, 0.5)}


def make_estimator(**options):
    config = counting.run_config(save_summary_steps=1)
    return counting.new_estimator(None, config=config, **options)


@pytest.fixture(name="sweep")
def a_sweep(tmp_path):
    return functools.partial(
        experiments.sweep, make_estimator, train_input_fn=counting.input_of(IDS),
        eval_input_fn=counting.input_of(IDS), max_steps=STEPS, evaluations=2,
        out=tmp_path / "out")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return experiments.sweep(
        make_estimator, SETTINGS, train_input_fn=counting.input_of(IDS),
        eval_input_fn=counting.input_of(IDS), max_steps=STEPS, evaluations=2, seeds=2,
        out=tmp_path_factory.mktemp("sweep") / "out")


def rows_of(result):
    prefix = tf.train.latest_checkpoint(str(result.run.directory / "model"))
    return tf.train.load_variable(prefix, "counts")[:, 0].tolist()


def test_every_run_trains_with_its_setting(results):
    assert [result.error for result in results.runs] == [None] * 2 * len(SETTINGS)
    for result in results.runs:
        label = result.run.setting.label
        if label in ADDED:
            single, double = ADDED[label]
            expected = np.zeros(counting.VOCABULARY)
            for first, second in zip(2 * IDS[::2], 2 * IDS[1::2], strict=True):
                expected[[first, second]] += double / 2 if first == second else single
                expected[first] += double / 2 if first == second else 0
            assert rows_of(result) == expected.tolist(), label


def test_schedule_follows_the_global_step_over_calls_of_train(results):
    [frozen, _] = results.of(Setting("freeze_until:2"))
    assert rows_of(frozen) == counting.counts_of(*IDS[4:], *IDS)


def test_results_have_curves_rates_and_tables(results):
    result = results.runs[2]
    assert [step for step, _ in result.curves["loss"]] == [3, 6]
    assert [step for step, _ in result.curves["training/loss"]] == [1, 2, 3, 4, 5, 6]
    assert result.examples_per_second > 0
    assert result.tables["counts"]["rows"] == counting.VOCABULARY
    assert results.metric == "loss"
    written = json.loads((results.directory / "results.json").read_text())
    assert len(written["runs"]) == 2 * len(SETTINGS)


def test_tensorboard_serves_scalars_histograms_and_hparams(results):
    run = "runs/multiplier=1,seed=0"
    with tensorboard_server.serving(results.directory) as client:
        tags = client.wait_for("scalars/tags", lambda tags: "loss" in tags.get(
            "runs/clipping_limit=1.5,seed=1/model/eval", {}))
        assert "loss_1" in tags[f"{run}/model"]  # the model has an op called loss
        points = client.get("scalars/scalars", run=f"{run}/model", tag="loss_1")
        assert [step for _, step, _ in points] == [1, 2, 3, 4, 5, 6]
        assert "row_norm/counts" in client.get("histograms/tags")[run]
        [[_, step, bins]] = client.get("histograms/histograms", run=run, tag="row_norm/counts")
        assert step == STEPS
        assert sum(count for _, _, count in bins) == counting.VOCABULARY
        experiment = client.post("hparams/experiment", experimentName="")
        assert {info["name"] for info in experiment["hparamInfos"]} == {
            "multiplier", "learning_rate", "clipping_limit", "seed", "table:count*"}
        groups = client.post(
            "hparams/session_groups", experimentName="", startIndex=0, sliceSize=100,
            allowedStatuses=["STATUS_SUCCESS"], colParams=[])["sessionGroups"]
        found = {group["sessions"][0]["name"]: group for group in groups}
        assert len(found) == 2 * len(SETTINGS)
        assert found[run]["hparams"] == {"multiplier": "1", "seed": 0}
        [metric] = found[run]["metricValues"]
        assert metric["name"] == {"group": "model/eval", "tag": "loss"}
        assert metric["value"] == pytest.approx(results.runs[2].final("loss"))
        assert metric["trainingStep"] == STEPS


def test_report_in_a_browser(results, tmp_path):
    browser.check_report(results.directory / "report.html", tmp_path)


def test_failing_run_is_a_row_and_gets_another_chance(sweep):
    luck = iter([False, True, True])

    def unlucky():
        if not next(luck):
            raise ZeroDivisionError("on Sundays")
        return make_estimator()

    unlucky.__qualname__ = make_estimator.__qualname__
    first = functools.partial(sweep.func, unlucky, **sweep.keywords)([0, 1])
    assert [result.error for result in first.runs] == ["ZeroDivisionError: on Sundays", None]
    [failed, well] = first.summaries()
    assert (failed.values, failed.errors) == ([], ["ZeroDivisionError: on Sundays"])
    assert len(well.values) == 1
    again = functools.partial(sweep.func, unlucky, **sweep.keywords)([0, 1])
    assert [result.error for result in again.runs] == [None, None]
    assert next(luck, "used up") == "used up"  # the run that was well was not run again


def test_interrupt_comes_through_after_the_report(sweep, tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.func(interrupted, [0], **sweep.keywords)
    assert "not run" in (tmp_path / "out" / "report.html").read_text() or (
        "interrupted" in (tmp_path / "out" / "report.html").read_text())


def test_metric_that_does_not_exist_stops_after_the_first_run(sweep, tmp_path):
    with pytest.raises(ValueError, match="`--metric` must be one of .*loss.*, got 'los'. "
                                         "Nearest: loss."):
        sweep([0, 1], metric="los")
    assert not (tmp_path / "out" / "runs" / "multiplier=1,seed=0").exists()


def test_estimators_may_be_made_by_a_partial(sweep):
    results = sweep.func(functools.partial(make_estimator), [1], **sweep.keywords)
    assert [result.error for result in results.runs] == [None]


def test_unknown_table_is_a_row_with_the_nearest_name(sweep):
    results = sweep([Setting(tables={"conts": 1})])
    [error] = [result.error for result in results.runs]
    assert error.endswith("must be keyed by names of tables, or patterns that match one, got "
                          "'conts'. Nearest: counts.")


def test_evaluation_without_a_batch_is_no_result(sweep, tmp_path):
    results = sweep.func(make_estimator, [0, 1], **{
        **sweep.keywords, "eval_input_fn": counting.input_of([])})
    assert [str(result.curves["loss"]) for result in results.runs] == ["[(3, nan), (6, nan)]"] * 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "In 2 of 2 runs an evaluation read no batch" in page and "The lowest" not in page
    results = sweep([0.5])
    assert not results.runs[0].run.empty_evaluations


def test_multiplier_that_those_of_tables_replace_is_said_to_have_no_effect(sweep, tmp_path):
    sweep([Setting(multiplier=value, tables={"count*": 0.25}) for value in (0, 1)])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "multiplier has no effect here" in page and "of all settings is the same" in page


def test_figures_and_trackers_are_those_that_are_asked_for(sweep, tmp_path, monkeypatch):
    out, written = tmp_path / "out", []
    monkeypatch.setattr(run_records, "check_trackers", lambda names, argument: None)
    monkeypatch.setattr(run_records, "write", lambda *arguments: written.append(arguments))
    results = sweep([0, 1], figures=["svg"], log=["mlflow", "mlflow"])
    assert {path.suffix for path in out.glob("*_over_steps.*")} == {".svg"}
    [(tracker, logged, files)] = written
    assert tracker == "mlflow" and logged == results
    assert {path.name for path in files} == {"report.html", *(
        path.name for path in out.glob("*.svg"))}
    for path in out.glob("*.svg"):
        path.unlink()
    sweep([0, 1], figures=[])
    assert not [path for kind in ("png", "svg", "pdf") for path in out.glob(f"*.{kind}")]
    assert len(written) == 1


@pytest.mark.parametrize("options, sentence", [
    ({"figures": "pdf"}, "`figures` must be one or more of png,svg,pdf in a list, got 'pdf'."),
    ({"figures": ["gif"]}, "`figures` must be one or more of png,svg,pdf in a list, got .*'gif'"),
    ({"log": "mlflow"}, "`log` must be one or more of mlflow in a list, got 'mlflow'."),
    ({"log": ["comet"]}, "`log` must be one or more of mlflow in a list, got \\['comet'\\]."),
    ({"log": ["wandb"]}, "`log` with wandb is no longer supported"),
    ({"log": ["mlflow"]}, "`log` with mlflow needs mlflow, which is not installed.")])
def test_wrong_figures_and_trackers_are_refused_before_anything_runs(
        options, sentence, sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(run_records.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=sentence):
        sweep([0], **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options, sentence", [
    ({"target": "x"}, "`target` must be a number, got 'x'."),
    ({"target": float("nan")}, "`target` must be a number, got nan."),
    ({"make_estimator": None}, "`make_estimator` must be a function, got None."),
    ({"train_input_fn": None}, "`train_input_fn` must be a function, got None."),
    ({"eval_input_fn": 3}, "`eval_input_fn` must be a function, got 3."),
    ({"out": 3}, "`out` must be a path, got 3."),
    ({"out": None}, "`out` must be a path, got None.")])
def test_arguments_of_other_types_are_refused_before_anything_runs(
        options, sentence, sweep, tmp_path):
    make = options.pop("make_estimator", make_estimator)
    with pytest.raises((TypeError, ValueError), match=sentence):
        sweep.func(make, [0], **{**sweep.keywords, **options})
    assert not (tmp_path / "out").exists()


def test_directory_in_which_no_run_finds_its_checkpoints_is_refused(sweep, tmp_path, monkeypatch):
    (tmp_path / "study[1]").mkdir()
    monkeypatch.chdir(tmp_path / "study[1]")
    with pytest.raises(ValueError, match="`out` must be a path without brackets and backslashes"):
        sweep.func(make_estimator, [0], **{**sweep.keywords, "out": "runs"})
    assert not list(pathlib.Path().iterdir())


def test_another_sweep_is_not_mixed_in(sweep, tmp_path):
    sweep([1])
    with pytest.raises(ValueError, match="Choose another `out`"):
        sweep([1], max_steps=7)


def test_a_sweep_that_runs_keeps_others_out_of_its_directory(sweep, tmp_path):
    refusals = []

    def estimator_of_a_sweep_in_a_sweep():
        with pytest.raises(ValueError, match="no other sweep runs") as refusal:
            sweep([1])
        refusals.append(str(refusal.value))
        return make_estimator()

    results = sweep.func(estimator_of_a_sweep_in_a_sweep, [1], **sweep.keywords)
    assert [result.error for result in results.runs] == [None]
    [refusal] = refusals
    assert f"got '{tmp_path / 'out'}'. Process {os.getpid()} runs one there" in refusal
    assert len(sweep.func(estimator_of_a_sweep_in_a_sweep, [1], **sweep.keywords).runs) == 1


@pytest.mark.parametrize("options, sentence", [
    ({"use_tpu": False}, "use_tpu=False, where the model's optimizer trains the tables"),
    ({"embedding_config_spec": None}, "has no embedding_config_spec")])
def test_estimator_that_nothing_can_be_overridden_of(options, sentence, sweep):
    with pytest.raises(ValueError, match=sentence):
        sweep.func(lambda: make_estimator(**options), [0], **sweep.keywords)


def test_directory_of_a_running_sweep_is_refused_by_the_name_of_the_argument(tmp_path):
    sentence = ("`out` must be a directory in which no other sweep runs, got "
                f"'{tmp_path}'. Process [0-9]+ runs one there: wait for its end, or choose "
                "another `out`.")
    with directory_lock.held(tmp_path, "`out`"), pytest.raises(ValueError, match=sentence):
        experiments.sweep(make_estimator, [1], train_input_fn=dict, eval_input_fn=dict,
                          max_steps=1, out=tmp_path)
