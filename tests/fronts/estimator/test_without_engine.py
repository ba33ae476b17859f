# SPDX-License-Identifier: Apache-2.0
"""use_tpu=False behaves as in TensorFlow, and shares checkpoints with use_tpu=True."""

import ast
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, counting, linear
from tests.fronts.estimator.counting import TPUEstimatorSpec, count, input_of, new_estimator
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters, AdamParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

v1 = tf.compat.v1
NAMES = ["a", "b", "c"]
DATA = linear.random_data(NAMES, [4] * 4)
OPTIMIZERS = {
    "Adagrad": (AdagradParameters(0.1, 0.25), lambda: v1.train.AdagradOptimizer(0.1, 0.25)),
    "Adam": (AdamParameters(0.1), lambda: v1.train.AdamOptimizer(0.1)),
}


def new_program(case, cross_shard=False):
    """Returns a spec, and a model_fn whose own optimizer is the spec's, too."""
    parameters, make_optimizer = OPTIMIZERS[case]
    embeddings = columns.new_columns(NAMES)

    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [linear.X_SIZE], initializer=v1.ones_initializer())
        z = linear.z_of(columns.apply(embeddings, features), features["x"], kernel)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"z": z})
        loss = tf.reduce_sum(tf.square(z - labels)) / 2
        optimizer = make_optimizer()
        optimizer = v1.tpu.CrossShardOptimizer(optimizer) if cross_shard else optimizer
        return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, global_step=v1.train.get_global_step()) if mode == "train" else None)

    return EmbeddingConfigSpec(list(embeddings.values()), parameters), model_fn


def new_linear_estimator(model_dir, case, use_tpu, cross_shard=False, **options):
    spec, model_fn = new_program(case, cross_shard)
    return new_estimator(model_dir, model_fn, spec=spec, batch_size=4, use_tpu=use_tpu, **options)


def data_input(data=DATA):
    return lambda params: linear.to_dataset(data, 4)


def variables_of(estimator):
    return {name: estimator.get_variable_value(name)
            for name in estimator.get_variable_names()}


@pytest.mark.parametrize("cross_shard", [False, True])
def test_without_engine_everything_is_upstreams(tmp_path, cross_shard):
    """Trains as tensorflow_estimator's own TPUEstimator from the same values.

    A CPU has no kernel for CrossShardOptimizer's op, so the other program goes without it.
    """
    spec, model_fn = new_program("Adagrad", cross_shard)
    ours = new_estimator(tmp_path / "ours", model_fn, spec=spec, batch_size=4, use_tpu=False)
    ours.train(data_input(), max_steps=100)
    _, model_fn = new_program("Adagrad")
    theirs = upstream.tpu_estimator.TPUEstimator(
        model_fn, str(tmp_path / "theirs"), counting.run_config(), use_tpu=False,
        train_batch_size=4, eval_batch_size=4, predict_batch_size=4, embedding_config_spec=spec,
        warm_start_from=upstream.estimator.WarmStartSettings(
            str(tmp_path / "ours" / "model.ckpt-0"), vars_to_warm_start=".*"))
    theirs.train(data_input(), max_steps=100)
    assert ours.get_variable_value("global_step") == 4
    assert sorted(theirs.get_variable_names()) == sorted(ours.get_variable_names())
    for name, value in variables_of(theirs).items():
        np.testing.assert_array_equal(ours.get_variable_value(name), value, err_msg=name)
    assert ours.evaluate(data_input())["loss"] == theirs.evaluate(data_input())["loss"]
    np.testing.assert_array_equal(
        [prediction["z"] for prediction in ours.predict(data_input())],
        [prediction["z"] for prediction in theirs.predict(data_input())])


