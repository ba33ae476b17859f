# SPDX-License-Identifier: Apache-2.0
"""eval_metrics, host_call, scaffold_fn and summaries: further results of a model_fn."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    run_config,
)

v1 = tf.compat.v1


def model_fn_of(make_spec):
    """Returns a model_fn with loss and train_op, and what `make_spec(features)` adds."""
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"count": features["id"]})
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss) if mode == "train" else
                                None, **make_spec(features))
    return model_fn


def events(directory):
    """Returns (tag, step) -> value of every scalar summary below a directory."""
    found = {}
    for path in sorted(directory.glob("events.*")):
        for event in v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found[value.tag, event.step] = (
                    tf.make_ndarray(value.tensor).tolist() if value.HasField("tensor")
                    else value.simple_value)
    return found


def metrics(activations):
    return {"mean": v1.metrics.mean(activations), "largest": v1.metrics.mean(
        tf.reduce_max(activations))}


@pytest.mark.slow
@pytest.mark.parametrize("give", [
    lambda activations: [activations], lambda activations: {"activations": activations}])
def test_eval_metrics_cover_every_sample(tmp_path, give):
    estimator = new_estimator(tmp_path, model_fn_of(
        lambda features: {"eval_metrics": (metrics, give(features["id"]))}))
    estimator.train(input_of([0, 0, 0, 1]), max_steps=100)
    result = estimator.evaluate(input_of([0, 1, 2, 0, 0]))
    assert result == {"mean": 2.0, "largest": 3.0, "loss": np.float32(-10 / 3),
                      "global_step": 2}
    assert estimator.evaluate(input_of([0]), name="other")["mean"] == 3.0
    written = events(tmp_path / "eval")
    assert written["mean", 2] == 2.0
    assert events(tmp_path / "eval_other")["mean", 2] == 3.0


def test_metrics_are_those_of_the_spec_that_is_returned(tmp_path):
    """TensorFlow keeps them in the class, where specs made later, also by threads, replace them."""
    def model_fn(features, labels, mode, params):
        made = model_fn_of(lambda features: {"eval_metrics": (metrics, [features["id"]])})(
            features, labels, mode, params)
        TPUEstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metrics=(
            lambda ids: {"mean": v1.metrics.mean(ids - 100)}, [features["id"]]))
        return made

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of([0, 0, 0, 1]), max_steps=100)
    assert estimator.evaluate(input_of([0, 1, 2, 0, 0]))["mean"] == 2.0


def test_model_function_may_return_plain_specs(tmp_path):
    """In training always; in evaluation where it is said to run without a TPU."""
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        return tf_estimator.EstimatorSpec(
            mode, loss=loss, train_op=count(loss) if mode == "train" else None,
            eval_metric_ops={"mean": v1.metrics.mean(features["id"])})

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of(range(4)), max_steps=100)
    assert counts(estimator) == counts_of(*range(4))
    with pytest.raises(RuntimeError, match="TPUEstimatorSpec"):
        estimator.evaluate(input_of(range(4)))
    estimator = new_estimator(tmp_path, model_fn, eval_on_tpu=False)
    assert estimator.evaluate(input_of(range(4)))["mean"] == 1.0


def test_host_call_writes_summaries_in_every_step(tmp_path):
    def host_call(step, loss):
        writer = tf.summary.create_file_writer(str(tmp_path / "host"), max_queue=1000)
        with writer.as_default():
            tf.summary.write("total", loss[0], step=step[0])  # needs no TensorBoard
        return v1.summary.all_v2_summary_ops()

    def make_spec(features):
        return {"host_call": (host_call, [
            tf.reshape(v1.train.get_global_step(), [1]),
            tf.reshape(tf.reduce_sum(features["id"]), [1])])}

    estimator = new_estimator(tmp_path, model_fn_of(make_spec))
    estimator.train(input_of([0, 0, 0, 0]), max_steps=100)
    written = events(tmp_path / "host")
    assert sorted(value for (tag, _), value in written.items() if tag == "total") == [0.0, 4.0]


def test_summaries_of_the_model_reach_the_event_file(tmp_path):
    def make_spec(features):
        v1.summary.scalar("total", tf.reduce_sum(features["id"]))
        return {}

    estimator = new_estimator(tmp_path, model_fn_of(make_spec), config=run_config(
        save_summary_steps=1, log_step_count_steps=1))
    estimator.train(input_of([0] * 6), max_steps=100)
    written = events(tmp_path)
    totals = {step: value for (tag, step), value in written.items() if tag == "total"}
    assert sorted(totals.values()) == [0.0, 4.0, 8.0]
    assert {"loss", "global_step/sec", "examples/sec"} <= {tag for tag, _ in written}


def serving_model_fn(features, labels, mode, params):
    spec = model_fn_of(lambda features: {"eval_metrics": (metrics, [features["id"]])})(
        features, labels, mode, params)
    return spec if mode != "infer" else spec._replace(export_outputs={
        "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})


def receive():
    ids = v1.placeholder(tf.int64, [None])
    return tf_estimator.export.ServingInputReceiver({"id": ids}, {"id": ids})


@pytest.mark.slow
def test_train_and_evaluate_evaluates_and_exports(tmp_path):
    estimator = new_estimator(tmp_path, serving_model_fn,
                              config=run_config(save_checkpoints_steps=2))
    result, exports = tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(lambda params: input_of(range(4))(params).repeat(), max_steps=4),
        tf_estimator.EvalSpec(input_of([0, 1, 2]), steps=None, throttle_secs=0,
                              start_delay_secs=0, exporters=[
                                  tf_estimator.FinalExporter("final", receive)]))
    assert counts(estimator) == counts_of(*range(4), *range(4))
    assert result == {"mean": 2.0, "largest": 2.0, "loss": -3.0, "global_step": 4}
    [export] = exports
    served = tf.saved_model.load(export.decode(), ["serve"]).signatures["serving_default"](
        id=tf.constant([3, 9], tf.int64))
    assert served["count"].numpy().tolist() == [[2.0], [0.0]]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [None, 1])
def test_training_is_evaluated_in_memory(tmp_path, steps):
    estimator = new_estimator(tmp_path, serving_model_fn)
    estimator.train(input_of([0, 0, 1, 1, 0, 0]), max_steps=100, hooks=[
        tf_estimator.experimental.InMemoryEvaluatorHook(estimator, input_of([0, 1]), steps=steps,
                                                        every_n_iter=1)])
    written = events(tmp_path / "eval")
    assert {step: value for (tag, step), value in written.items() if tag == "mean"} == {
        0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
