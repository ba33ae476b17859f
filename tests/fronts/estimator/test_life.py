# SPDX-License-Identifier: Apache-2.0
"""The life of an estimator: trained again and again, evaluated between, stopped early."""

import gc
import json
import pathlib
import resource

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    new_spec,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tests.fronts.estimator.test_host_functions import events, metrics, model_fn_of, receive

v1 = tf.compat.v1


def model_fn(features, labels, mode, params):
    """Counts, measures the mean of the counts it looks up, and exports them."""
    spec = model_fn_of(lambda features: {"eval_metrics": (metrics, [features["id"]])})(
        features, labels, mode, params)
    return spec if mode != "infer" else spec._replace(export_outputs={
        "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})


def kept():
    """Returns (graphs, registered gradients) of the process."""
    gc.collect()
    return (sum(isinstance(value, tf.Graph) for value in gc.get_objects()),
            len(ops.gradient_registry.list()))


def use(estimator):
    estimator.train(input_of([0, 0, 1, 2]), steps=2)
    estimator.evaluate(input_of([0, 1]), steps=1)
    list(estimator.predict(input_of([0, 1])))


@pytest.mark.long
@pytest.mark.parametrize("is_fresh", [False, True])
def test_graphs_do_not_outlive_calls(is_fresh, tmp_path):
    """A notebook or a sweep makes hundreds of estimators in one process."""
    estimator = new_estimator(tmp_path / "first", model_fn)
    use(estimator)  # the graph of what TensorFlow used last may stay
    before = kept()
    for number in (1, 2):
        use(new_estimator(tmp_path / str(number), model_fn) if is_fresh else estimator)
    graphs, gradients = kept()
    assert graphs <= before[0] and gradients == before[1]


@pytest.mark.soak
@pytest.mark.parametrize("is_fresh, count", [(False, 100), (True, 40)])
def test_long_runs_keep_what_a_plain_estimator_keeps(is_fresh, count, tmp_path):
    def plain_model_fn(features, labels, mode):
        weight = v1.get_variable("weight", [8, 1])
        rows = tf.nn.embedding_lookup(weight, features["id"])
        loss = tf.reduce_sum(rows)
        return tf_estimator.EstimatorSpec(
            mode, loss=loss, predictions={"rows": rows},
            train_op=v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_global_step()))

    def grown(new):
        estimator = new(0)
        use(estimator), use(new(1) if is_fresh else estimator)
        before, resident = kept(), resident_bytes()
        for number in range(2, count + 2):
            use(new(number) if is_fresh else estimator)
        graphs, gradients = kept()
        return graphs - before[0], gradients - before[1], resident_bytes() - resident

    def plain(number):
        return tf_estimator.Estimator(plain_model_fn, str(tmp_path / f"plain-{number}"))

    expected = grown(plain)
    found = grown(lambda number: new_estimator(tmp_path / str(number), model_fn))
    assert found[:2] <= expected[:2]
    assert found[2] < 2 * max(expected[2], 0) + 30e6, (found, expected)


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.long
def test_training_and_evaluation_take_turns(tmp_path):
    estimator = new_estimator(tmp_path, model_fn)
    for iteration in range(3):
        estimator.train(input_of([0, 0, 1, 2]), steps=2)
        result = estimator.evaluate(input_of([0, 1]), name="both")
        assert result["mean"] == (2 + 1) * (iteration + 1) / 2
        assert estimator.evaluate(input_of([0]))["mean"] == 2 * (iteration + 1)
        predictions = estimator.predict(input_of([2, 0, 5]))
        assert [prediction["count"][0] for prediction in predictions] == [
            iteration + 1, 2 * (iteration + 1), 0]
    assert estimator.get_variable_value("global_step") == 6
    means = {step: value for (tag, step), value in events(tmp_path / "eval_both").items()
             if tag == "mean"}
    assert means == {2: 1.5, 4: 3.0, 6: 4.5}
    assert {step for _, step in events(tmp_path / "eval")} == {2, 4, 6}
    estimator.train(input_of([7]), max_steps=6)
    assert counts(estimator)[7] == 0


@pytest.mark.slow
def test_estimators_take_over_from_one_another(tmp_path):
    """A separate one for each mode, as programs make them, and each checkpoint by its path."""
    for _ in range(2):
        new_estimator(tmp_path, model_fn).train(input_of([0, 0]), steps=1)
    assert new_estimator(tmp_path, model_fn).evaluate(input_of([0]))["mean"] == 4
    older = str(tmp_path / "model.ckpt-1")
    assert new_estimator(tmp_path, model_fn).evaluate(
        input_of([0]), checkpoint_path=older)["mean"] == 2
    [prediction] = new_estimator(tmp_path, model_fn).predict(
        input_of([0]), checkpoint_path=older, predict_keys=["count"])
    assert prediction == {"count": [2.0]}


@pytest.mark.parametrize("num_ids, sizes", [(5, [2, 2, 1]), (4, [2, 2]), (1, [1]), (0, [])])
def test_predictions_come_by_sample_or_by_batch(tmp_path, num_ids, sizes):
    """The last batch is as large as it is; nothing is padded, repeated or dropped."""
    estimator = new_estimator(tmp_path)
    estimator.train(input_of([1, 3, 3, 4]), max_steps=2)
    expected = counts_of(1, 3, 3, 4)[:num_ids]
    samples = list(finish(lambda: list(estimator.predict(input_of(range(num_ids))))))
    assert [sample["count"].tolist() for sample in samples] == [[value] for value in expected]
    batches = finish(lambda: list(estimator.predict(input_of(range(num_ids)),
                                                    yield_single_examples=False)))
    assert [len(batch["count"]) for batch in batches] == sizes
    assert [value for batch in batches for value in batch["count"][:, 0]] == expected


def train_and_evaluate(estimator, hooks=(), exporters=(), max_steps=4, name="held_out"):
    return tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(lambda params: input_of([0, 0, 0, 1])(params).repeat(),
                               max_steps=max_steps, hooks=hooks),
        tf_estimator.EvalSpec(input_of([0, 1]), steps=None, name=name, throttle_secs=0,
                              start_delay_secs=0, exporters=exporters))