@pytest.mark.smoke
@pytest.mark.parametrize("first", [True, False])
def test_adagrad_continues_in_the_same_model_dir_with_the_other_use_tpu(tmp_path, first):
    """With Adagrad, engine and model optimizer compute the same, under the same names."""
    new_linear_estimator(tmp_path / "whole", "Adagrad", first).train(data_input(), max_steps=4)
    begun = new_linear_estimator(
        tmp_path / "begun", "Adagrad", first, warm_start_from=upstream.estimator.WarmStartSettings(
            str(tmp_path / "whole" / "model.ckpt-0"), vars_to_warm_start=".*"))
    begun.train(data_input(DATA.head(2)), max_steps=2)
    resumed = new_linear_estimator(tmp_path / "begun", "Adagrad", not first)
    evaluated = resumed.evaluate(data_input())["loss"]
    np.testing.assert_allclose(evaluated, begun.evaluate(data_input())["loss"], rtol=1e-5)
    resumed.train(data_input(DATA.tail(2)), max_steps=4)
    assert resumed.get_variable_value("global_step") == 4
    whole = new_linear_estimator(tmp_path / "whole", "Adagrad", first)
    assert sorted(whole.get_variable_names()) == sorted(resumed.get_variable_names())
    for name, value in variables_of(whole).items():
        np.testing.assert_allclose(resumed.get_variable_value(name), value, rtol=1e-4, atol=1e-5,
                                   err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_adam_says_which_slots_are_missing_and_what_keeps_what_was_learned(tmp_path, first):
    """The expression that the error gives is evaluated as a user would copy it."""
    begun = new_linear_estimator(tmp_path / "begun", "Adam", first)
    begun.train(data_input(), max_steps=2)
    other = new_linear_estimator(tmp_path / "begun", "Adam", not first)
    # What is evaluated with are tables, not slots.
    np.testing.assert_allclose(other.evaluate(data_input())["loss"],
                               begun.evaluate(data_input())["loss"], rtol=1e-5)
    with pytest.raises(ValueError) as caught:
        other.train(data_input(), max_steps=4)
    message = str(caught.value)
    missing, present = ("/Adam'", "/Adam/m'") if first else ("/Adam/m'", "/Adam_1'")
    assert re.search(r"`checkpoint` must have the slot '\S+/Adam\S*' of '\S+', got \['", message)
    assert missing in message and present in message
    advice = message.split("warm_start_from=", 1)[1].strip().removesuffix(".")
    other = new_linear_estimator(tmp_path / "other", "Adam", not first,
                                 warm_start_from=ast.literal_eval(advice))
    other.train(data_input(), steps=1)
    start = tf.train.load_checkpoint(str(tmp_path / "other" / "model.ckpt-0"))
    for name, value in variables_of(begun).items():
        is_slot = "Adam" in name or name.startswith("beta")
        if not is_slot and name != "global_step":
            np.testing.assert_array_equal(start.get_tensor(name), value, err_msg=name)


def test_checkpoint_that_does_not_fit_otherwise_raises_what_it_did(tmp_path):
    def model_fn_with(name):
        def model_fn(features, labels, mode, params):
            loss = -tf.reduce_sum(features["id"]) * v1.get_variable(name, [])
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))
        return model_fn

    new_estimator(tmp_path, model_fn_with("old")).train(input_of([0]), max_steps=1)
    with pytest.raises(tf.errors.NotFoundError, match="Key new not found in checkpoint"):
        new_estimator(tmp_path, model_fn_with("new")).train(input_of([0]), max_steps=2)


def test_dictionary_mode_gives_raw_ids_without_engine(tmp_path):
    def model_fn(features, labels, mode, params):
        assert features["id"].dtype == tf.int64
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
        loss = -tf.reduce_sum(tf.cast(features["id"], tf.float32)) * weight
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn, use_tpu=False)
    estimator.train(input_of([1, 2]), max_steps=1)
    assert estimator.get_variable_value("weight") == 3


def test_settings_are_logged_once(tmp_path, logged):
    new_estimator(tmp_path, use_tpu=False)
    assert logged("eval_on_tpu") == [
        "_TPUContext: eval_on_tpu True", "eval_on_tpu ignored because use_tpu is False."]
