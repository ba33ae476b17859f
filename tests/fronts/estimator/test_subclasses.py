# SPDX-License-Identifier: Apache-2.0
"""Programs derive from TPUEstimator and override what they like."""

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    model_fn,
    new_spec,
    run_config,
)
from tests.fronts.estimator.test_host_functions import receive
from tpu_estimator_embedding.estimator.tpu_estimator import EXPORT_FOR_TPU, TPUEstimator

BATCH_SIZES = {"train_batch_size": 2, "eval_batch_size": 2, "predict_batch_size": 2}


class ShiftedInput(TPUEstimator):
    """Wraps what the overridden method returns: on a TPU, a function of the context."""

    def _call_input_fn(self, input_fn, mode, input_context=None):
        call = super()._call_input_fn(input_fn, mode, input_context)
        return lambda context: call(context).map(
            lambda features: {"id": features["id"] + 1})


class OtherInput(TPUEstimator):
    """Hands another input_fn on, with the former signature."""

    def _call_input_fn(self, input_fn, mode):
        def doubled(params):
            return input_fn(params).concatenate(input_fn(params))
        return super()._call_input_fn(doubled, mode)


class Rounded(TPUEstimator):
    """Changes predictions and evaluations before returning them."""

    def predict(self, input_fn, *args, **kwargs):
        for prediction in super().predict(input_fn, *args, **kwargs):
            yield round(float(prediction["count"][0]))

    def evaluate(self, *args, **kwargs):
        return {**super().evaluate(*args, **kwargs), "rounded": True}

    def train(self, input_fn, **kwargs):
        self.trained = kwargs
        return super().train(input_fn, **kwargs)


class Noting(TPUEstimator):
    """Looks at what passes through the methods between input_fn and model_fn."""

    def _call_model_fn(self, features, labels, mode, config):
        self.modes = [*getattr(self, "modes", []), mode]
        return super()._call_model_fn(features, labels, mode, config)

    def _get_features_and_labels_from_input_fn(self, input_fn, mode):
        assert self.config.model_dir == self.model_dir
        return super()._get_features_and_labels_from_input_fn(input_fn, mode)

    def export_saved_model(self, directory, *args, **kwargs):
        return super().export_saved_model(str(directory), *args, **kwargs).decode()


class StepCount(tf.compat.v1.train.SessionRunHook):
    """Counts the runs of the sessions that it is in."""

    def __init__(self):
        self.runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1


