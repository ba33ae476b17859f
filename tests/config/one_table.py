# SPDX-License-Identifier: Apache-2.0
"""A plan of one table with one feature, and what each *Parameters become in it."""

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradMomentumParameters,
    AdagradParameters,
    AdamParameters,
    FrequencyEstimatorParameters,
    FtrlParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.sgd import SGD

RULES = [
    (StochasticGradientDescentParameters(0.1), SGD()),
    (AdagradParameters(0.1, 0.3), Adagrad(initial_accumulator=0.3)),
    (ProximalAdagradParameters(0.1, 0.3, 0.01, 0.02), ProximalAdagrad(
        initial_accumulator=0.3, l1_regularization_strength=0.01,
        l2_regularization_strength=0.02)),
    (AdagradMomentumParameters(0.1, 0.8, True, 3, 0.9, 1e-4), AdagradMomentum(
        momentum=0.8, use_nesterov=True, exponent=3, beta2=0.9, epsilon=1e-4)),
    (MomentumParameters(0.1, 0.8, True), Momentum(momentum=0.8, use_nesterov=True)),
    (RMSPropParameters(0.1, 0.7, 0.8, 1e-4), RMSProp(rho=0.7, momentum=0.8, epsilon=1e-4)),
    (AdamParameters(0.1, 0.7, 0.8, 1e-4, False, False), Adam(
        beta1=0.7, beta2=0.8, epsilon=1e-4, lazy_adam=False, sum_inside_sqrt=False)),
    (FtrlParameters(0.1, -0.4, 0.3, 0.01, 0.02, multiply_linear_by_learning_rate=True, beta=0.5,
                    allow_zero_accumulator=True), FTRL(
        learning_rate_power=-0.4, initial_accumulator_value=0.3,
        l1_regularization_strength=0.01, l2_regularization_strength=0.02,
        multiply_linear_by_learning_rate=True, beta=0.5)),
    (ProximalYogiParameters(0.1, 0.7, 0.8, 1e-4, 0.01, 0.02, 0.3), ProximalYogi(
        beta1=0.7, beta2=0.8, epsilon=1e-4, l1_regularization_strength=0.01,
        l2_regularization_strength=0.02, initial_accumulator_value=0.3)),
    (FrequencyEstimatorParameters(0.2, 100.0, 5.0, 1.0), FrequencyEstimator(
        tau=0.2, max_delta=100.0, outlier_threshold=5.0)),
]


def constant_rate(step):
    return 0.125


def plan_of(optimization_parameters=None, table=None, **options):
    """A plan of one table with one feature."""
    return to_plan({"words": table or TableConfig(10, 1)}, {"title": FeatureConfig("words")},
                   optimization_parameters, **options)


def optimizer_of(*args, **options):
    return plan_of(*args, **options).table_by_name["words"].optimizer