def served_counts(export_dir):
    served = tf.saved_model.load(str(export_dir), ["serve"]).signatures["serving_default"]
    return served(id=tf.constant([0, 1], tf.int64))["count"].numpy()[:, 0].tolist()


@pytest.mark.long
def test_every_exporter_exports_when_it_should(tmp_path):
    def larger_loss(best_eval_result, current_eval_result):
        return current_eval_result["loss"] > best_eval_result["loss"]

    estimator = new_estimator(tmp_path, model_fn, config=run_config(save_checkpoints_steps=2))
    result, exported = train_and_evaluate(estimator, exporters=[
        tf_estimator.LatestExporter("latest", receive, exports_to_keep=1),
        tf_estimator.BestExporter("best", receive, exports_to_keep=5),
        tf_estimator.BestExporter("worst", receive, compare_fn=larger_loss, exports_to_keep=5),
        tf_estimator.FinalExporter("final", receive)])
    assert (result["mean"], result["global_step"]) == (4.0, 4)
    assert len(exported) == 4
    directories = {name: sorted((tmp_path / "export" / name).glob("[0-9]*"))
                   for name in ("latest", "best", "worst", "final")}
    assert {name: len(paths) for name, paths in directories.items()} == {
        "latest": 1, "best": 2, "worst": 1, "final": 1}
    assert [served_counts(path) for path in directories["best"]] == [[3.0, 1.0], [6.0, 2.0]]
    assert served_counts(directories["worst"][0]) == [3.0, 1.0]
    assert served_counts(directories["latest"][0]) == [6.0, 2.0]
    assert served_counts(directories["final"][0]) == [6.0, 2.0]
    assert {step for tag, step in events(tmp_path / "eval_held_out") if tag == "mean"} == {2, 4}
    again, _ = train_and_evaluate(estimator, max_steps=6)
    assert again["global_step"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("make_hook, stopped_at", [
    (lambda estimator: tf_estimator.experimental.stop_if_lower_hook(
        estimator, "loss", -5.0, run_every_secs=None, run_every_steps=1), 4),
    (lambda estimator: tf_estimator.experimental.stop_if_higher_hook(
        estimator, "mean", 1.5, run_every_secs=None, run_every_steps=1), 2),
    (lambda estimator: tf_estimator.experimental.stop_if_no_decrease_hook(
        estimator, "mean", 2, run_every_secs=None, run_every_steps=1), 4),
    (lambda estimator: tf_estimator.experimental.stop_if_no_increase_hook(
        estimator, "mean", 2, run_every_secs=None, run_every_steps=1), 10),
])
def test_training_stops_early_by_the_evaluations(tmp_path, make_hook, stopped_at):
    """Losses are -4, -8, ... and means 2, 4, ... at the steps 2, 4, ..."""
    estimator = new_estimator(tmp_path, model_fn, config=run_config(save_checkpoints_steps=2))
    (tmp_path / "eval").mkdir()  # the hooks look there
    result, _ = train_and_evaluate(estimator, hooks=[make_hook(estimator)], max_steps=10,
                                   name=None)
    assert result["global_step"] == stopped_at
    assert sum(counts(estimator)) == 2 * stopped_at


def test_profile_is_written(tmp_path):
    def profiled_model_fn(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(training_hooks=(
            v1.train.ProfilerHook(save_steps=2, output_dir=str(tmp_path)),))

    estimator = new_estimator(tmp_path, profiled_model_fn)
    estimator.train(input_of(range(8)), max_steps=4)
    timelines = sorted(tmp_path.glob("timeline-*.json"))
    assert [path.name for path in timelines] == ["timeline-2.json", "timeline-4.json"]
    operations = {event.get("name") for event in json.loads(timelines[0].read_text())[
        "traceEvents"]}
    assert operations & {"ResourceGather", "TpuEmbeddingLookUp"}
    assert counts(estimator) == counts_of(*range(8))


@pytest.mark.slow
def test_scaffold_fn_starts_tables_by_scope_and_by_name(tmp_path):
    """Maps of init_from_checkpoint: everything below a scope, or one variable of another name."""
    def new(model_dir, table, scaffold_fn=None):
        spec = new_spec_named(table)

        def table_model_fn(features, labels, mode, params):
            loss = -tf.reduce_sum(features["id"])
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss),
                                    scaffold_fn=scaffold_fn)
        return new_estimator(model_dir, table_model_fn, spec=spec)

    def scaffold_of(assignment):
        def scaffold_fn():
            v1.train.init_from_checkpoint(str(tmp_path / "source"), assignment)
            return v1.train.Scaffold()
        return scaffold_fn

    new(tmp_path / "source", "old/counts").train(input_of([0, 1, 1, 2]), max_steps=2)
    for number, assignment in enumerate([{"old/": "new/"}, {"old/counts": "new/counts"}]):
        estimator = new(tmp_path / str(number), "new/counts", scaffold_of(assignment))
        estimator.train(input_of([5, 5]), max_steps=1)
        np.testing.assert_array_equal(estimator.get_variable_value("new/counts")[:, 0],
                                      counts_of(0, 1, 1, 2, 5, 5))


def new_spec_named(table):
    spec = new_spec()
    return spec._replace(
        table_to_config_dict={table: spec.table_to_config_dict["counts"]},
        feature_to_config_dict={"id": spec.feature_to_config_dict["id"]._replace(table_id=table)})
