# SPDX-License-Identifier: Apache-2.0
"""The *Parameters: what they hold, and every error that they raise."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.config.optimization_parameters import (
    PARAMETERS,
    AdagradMomentumParameters,
    AdagradParameters,
    AdamParameters,
    FrequencyEstimatorParameters,
    FtrlParameters,
    MomentumParameters,
    ProximalYogiParameters,
    RMSPropParameters,
    StochasticGradientDescentParameters,
    _OptimizationParameters,
)

# Class -> the arguments that have no default. FrequencyEstimatorParameters has no learning rate.
REQUIRED = {
    parameters: {field.name: 0.9 for field in dataclasses.fields(parameters)
                 if field.default is dataclasses.MISSING}
    for parameters in PARAMETERS.values() if parameters is not FrequencyEstimatorParameters}

OUT_OF_RANGE = [
    (AdagradParameters, "initial_accumulator", float("nan"), "a number"),
    (AdagradParameters, "learning_rate", float("nan"), "finite"),
    (AdagradParameters, "learning_rate", float("inf"), "finite"),
    (AdagradParameters, "clip_weight_min", float("nan"), "a number"),
    (MomentumParameters, "momentum", float("nan"), "a number"),
    (MomentumParameters, "use_nesterov", "False", "True or False"),
    (AdamParameters, "lazy_adam", "no", "True or False"),
]

IN_RANGE = [
    (AdamParameters, "beta1", 0.0), (AdamParameters, "beta2", 0.0),
    (FtrlParameters, "learning_rate_power", 0.0), (FtrlParameters, "initial_accumulator_value", 0),
    (ProximalYogiParameters, "initial_accumulator_value", 0.0),
    (AdagradMomentumParameters, "beta2", 0.9), (AdagradParameters, "clip_gradient_max", 1.0),
    (AdagradParameters, "use_gradient_accumulation", np.bool_(True)),
    (AdagradParameters, "use_gradient_accumulation", 0),
    (AdagradParameters, "learning_rate", np.float32(0.5)), (AdagradParameters, "learning_rate", 1),
]


def make(parameters, **arguments):
    return parameters(**{**REQUIRED[parameters], **arguments})


@pytest.mark.parametrize(("parameters", "argument", "value", "rule"), OUT_OF_RANGE)
def test_value_out_of_range_raises(parameters, argument, value, rule):
    with pytest.raises(ValueError, match=rf"`{argument}` must be {rule}, got {value!r}\.$"):
        make(parameters, **{argument: value})


@pytest.mark.parametrize(("parameters", "argument", "value"), IN_RANGE)
def test_value_at_the_border_is_kept(parameters, argument, value):
    assert getattr(make(parameters, **{argument: value}), argument) is value


@pytest.mark.parametrize("limit", ["clip_gradient_min", "clip_gradient_max"])
@pytest.mark.parametrize("parameters", REQUIRED)
def test_gradient_limit_without_accumulation_raises(parameters, limit):
    with pytest.raises(ValueError, match="`use_gradient_accumulation` must be True where "
                                         "clip_gradient_min or clip_gradient_max is given, "
                                         "got False"):
        make(parameters, use_gradient_accumulation=False, **{limit: 1.0})


@pytest.mark.parametrize("limited", ["clip_weight", "clip_gradient"])
@pytest.mark.parametrize("parameters", REQUIRED)
def test_lower_limit_above_the_upper_one_raises(parameters, limited):
    with pytest.raises(ValueError, match=rf"`{limited}_min` must be at most {limited}_max, got "
                                         r"\(2, 1\)"):
        make(parameters, **{f"{limited}_min": 2, f"{limited}_max": 1})
    make(parameters, **{f"{limited}_min": 1, f"{limited}_max": 1.0})


@pytest.mark.parametrize("parameters, argument", [
    (AdagradParameters, "initial_accumulator"), (AdamParameters, "beta1"),
    (RMSPropParameters, "rho"), (StochasticGradientDescentParameters, "clip_weight_max")])
def test_setting_that_is_no_number_raises(parameters, argument):
    with pytest.raises(TypeError, match=f"`{argument}` must be a number, got '1'"):
        make(parameters, **{argument: "1"})


@pytest.mark.parametrize("rate", ["fast", None, lambda step: 0.1, tf.constant(0.1)],
                         ids=["text", "none", "function", "tensor"])
@pytest.mark.parametrize("parameters", REQUIRED)
def test_learning_rate_that_is_no_number_raises(parameters, rate):
    with pytest.raises(TypeError, match=r"`learning_rate` must be a number, got .*Pass a "
                                        r"function of the global step as learning_rate_fn"):
        make(parameters, learning_rate=rate)


@pytest.mark.parametrize("old_arguments", [(-1.0, 1.0), (None, 1.0), (0.0, 1.0)])
def test_weight_limits_in_the_order_of_release_2_4_raise(old_arguments):
    with pytest.raises(ValueError, match="`use_gradient_accumulation` must be True or False, got "
                                         ".*Pass clip_weight_min and clip_weight_max by keyword"):
        StochasticGradientDescentParameters(0.1, *old_arguments)


@pytest.mark.parametrize("parameters", [AdagradParameters, AdamParameters,
                                        StochasticGradientDescentParameters])
def test_keyword_of_release_1_13_names_its_new_place(parameters):
    with pytest.raises(TypeError, match="`pipeline_execution_with_tensor_core` must be passed to "
                                        "EmbeddingConfigSpec instead, got True"):
        parameters(0.1, pipeline_execution_with_tensor_core=True)


def test_frequency_estimator_has_the_attributes_of_the_others():
    made = FrequencyEstimatorParameters(0.1, 1000.0, 5.0, 2.0)
    assert (made.tau, made.max_delta, made.outlier_threshold, made.weight_exponent) == (
        0.1, 1000.0, 5.0, 2.0)
    assert (made.learning_rate, made.use_gradient_accumulation, made.clip_weight_min) == (
        1.0, True, None)


def test_every_class_is_listed_and_has_the_common_base():
    of_module = {name for name, value in vars(optimization_parameters).items()
                 if isinstance(value, type) and issubclass(value, _OptimizationParameters)}
    assert of_module == set(optimization_parameters.__all__)


def test_parameters_are_equal_to_themselves_only_and_may_be_changed():
    first, second = AdagradParameters(0.1), AdagradParameters(0.1)
    assert first != second and len({first, second}) == 2
    first.learning_rate = 0.5
    assert (first.learning_rate, second.learning_rate) == (0.5, 0.1)


def test_parameters_print_copy_and_pickle():
    made = AdamParameters(0.1, epsilon=1e-3)
    assert "epsilon=0.001" in repr(made)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert vars(copied) == vars(made)


def test_subclass_of_a_program_may_add_attributes():
    class Decaying(AdagradParameters):
        def __init__(self, steps):
            super().__init__(0.1, clip_weight_max=2.0)
            self.steps = steps

    made = Decaying(7)
    assert (made.steps, made.clip_weight_max, made.initial_accumulator) == (7, 2.0, 0.1)
