# SPDX-License-Identifier: Apache-2.0
"""tf.contrib.predictor, learn.Experiment and learn_runner, over the Estimators of today."""

import gc
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tpu_estimator_embedding

tpu_estimator_embedding.install()

from tpu_estimator_embedding.compat.contrib import experiment as experiment_module  # noqa: E402

v1 = tf.compat.v1
predictor, learn = tf.contrib.predictor, tf.contrib.learn
KERNEL = [[2.0], [-1.0]]


def model_fn(features, labels, mode, params=None):
    y = v1.layers.dense(features["x"], 1, kernel_initializer=v1.constant_initializer(KERNEL))
    outputs = {"serving_default": v1.estimator.export.PredictOutput({"y": y}),
               "twice": v1.estimator.export.PredictOutput({"z": 2 * y})}
    if mode == v1.estimator.ModeKeys.PREDICT:
        return v1.estimator.EstimatorSpec(mode, predictions={"y": y}, export_outputs=outputs)
    loss = v1.losses.mean_squared_error(labels, y)
    train_op = v1.train.GradientDescentOptimizer(0.0).minimize(loss, v1.train.get_global_step())
    return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": [[1.0, 1.0]]}, [[3.0]])).repeat(50)


def receiver_fn():
    x = v1.placeholder(tf.float32, [None, 2])
    return v1.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


@pytest.fixture
def estimator(tmp_path):
    return v1.estimator.Estimator(model_fn, str(tmp_path / "model"))


@pytest.fixture
def exported(estimator, tmp_path):
    estimator.train(input_fn, steps=1)
    return estimator.export_saved_model(str(tmp_path / "export"), receiver_fn).decode()


def test_predictor_from_estimator(estimator):
    estimator.train(input_fn, steps=1)
    predict = predictor.from_estimator(estimator, receiver_fn)
    assert predict({"x": [[1.0, 1.0], [3.0, 0.0]]})["y"].tolist() == [[1], [6]]
    assert predictor.from_estimator(estimator, receiver_fn, "twice")(
        {"x": [[1.0, 1.0]]})["z"].tolist() == [[2]]
    with pytest.raises(ValueError, match="unexpected keys in input_dict: .'w'.. The inputs are"):
        predict({"w": 1})


def test_predictor_from_saved_model(exported):
    x = np.array([[1.0, 1.0]])
    with tf.Graph().as_default() as graph:
        predict = predictor.from_saved_model(exported, graph=graph)
    assert predict.graph is graph and list(predict.feed_tensors) == ["x"]
    assert predict({"x": x})["y"].tolist() == [[1]]
    twice = predictor.from_saved_model(exported, signature_def_key="twice", tags="serve")
    assert twice({"x": x})["z"].tolist() == [[2]]
    by_name = predictor.from_saved_model(
        exported, input_names={"in": predict.feed_tensors["x"].name},
        output_names={"out": predict.fetch_tensors["y"].name})
    assert by_name({"in": x})["out"].tolist() == [[1]]
    with pytest.raises(ValueError, match="'none'. Available signatures are .'serving_default',"):
        predictor.from_saved_model(exported, "none")
    with pytest.raises(ValueError, match="at most one of signature_def_key"):
        predictor.from_saved_model(exported, "twice", input_names={"in": "x:0"})
    with pytest.raises(ValueError, match="must both be specified"):
        predictor.from_saved_model(exported, input_names={"in": "x:0"})


