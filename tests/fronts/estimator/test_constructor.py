# SPDX-License-Identifier: Apache-2.0
"""What the constructor and the first call of each mode refuse, and what they allow."""

import inspect
import re

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    counts,
    counts_of,
    input_of,
    model_fn,
    new_estimator,
    new_spec,
    run_config,
)
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

IN_PLACE = settings.TABLES_IN_PLACE.variable

v1_estimator = upstream.estimator
TPUConfig = upstream.tpu_config.TPUConfig


def _arguments(function):
    """Names, kinds and defaults, without annotations, which TensorFlow's have not."""
    return [(argument.name, argument.kind, argument.default)
            for argument in inspect.signature(function).parameters.values()]


def test_arguments_are_tensorflows_in_their_order():
    theirs = inspect.signature(upstream.tpu_estimator.TPUEstimator.__init__).parameters
    ours = inspect.signature(TPUEstimator.__init__).parameters
    assert list(ours)[:len(theirs)] == list(theirs)
    assert [ours[name].default for name in theirs] == [
        parameter.default for parameter in theirs.values()]
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY
               for name in list(ours)[len(theirs):])
    for method in ("train", "evaluate", "predict", "export_saved_model"):
        assert (_arguments(getattr(TPUEstimator, method)) ==
                _arguments(getattr(upstream.tpu_estimator.TPUEstimator, method)))
    assert issubclass(TPUEstimator, upstream.tpu_estimator.TPUEstimator)


@pytest.mark.parametrize("arguments, sentence", [
    ({"use_tpu": "False"}, "`use_tpu` must be one of True, False, None, got 'False'"),
    ({"num_hosts": 0}, "`num_hosts` must be an int of at least 1, got 0"),
    ({"num_hosts": True}, "`num_hosts` must be an int of at least 1, got True"),
])
def test_argument_out_of_its_range_is_refused(tmp_path, arguments, sentence):
    options = {"config": run_config(), "train_batch_size": 2, "eval_batch_size": 2,
               "predict_batch_size": 2, "embedding_config_spec": new_spec(), **arguments}
    with pytest.raises(ValueError, match=sentence):
        TPUEstimator(model_fn, str(tmp_path), **options)


@pytest.mark.parametrize("config, rest", [
    (None, r"None\. Pass tf\.compat\.v1\.estimator\.tpu\.RunConfig\(\.\.\.\)\.$"),
    (5, "5. Pass tf"), ("local", "'local'. Pass tf"), ({"model_dir": "m"}, "{'model_dir': 'm'}. P"),
    (upstream.tpu_config.RunConfig,
     "<class '.*RunConfig'>. Pass an object, not the class: RunConfig"),
    (upstream.estimator.run_config.RunConfig(), "<.*>. That is tf.estimator.RunConfig, for an "
     r"ordinary Estimator\. Pass tf\.compat\.v1\.estimator\.tpu\.RunConfig\(\.\.\.\), which")])
@pytest.mark.parametrize("use_tpu", [True, False])
def test_config_of_another_type_is_refused_with_what_was_given(config, rest, use_tpu):
    with pytest.raises(ValueError, match="^`config` must be provided with type "
                       f"`tpu_config.RunConfig`, got {rest}"):
        TPUEstimator(model_fn, config=config, use_tpu=use_tpu, train_batch_size=2)


def test_config_without_a_tpu_config_is_refused():
    config = upstream.tpu_config.RunConfig("model")
    with pytest.raises(TypeError, match="^`tpu_config` of config must be a TPUConfig, got 'model'"):
        TPUEstimator(model_fn, config=config, train_batch_size=2)


def test_model_dir_of_bytes_is_refused():
    with pytest.raises(TypeError, match="`model_dir` must be a string or a path object, got b'm'"):
        TPUEstimator(model_fn, b"m", config=run_config(), train_batch_size=2)


def test_unknown_value_of_the_variable_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv(IN_PLACE, "no")
    with pytest.raises(ValueError, match=f"`{IN_PLACE}` must be one of 'off', got 'no'"):
        new_estimator(tmp_path, model_fn)


@pytest.mark.parametrize("use_tpu", [True, False])
def test_steps_as_text_are_refused(tmp_path, use_tpu):
    estimator = new_estimator(tmp_path, use_tpu=use_tpu)
    for call, stop, name in ((estimator.train, "steps", "Train steps"),
                             (estimator.train, "max_steps", "Train max_steps"),
                             (estimator.evaluate, "steps", "Eval steps")):
        with pytest.raises(TypeError, match=f"^{name} must be int, got <class 'str'>. Pass an int "
                                            "of at least 1, got '3'"):
            call(input_of([0]), **{stop: "3"})


