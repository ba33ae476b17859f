# SPDX-License-Identifier: Apache-2.0
"""Every optimizer and every setting around it, through whole programs, as the oracle has it."""

import dataclasses
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.estimator import counting
from tests.estimator.oracle_model import (
    ROWS,
    Data,
    Model,
    ModelOracle,
    assert_same_states,
    dimension,
    states_of,
    to_parameters,
)
from tests.estimator.replica_model import V1, V2, Values, new_replicated, uniform
from tests.optimizer_cases import CASES
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

UNSAVED = {"save_checkpoints_secs": None, "save_checkpoints_steps": None}
pytestmark = pytest.mark.filterwarnings(
    "ignore:Activations under FrequencyEstimatorParameters:UserWarning",
    "ignore:clipping_limit clips:UserWarning")


def key_of(case):
    return "".join(letter if letter.isalnum() else "_" for letter in case)


def train(tmp_path, model, data, *, num_replicas=1, input_mode=V1, model_fn=None, spec=None,
          table_names=None, **options):
    values = Values()
    estimator = new_replicated(tmp_path, model_fn or model.model_fn, num_replicas, spec=spec or
                               model.spec(), input_mode=input_mode, config=UNSAVED, **options)
    estimator.train(data.input_fn, max_steps=100, hooks=[values])
    return states_of(values.of_step, model, table_names)


def check_against_oracle(tmp_path, model, sizes=(8, 8, 8, 5), num_cores=1, **options):
    data = Data(model.optimizers, list(sizes))
    actual = train(tmp_path, model, data, **options)
    expected = ModelOracle(model, actual[0], num_cores=num_cores).train(data)
    assert_same_states(actual, expected)
    return actual


def changed(cases=CASES, **settings):
    """Returns cases with other settings."""
    return {key_of(case): dataclasses.replace(CASES[case], **settings) for case in cases}


def test_tables_with_every_optimizer_in_one_program(tmp_path):
    """Each table has `*Parameters` of its own, of every class there is, before those of all."""
    model = Model(changed())
    check_against_oracle(tmp_path, model, spec=model.spec(
        optimization_parameters=AdagradParameters(9.0)))


@pytest.mark.parametrize("cases, num_replicas, input_mode", [
    (["SGD", "Adagrad", "Adam", "Adam, not lazy", "FTRL", "FrequencyEstimator"], 2, V1),
    (["Momentum", "RMSProp", "Adam, not lazy"], 4, V2)])
def test_replicas_make_one_update_of_their_sum(tmp_path, cases, num_replicas, input_mode):
    check_against_oracle(tmp_path, Model(changed(cases)), [8] * 4, num_replicas=num_replicas,
                         input_mode=input_mode)


ONE_OF_EACH = ["SGD", "Adagrad", "ProximalAdagrad, penalties", "AdagradMomentum", "Momentum",
               "RMSProp", "Adam", "FTRL, multiplied", "ProximalYogi"]


@pytest.mark.parametrize("cases, num_replicas, input_mode", [
    (ONE_OF_EACH, 2, V1), (["Adagrad", "Momentum", "Adam"], 4, V2)])
def test_cores_update_one_after_another_without_accumulation(tmp_path, cases, num_replicas,
                                                             input_mode):
    """Decay and clipped weights make the order matter even to SGD."""
    optimizers = changed(cases, accumulate=False, decay=0.125, weight_limits=(-0.75, 0.75))
    check_against_oracle(tmp_path, Model(optimizers), [8] * 4, num_cores=num_replicas,
                         num_replicas=num_replicas, input_mode=input_mode)


def test_cores_make_another_difference_than_their_sum(tmp_path):
    """So what is compared with the oracle above is not one and the same."""
    model = Model(changed(["Adagrad", "Momentum"], accumulate=False))
    data = Data(model.optimizers, [8] * 3)
    actual = train(tmp_path, model, data, num_replicas=2)
    summed = ModelOracle(Model(changed(["Adagrad", "Momentum"])), actual[0]).train(data)
    for name in model.optimizers:
        assert np.abs(summed[-1][name, None] - actual[-1][name, None]).max() > 1e-3


def test_cores_update_in_order_on_several_hosts(tmp_path):
    model = Model(changed(["Adagrad", "Momentum", "RMSProp"], accumulate=False))
    data = Data(model.optimizers, [8] * 3)
    one, three = (train(tmp_path / str(hosts), with_constant_tables(model), data, num_replicas=2,
                        num_hosts=hosts) for hosts in (1, 3))
    assert_same_states(three, one, 1e-6, 1e-6)


def with_constant_tables(model):
    """Lets tables start from the same values on any number of hosts."""
    class Constant(Model):
        def spec(self, **options):
            spec = super().spec(**options)
            return spec._replace(table_to_config_dict={
                name: table._replace(initializer=tf.compat.v1.constant_initializer(0.25))
                for name, table in spec.table_to_config_dict.items()})

    return Constant(model.optimizers, model.multiplier)