def test_predictor_takes_sparse_inputs(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.sparse_placeholder(tf.int64, [None, 3])
        v1.saved_model.simple_save(session, str(tmp_path / "sparse"), {"ids": ids}, {
            "sums": tf.sparse.reduce_sum(ids, 1), "ids": tf.sparse.add(ids, ids)})
    predict = predictor.from_saved_model(str(tmp_path / "sparse"))
    given = v1.SparseTensorValue([[0, 1], [1, 0], [1, 2]], [5, 6, 7], [2, 3])
    found = predict({"ids": given})
    assert found["sums"].tolist() == [5, 13] and found["ids"].values.tolist() == [10, 12, 14]


@pytest.mark.slow
def test_experiment_trains_and_evaluates(estimator):
    class Counter(v1.train.SessionRunHook):
        runs = 0

        def after_run(self, context, values):
            Counter.runs += 1

    def experiment_fn(run_config, hparams):
        return learn.Experiment(estimator, input_fn, input_fn, train_steps=hparams["steps"],
                                eval_steps=2, train_monitors=[Counter()], eval_delay_secs=0)

    metrics, _ = learn.learn_runner.run(experiment_fn, run_config=estimator.config,
                                        hparams={"steps": 7})
    assert metrics == {"loss": 4, "global_step": 7} and Counter.runs == 7
    experiment = experiment_fn(None, {"steps": 9})
    experiment.train()
    assert experiment.evaluate(name="again")["global_step"] == 9
    assert (experiment.train_steps, experiment.eval_steps) == (9, 2)
    assert experiment.test()["global_step"] == 10


@pytest.mark.parametrize("verb, task, given, waited", [
    ("train", 0, None, []), ("train", 3, None, [15]), ("train", 99, None, [60]),
    ("train", 3, 7, [7]), ("evaluate", 0, None, [45]), ("evaluate", 0, 0, [])])
def test_experiment_waits(estimator, monkeypatch, verb, task, given, waited):
    estimator.train(input_fn, steps=1)
    estimator._config._task_id = task
    found = []
    monkeypatch.setattr(experiment_module, "time", types.SimpleNamespace(sleep=found.append))
    experiment = learn.Experiment(estimator, input_fn, input_fn, train_steps=1, eval_steps=1,
                                  eval_delay_secs=45)
    getattr(experiment, verb)(delay_secs=given)
    assert found == waited


def test_tuner_runs_an_experiment_for_each_trial(estimator):
    class Tuner:
        steps = [2, 3]

        def next_trial(self):
            return bool(self.steps)

        def run_experiment(self, experiment_fn):
            experiment_fn(estimator.config, self.steps.pop(0)).train()

    learn.learn_runner.tune(lambda run_config, hparams: learn.Experiment(
        estimator, input_fn, input_fn, train_steps=hparams), tuner := Tuner())
    assert not tuner.steps and estimator.get_variable_value("global_step") == 3


def test_learn_runner_takes_a_directory_and_the_name_of_a_method(estimator):
    found = learn.learn_runner.run(
        lambda directory: learn.Experiment(estimator, input_fn, input_fn, train_steps=3),
        "directory", "train")
    assert found is estimator and estimator.get_variable_value("global_step") == 3


@pytest.mark.parametrize("arguments, sentence", [
    ({}, "Must provide either `output_dir` or `run_config`"),
    ({"output_dir": "a", "schedule": "fly"}, "non-existent task 'fly'. The tasks are .'train',"),
    ({"output_dir": "a", "hparams": 1}, "Must set value for `run_config`")])
def test_learn_runner_refuses(estimator, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        learn.learn_runner.run(
            lambda directory: learn.Experiment(estimator, input_fn, input_fn), **arguments)


def test_experiment_refuses_what_has_no_counterpart(estimator):
    with pytest.raises(ValueError, match="`eval_metrics` must be empty"):
        learn.Experiment(estimator, input_fn, input_fn, eval_metrics={"a": 1})
    with pytest.raises(ValueError, match="`min_eval_frequency` must be None or 1, got 100"):
        learn.Experiment(estimator, input_fn, input_fn, min_eval_frequency=100)
    with pytest.raises(TypeError, match="did not return an Experiment instance, got 1"):
        learn.learn_runner.run(lambda directory: 1, "a")


def test_export_for_tpus(estimator, tmp_path):
    estimator.train(input_fn, steps=1)
    path = tf.contrib.tpu.export_estimator_savedmodel(estimator, str(tmp_path / "e"), receiver_fn)
    assert predictor.from_saved_model(path.decode())({"x": [[1.0, 1.0]]})["y"].tolist() == [[1]]


@pytest.mark.slow
def test_evaluation_in_a_training_has_the_values_of_its_tables(tmp_path):
    column = v1.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("id", 3), 1,
        initializer=v1.zeros_initializer())

    def model_fn(features, labels, mode, params):
        y = v1.feature_column.input_layer(features, [column])
        loss = v1.losses.mean_squared_error(labels, y)
        if mode == v1.estimator.ModeKeys.EVAL:
            return v1.estimator.tpu.TPUEstimatorSpec(
                mode, loss=loss, eval_metrics=(lambda y: {"y": v1.metrics.mean(y)}, [y]))
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        return v1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, v1.train.get_global_step()))

    def data(params):
        return tf.data.Dataset.from_tensors(({"id": [[1], [2]]}, [[1.0], [2.0]])).repeat()

    estimator = v1.estimator.tpu.TPUEstimator(
        model_fn, config=v1.estimator.tpu.RunConfig(model_dir=str(tmp_path)), use_tpu=True,
        train_batch_size=2, eval_batch_size=2,
        embedding_config_spec=v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            [column], v1.tpu.experimental.StochasticGradientDescentParameters(0.5)))
    hook = tf.contrib.tpu.TPUInMemoryEvalHook(estimator, data, steps=1, every_n_iter=2)
    estimator.train(data, steps=4, hooks=[hook])
    [events] = (tmp_path / "eval").glob("events*")
    found = {event.step: value.simple_value for event in v1.train.summary_iterator(str(events))
             for value in event.summary.value if value.tag == "y"}
    # Each step halves what is left to the labels, 1 and 2.
    assert found[4] == pytest.approx(1.5 * (1 - 0.5 ** 4)) and found[0] == 0


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("name, argument", [
    ("export_saved_model_for_mode", receiver_fn),
    ("export_all_saved_models", {v1.estimator.ModeKeys.PREDICT: receiver_fn})])
def test_export_of_modes(estimator, tmp_path, name, argument, strip):
    estimator.train(input_fn, steps=1)
    path = getattr(tf.contrib.estimator, name)(
        estimator, str(tmp_path / "one"), argument, strip_default_attrs=strip).decode()
    assert "twice" in tf.saved_model.load(path).signatures
    message = saved_model_pb2.SavedModel.FromString(
        (tmp_path / "one" / path.rpartition("/")[2] / "saved_model.pb").read_bytes())
    [product] = [node for node in message.meta_graphs[0].graph_def.node if node.op == "MatMul"]
    assert ("transpose_a" in product.attr) != strip


@pytest.mark.slow
def test_session_of_a_predictor_is_freed_with_it(exported):
    predict = predictor.from_saved_model(exported)
    session = weakref.ref(predict.session)
    assert session() is not None
    del predict
    gc.collect()
    assert session() is None