@pytest.mark.parametrize("use_tpu", [True, False])
@pytest.mark.parametrize("call", ["train", "evaluate", "predict"])
def test_input_fn_and_hooks_of_other_types_are_refused(tmp_path, call, use_tpu):
    def run(*arguments, **options):
        if call == "train":
            options["max_steps"] = 1
        result = getattr(new_estimator(tmp_path, use_tpu=use_tpu), call)(*arguments, **options)
        return list(result) if call == "predict" else result

    for input_fn in (None, 3):
        with pytest.raises(TypeError, match=f"^`input_fn` must be callable, given: {input_fn}. P"):
            run(input_fn)
    with pytest.raises(TypeError, match="^Hooks must be a SessionRunHook, given: 1. Pass a list"):
        run(input_of([0]), hooks=1)
    with pytest.raises(TypeError, match="^Hooks must be a SessionRunHook, given: 1$"):
        run(input_of([0]), hooks=[1])


def test_hooks_may_be_an_iterator(tmp_path):
    class Counter(tf.compat.v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1

    counter = Counter()
    new_estimator(tmp_path).train(
        input_of([0]), hooks=(hook for hook in [counter]), max_steps=1)
    assert counter.runs == 1


@pytest.mark.parametrize("use_tpu", [True, False])
def test_no_predictions_are_refused(tmp_path, use_tpu):
    def predicting(features, labels, mode, params):
        del features, labels, params
        return upstream.tpu_estimator.TPUEstimatorSpec(mode, predictions={})

    with pytest.raises(ValueError, match="^Missing predictions. Return at least one"):
        next(new_estimator(tmp_path, predicting, use_tpu=use_tpu).predict(input_of([0, 1])))


@pytest.mark.parametrize("use_tpu", [True, False])
@pytest.mark.parametrize("predictions, sentence", [
    ({"sum": lambda: tf.constant(1.0)}, "Prediction 'sum' has no batch dimension. Return a value"),
    ({"a": lambda: tf.zeros([2]), "b": lambda: tf.zeros([3])},
     "Batch sizes are {'a': 2, 'b': 3}. To get whole batches, pass")])
def test_predictions_without_a_common_batch_are_refused(tmp_path, predictions, sentence, use_tpu):
    def predicting(features, labels, mode, params):
        del features, labels, params
        return upstream.tpu_estimator.TPUEstimatorSpec(
            mode, predictions={name: value() for name, value in predictions.items()})

    estimator = new_estimator(tmp_path, predicting, use_tpu=use_tpu)
    with pytest.raises(ValueError, match=re.escape(
            f"Batch length of predictions should be same. {sentence}")):
        next(estimator.predict(input_of([0, 1])))
    whole = next(estimator.predict(input_of([0, 1]), yield_single_examples=False))
    assert list(whole) == list(predictions)


def test_model_fn_that_does_not_take_the_labels_it_is_given_is_refused(tmp_path):
    def with_labels(params):
        return input_of([0, 1])(params).map(lambda features: (features, features["id"]))

    def without_labels(features, mode, params):
        return model_fn(features, None, mode, params)

    with pytest.raises(ValueError, match="^model_fn does not take labels, but input_fn "
                                         "returns labels. Add `labels`"):
        new_estimator(tmp_path, without_labels).train(with_labels, max_steps=1)
    estimator = new_estimator(tmp_path, without_labels)
    estimator.train(input_of([0, 1]), max_steps=1)
    assert counts(estimator) == counts_of(0, 1)


def test_arguments_may_be_changed_afterwards(tmp_path):
    source = new_estimator(tmp_path / "source")
    source.train(input_of([3, 3]), max_steps=1)
    warm_start = v1_estimator.WarmStartSettings(
        source.model_dir, "counts", var_name_to_prev_var_name={"counts": "counts"})
    spec, session_config, params, axes = new_spec(), tf.compat.v1.ConfigProto(), {"a": [1]}, [0]
    seen, hooks = [], []

    def model_fn_of_params(features, labels, mode, params):
        seen.append(params["a"])
        return model_fn(features, labels, mode, params)

    estimator = new_estimator(
        tmp_path / "new", model_fn_of_params, spec=spec, params=params, batch_axis=axes,
        warm_start_from=warm_start, config=run_config(
            session_config=session_config, model_dir=str(tmp_path / "new"),
            tpu_config=TPUConfig(iterations_per_loop=1, num_shards=1)))
    warm_start.var_name_to_prev_var_name["counts"] = "missing"
    spec.table_to_config_dict.clear()
    spec.feature_to_config_dict["id"] = None
    session_config.graph_options.optimizer_options.global_jit_level = 99
    params["a"].append(2)
    axes[0] = 5
    estimator.train(input_of([0, 1]), max_steps=1, hooks=hooks)
    assert counts(estimator) == counts_of(0, 1, 3, 3)
    [*predictions] = estimator.predict(input_of([3, 4]))  # makes the plan for inference
    assert [prediction["count"].tolist() for prediction in predictions] == [[2.0], [0.0]]
    assert (seen, hooks) == ([[1], [1]], [])