def test_accumulation_on_one_replica_changes_nothing(tmp_path):
    cases = ["Adagrad", "Momentum", "Adam"]
    on, off = Model(changed(cases)), Model(changed(cases, accumulate=False))
    data = Data(on.optimizers, [8] * 3)
    assert_same_states(train(tmp_path / "off", off, data), train(tmp_path / "on", on, data),
                       1e-6, 1e-6)


COLUMN_CASES = ["SGD", "Adagrad", "ProximalAdagrad, penalties", "Momentum, Nesterov", "RMSProp",
                "Adam, epsilon outside", "Adam, not lazy", "FTRL, penalties, beta, power",
                "ProximalYogi, penalties", "AdagradMomentum"]


@pytest.mark.parametrize("case", COLUMN_CASES)
def test_columns_train_with_the_optimizer_of_the_spec(tmp_path, case):
    """Two columns; the learning rate of the second one changes with the step."""
    optimizer = CASES[case]
    model = Model({"a": optimizer, "b": dataclasses.replace(
        optimizer, learning_rate=lambda step: 0.125 + 0.125 * tf.cast(step, tf.float32))})
    columns = {name: embedding_column(
        tf.feature_column.categorical_column_with_identity(name, ROWS), dimension(optimizer),
        model.combiners[name], uniform(seed), learning_rate_fn=model.optimizers[
            name].learning_rate if name == "b" else None)
        for seed, name in enumerate(model.optimizers, start=1)}

    def model_fn(features, labels, mode, params):
        activations = {name: tf.keras.layers.DenseFeatures([column], name=f"take_{name}")(features)
                       for name, column in columns.items()}
        return model.estimator_spec(activations, features["x"], labels, mode)

    table_names = {name: f"take_{name}/{name}_embedding/embedding_weights" for name in columns}
    check_against_oracle(
        tmp_path, model, model_fn=model_fn, table_names=table_names,
        spec=EmbeddingConfigSpec(list(columns.values()), to_parameters(optimizer)))


@pytest.mark.parametrize("settings", [
    {"gradient_limits": (-0.01, 0.015)}, {"gradient_limits": (None, 0.01)},
    {"weight_limits": (-0.5, 0.5)}, {"weight_limits": (-0.25, None)}, {"decay": 0.25},
    {"decay": 0.5, "multiply_decay_by_learning_rate": True}], ids=str)
def test_limits_and_decay(tmp_path, settings):
    model = Model({name: dataclasses.replace(CASES[name], **settings)
                   for name in ("SGD", "Adagrad", "Adam", "FTRL")})
    actual = check_against_oracle(tmp_path, model)
    without = ModelOracle(Model({name: CASES[name] for name in model.optimizers}),
                          actual[0]).train(Data(model.optimizers, [8, 8, 8, 5]))
    for name in model.optimizers:
        assert np.abs(without[-1][name, None] - actual[-1][name, None]).max() > 1e-3


# Learning rates.


def test_rates_of_tables_go_before_that_of_the_optimizer(tmp_path):
    """A function, a number, and 0, which counts as none, before the 0.5 of all tables."""
    counted = dataclasses.replace(CASES["SGD"], learning_rate=0.5)
    model = Model({
        "function": dataclasses.replace(counted, learning_rate=lambda step: 0.5 / (1.0 + tf.cast(
            step, tf.float32))),
        "number": dataclasses.replace(counted, learning_rate=0.125),
        "zero": counted, "none": counted})
    tables = model.spec().table_to_config_dict
    rates = {"number": 0.125, "zero": 0.0}
    spec = model.spec()._replace(
        optimization_parameters=StochasticGradientDescentParameters(0.5),
        table_to_config_dict={name: table._replace(
            optimization_parameters=None, learning_rate=rates.get(name))
            for name, table in tables.items()})
    check_against_oracle(tmp_path, model, spec=spec)


def test_each_function_is_evaluated_once_in_a_step(tmp_path):
    calls = {"shared": [], "own": []}

    def new_rate(name):
        def rate(step):
            return tf.numpy_function(lambda step: calls[name].append(int(step)) or np.float32(0.1),
                                     [step], tf.float32)
        return rate

    shared, own = new_rate("shared"), new_rate("own")
    model = Model({name: dataclasses.replace(CASES["Adagrad"], learning_rate=rate)
                   for name, rate in (("a", shared), ("b", own), ("c", shared))})
    train(tmp_path, model, Data(model.optimizers, [8] * 3), num_replicas=2)
    assert calls == {"shared": [0, 1, 2], "own": [0, 1, 2]}


# The gradient multiplier.


