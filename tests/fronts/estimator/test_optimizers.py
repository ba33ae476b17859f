# SPDX-License-Identifier: Apache-2.0
"""Every optimizer and every setting around it, through whole programs, as the oracle has it."""

import dataclasses

import numpy as np
import pytest

from tests.fronts.estimator import counting
from tests.fronts.estimator.oracle_model import (
    Data,
    Model,
    ModelOracle,
    assert_same_states,
    states_of,
)
from tests.fronts.estimator.replica_model import V1, V2, Values, new_replicated
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

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


@pytest.mark.slow
def test_tables_with_every_optimizer_in_one_program(tmp_path):
    """Each table has its own `*Parameters`, of every class there is, before those of all."""
    model = Model(changed())
    check_against_oracle(tmp_path, model, spec=model.spec(
        optimization_parameters=AdagradParameters(9.0)))


ONE_OF_EACH = ["SGD", "Adagrad", "ProximalAdagrad, penalties", "AdagradMomentum", "Momentum",
               "RMSProp", "Adam", "FTRL, multiplied", "ProximalYogi"]


@pytest.mark.slow
@pytest.mark.parametrize("cases, num_replicas, input_mode", [
    (ONE_OF_EACH, 2, V1), (["Adagrad", "Momentum", "Adam"], 4, V2)])
def test_cores_update_one_after_another_without_accumulation(tmp_path, cases, num_replicas,
                                                             input_mode):
    """Decay and clipped weights make the order matter even to SGD."""
    optimizers = changed(cases, accumulate=False, decay=0.125, weight_limits=(-0.75, 0.75))
    check_against_oracle(tmp_path, Model(optimizers), [8] * 4, num_cores=num_replicas,
                         num_replicas=num_replicas, input_mode=input_mode)



@pytest.mark.parametrize("num_replicas, accumulate", [(1, True), (2, False)])
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