class Hooked(TPUEstimator):
    """Adds hooks wherever a method passes some on, and takes part in making the graph."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.of_input, self.of_training, self.of_model = StepCount(), StepCount(), StepCount()
        self.global_steps = []
        self.losses = []

    def _create_global_step(self, graph):
        step = super()._create_global_step(graph)
        self.global_steps.append(step.op.name)
        return step

    def _get_features_and_labels_from_input_fn(self, input_fn, mode):
        features, labels, hooks = super()._get_features_and_labels_from_input_fn(input_fn, mode)
        return features, labels, [*hooks, self.of_input]

    def _call_model_fn(self, features, labels, mode, config):
        spec = super()._call_model_fn(features, labels, mode, config)
        return spec._replace(training_hooks=[self.of_model, *spec.training_hooks],
                             evaluation_hooks=[self.of_model, *spec.evaluation_hooks])

    def _train_model(self, input_fn, hooks, saving_listeners):
        loss = super()._train_model(input_fn, [*hooks, self.of_training], saving_listeners)
        self.losses.append(float(loss))
        return loss


class OtherFeatures(TPUEstimator):
    """Changes the features, which are a function of the context, as on a TPU."""

    def _get_features_and_labels_from_input_fn(self, input_fn, mode):
        features, labels, hooks = super()._get_features_and_labels_from_input_fn(input_fn, mode)
        return lambda context: features(context).map(
            lambda batch: {"id": batch["id"] + 1}), labels, hooks


def new(cls, model_dir, model_fn=model_fn):
    return cls(model_fn, str(model_dir), run_config(), embedding_config_spec=new_spec(),
               **BATCH_SIZES)


def test_call_input_fn_may_wrap_what_upstream_returns(tmp_path):
    estimator = new(ShiftedInput, tmp_path)
    estimator.train(input_of([0, 1, 2]), max_steps=100)
    assert counts(estimator) == counts_of(1, 2, 3)
    assert [prediction["count"][0] for prediction in estimator.predict(input_of([0, 5]))] == [1, 0]
    assert estimator.evaluate(input_of([0]))["loss"] == -1.0


def test_call_input_fn_may_hand_another_function_on(tmp_path):
    estimator = new(OtherInput, tmp_path)
    estimator.train(input_of([0, 1, 2]), max_steps=100)
    assert counts(estimator) == counts_of(0, 1, 2, 0, 1, 2)


def test_public_methods_may_be_overridden(tmp_path):
    estimator = new(Rounded, tmp_path)
    estimator.train(input_of([0, 0, 1]), max_steps=100)
    assert estimator.trained == {"max_steps": 100}
    assert list(estimator.predict(input_of([0, 1, 2]))) == [2, 1, 0]
    assert estimator.evaluate(input_of([0]), steps=1) == {
        "loss": -2.0, "global_step": 2, "rounded": True}


@pytest.mark.slow
def test_overridden_methods_see_every_mode(tmp_path):
    def exported_model_fn(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec._replace(export_outputs={
            "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})

    estimator = new(Noting, tmp_path / "model", exported_model_fn)
    estimator.train(input_of([0, 0, 1]), max_steps=100)
    estimator.evaluate(input_of([0]))
    list(estimator.predict(input_of([0])))
    exported = estimator.export_saved_model(tmp_path / "export", receive)
    # The export builds the graph once for each set of tags.
    assert estimator.modes == ["train", "eval", "infer", "infer", EXPORT_FOR_TPU]
    served = tf.saved_model.load(exported, ["serve"]).signatures["serving_default"]
    assert served(id=tf.constant([0, 1], tf.int64))["count"].numpy()[:, 0].tolist() == [2, 1]


@pytest.mark.parametrize("use_tpu", [True, False])
def test_overridden_methods_add_hooks(tmp_path, use_tpu):
    def plain_model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", [])
        loss = tf.reduce_sum(weight * tf.cast(features["id"], tf.float32))
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss) if mode == "train" else None)

    estimator = Hooked(plain_model_fn, str(tmp_path), run_config(), use_tpu=use_tpu, **BATCH_SIZES)
    estimator.train(input_of(range(6)), max_steps=3)
    assert [estimator.of_input.runs, estimator.of_training.runs, estimator.of_model.runs] == [3] * 3
    assert estimator.global_steps == ["global_step"] and len(estimator.losses) == 1
    estimator.evaluate(input_of(range(4)))
    assert [estimator.of_input.runs, estimator.of_training.runs, estimator.of_model.runs] == [
        5, 3, 5]


def test_features_may_be_changed_before_the_model_gets_them(tmp_path):
    estimator = new(OtherFeatures, tmp_path)
    estimator.train(input_of([0, 1, 2]), max_steps=100)
    assert counts(estimator) == counts_of(1, 2, 3)


def test_train_and_evaluate_calls_overridden_methods(tmp_path):
    estimator = new(Hooked, tmp_path)
    tf_estimator.train_and_evaluate(
        estimator, tf_estimator.TrainSpec(input_of(range(6)), max_steps=3),
        tf_estimator.EvalSpec(input_of([0]), steps=1))
    assert counts(estimator) == counts_of(*range(6))
    assert len(estimator.losses) == 1 and len(estimator.global_steps) == 2
    assert [estimator.of_training.runs, estimator.of_model.runs] == [3, 4]


@pytest.mark.parametrize("arguments, keywords", [
    # model_fn, model_dir, config, params, use_tpu, the batch sizes, batch_axis, eval_on_tpu,
    # export_to_tpu, export_to_cpu, warm_start_from, embedding_config_spec
    ((None, True, 2, 2, 2, None, True, False, True, None, "spec"), {}),
    ((), {"embedding_config_spec": "spec", **BATCH_SIZES}),
])
def test_spec_may_be_given_by_position_or_keyword_through_a_subclass(
        tmp_path, arguments, keywords):
    class Passing(TPUEstimator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.is_mine = True

    def filled(value):
        return new_spec() if isinstance(value, str) and value == "spec" else value

    estimator = Passing(model_fn, str(tmp_path), run_config(), *map(filled, arguments),
                        **{name: filled(value) for name, value in keywords.items()})
    estimator.train(input_of([0, 0, 1]), max_steps=100)
    assert estimator.is_mine
    assert counts(estimator) == counts_of(0, 0, 1)


@pytest.mark.parametrize("name", ["_train_with_estimator_spec", "_evaluate_run"])
def test_an_override_of_a_method_that_is_not_called_is_refused(name, tmp_path):
    derived = type("Derived", (TPUEstimator,), {name: lambda self, *args, **kwargs: None})
    with pytest.raises(ValueError, match=f"cannot override members of Estimator.*{name}.*Override"):
        new(derived, tmp_path)