def test_multiplier_scales_the_gradients_of_tables_only(tmp_path):
    model = Model({name: CASES[name] for name in ("SGD", "Adagrad", "Adam")},
                  lambda step: 2.0 - 0.5 * tf.cast(step, tf.float32))
    actual = check_against_oracle(tmp_path, model)
    without = ModelOracle(Model(model.optimizers), actual[0]).train(
        Data(model.optimizers, [8, 8, 8, 5]))
    for name in model.optimizers:
        assert np.abs(without[1][name, None] - actual[1][name, None]).max() > 1e-4
    np.testing.assert_allclose(actual[1]["kernel"], without[1]["kernel"], 1e-5, 1e-6)


def test_multiplier_0_freezes_sgd_and_adagrad_bit_for_bit(tmp_path):
    """Momenta of Adam fade away meanwhile, and go on moving the rows that are looked up."""
    model = Model({name: CASES[name] for name in ("SGD", "Adagrad", "Adam")},
                  lambda step: tf.cast(step < 1, tf.float32))
    states = check_against_oracle(tmp_path, model, [8] * 4)
    frozen = [("SGD", None), ("Adagrad", None), ("Adagrad", "accumulators")]
    for key in frozen:
        assert np.any(states[1][key] != states[0][key])
        for state in states[2:]:
            np.testing.assert_array_equal(state[key], states[1][key])
    assert np.any(states[2]["Adam", None] != states[1]["Adam", None])
    beta1 = CASES["Adam"].hyperparameters["beta1"]
    ratio = states[2]["Adam", "momenta"] / np.where(states[1]["Adam", "momenta"] == 0, np.nan,
                                                    states[1]["Adam", "momenta"])
    touched = np.isclose(ratio, beta1)
    assert touched.any() and np.all(touched | np.isnan(ratio) | (ratio == 1.0))


# clipping_limit.


@pytest.mark.parametrize("num_replicas, accumulate", [(1, True), (2, True), (2, False)])
def test_clipping_limit_clips_the_summed_gradient(tmp_path, num_replicas, accumulate):
    """The core's sum, where sums are applied core by core; own limits go before it."""
    limit = 0.01
    base = dataclasses.replace(CASES["Adagrad"], accumulate=accumulate)
    model = Model({"clipped": base, "own": dataclasses.replace(
        base, accumulate=True, gradient_limits=(-0.02, None))})
    data = Data(model.optimizers, [8] * 3)
    actual = train(tmp_path, model, data, spec=model.spec(clipping_limit=limit),
                   num_replicas=num_replicas)
    clipped = Model({"clipped": dataclasses.replace(base, gradient_limits=(-limit, limit)),
                     "own": model.optimizers["own"]})
    expected = ModelOracle(clipped, actual[0], num_cores=num_replicas).train(data)
    assert_same_states(actual, expected)
    ignored = ModelOracle(model, actual[0], num_cores=num_replicas).train(data)
    assert np.abs(ignored[-1]["clipped", None] - actual[-1]["clipped", None]).max() > 1e-3


@pytest.mark.filterwarnings("default:clipping_limit clips:UserWarning")
def test_clipping_limit_warns_once_per_process(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for run in ("a", "b"):
            estimator = counting.new_estimator(tmp_path / run, spec=counting.new_spec(
                clipping_limit=0.5))
            estimator.train(counting.input_of([0, 0, 1]), max_steps=100)
    texts = [str(warning.message) for warning in caught if "clipping_limit" in
             str(warning.message)]
    assert texts == ["clipping_limit clips the summed gradient of every row here. A TPU ignored "
                     "it: leave it out to repeat what a TPU computed."]
    assert counting.counts(estimator) == [0.5, 0.5] + [0.0] * 10


# Settings that need each other.


def test_non_lazy_adam_needs_accumulation():
    with pytest.raises(ValueError, match="`use_gradient_accumulation` must be True"):
        AdamParameters(0.1, lazy_adam=False, use_gradient_accumulation=False)


def test_table_without_optimizer_is_refused(tmp_path):
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"a": TableConfig(4, 2, optimization_parameters=AdagradParameters(
            0.1)), "b": TableConfig(4, 2)},
        feature_to_config_dict={"a": FeatureConfig("a"), "b": FeatureConfig("b")})
    with pytest.raises(ValueError, match=r"`optimization_parameters` is missing.*\['b'\]"):
        counting.new_estimator(tmp_path, spec=spec).train(counting.input_of([0]), max_steps=1)


def test_tables_need_no_optimizer_to_evaluate_and_predict(tmp_path):
    trained = counting.new_estimator(tmp_path)
    trained.train(counting.input_of([0, 0, 0, 1]), max_steps=100)
    spec = counting.new_spec()
    estimator = counting.new_estimator(tmp_path, spec=EmbeddingConfigSpec(
        table_to_config_dict=spec.table_to_config_dict,
        feature_to_config_dict=spec.feature_to_config_dict))
    assert estimator.evaluate(counting.input_of([0, 1])) == {"loss": -4.0, "global_step": 2}
    assert [prediction["count"][0] for prediction in
            estimator.predict(counting.input_of([1, 0]))] == [1.0, 3.0]
