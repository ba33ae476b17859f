# SPDX-License-Identifier: Apache-2.0
"""*Parameters become rules and settings of rows."""

import warnings

import pytest

from tests.fronts.config.one_table import RULES, optimizer_of, plan_of
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FrequencyEstimatorParameters,
    _OptimizationParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer

pytestmark = pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")


@pytest.mark.parametrize(("parameters", "rule"), RULES, ids=lambda value: type(value).__name__)
def test_parameters_become_the_rule_with_their_values(parameters, rule):
    assert optimizer_of(parameters).rule == rule


def test_every_class_has_a_rule():
    of_package = {parameters for parameters in _OptimizationParameters.__subclasses__()
                  if parameters.__module__.startswith("tpu_estimator_embedding.")}
    assert {type(parameters) for parameters, _ in RULES} == of_package


def test_common_settings_are_carried_over():
    assert optimizer_of(AdagradParameters(
        0.5, 0.1, True, -1.0, 2.0, 0.01, True, -3.0, 4.0)) == RowOptimizer(
            Adagrad(), 0.5, use_gradient_accumulation=True, gradient_limits=(-3.0, 4.0),
            weight_limits=(-1.0, 2.0), weight_decay_factor=0.01,
            multiply_weight_decay_by_learning_rate=True)


def test_settings_left_out_are_off():
    assert optimizer_of(AdagradParameters(0.5, use_gradient_accumulation=False)) == RowOptimizer(
        Adagrad(), 0.5, use_gradient_accumulation=False)


@pytest.mark.parametrize("factor", [None, 0.0])
def test_weight_decay_of_nothing_drops_its_flag(factor):
    optimizer = optimizer_of(AdagradParameters(
        0.5, weight_decay_factor=factor, multiply_weight_decay_factor_by_learning_rate=True))
    assert optimizer == RowOptimizer(Adagrad(), 0.5)


def test_subclass_of_a_program_is_planned_like_its_base():
    class Mine(AdamParameters):
        pass

    assert optimizer_of(Mine(0.1, 0.7)).rule == Adam(beta1=0.7)


def test_changed_parameters_are_planned_as_they_are_then():
    parameters = AdagradParameters(0.1)
    parameters.learning_rate = 0.5
    assert optimizer_of(parameters).learning_rate == 0.5


# The frequency estimator.

def test_frequency_estimator_of_a_wide_table_raises():
    with pytest.raises(ValueError, match="Dimension of table 'words' must be 1 under "
                                         "FrequencyEstimatorParameters, got 2"):
        plan_of(FrequencyEstimatorParameters(0.1, 100.0, 5.0, 1.0), TableConfig(10, 2))


def test_frequency_estimator_warns_once_that_its_exponent_is_left_to_the_model():
    parameters = FrequencyEstimatorParameters(0.1, 100.0, 5.0, 1.0)
    with pytest.warns(UserWarning, match="weight_exponent does not change them"):
        plan_of(parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_of(parameters)
