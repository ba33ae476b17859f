# SPDX-License-Identifier: Apache-2.0
"""From the v1 words to a plan: what is carried over, what goes before what, what raises."""

import collections
import importlib.util
import inspect
import pathlib
import warnings

import numpy as np
import pytest
import tensorflow as tf

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
    _OptimizationParameters,
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
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
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

pytestmark = pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator",
                                        "ignore:clipping_limit clips")


def plan_of(optimization_parameters=None, table=None, **options):
    """A plan of one table with one feature."""
    return to_plan({"words": table or TableConfig(10, 1)}, {"title": FeatureConfig("words")},
                   optimization_parameters, **options)


def optimizer_of(*args, **options):
    return plan_of(*args, **options).table_by_name["words"].optimizer


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


# Learning rates.

def constant_rate(step):
    return 0.125


@pytest.mark.parametrize(("options", "expected"), [
    ({}, 0.5), ({"learning_rate": 0.25}, 0.25), ({"learning_rate": 0.0}, 0.5),
    ({"learning_rate": None}, 0.5), ({"learning_rate_fn": constant_rate}, constant_rate)])
def test_rate_of_the_table_goes_before_that_of_the_optimizer(options, expected):
    rate = optimizer_of(AdagradParameters(0.5), TableConfig(10, 1, **options)).learning_rate
    assert rate is expected or rate == expected


def test_rate_of_the_table_goes_before_that_of_its_own_optimizer():
    table = TableConfig(10, 1, learning_rate=0.25, optimization_parameters=AdagradParameters(0.75))
    assert optimizer_of(AdagradParameters(0.5), table).learning_rate == 0.25


def test_tables_share_a_learning_rate_function_as_one_object():
    tables = {name: TableConfig(10, 2, learning_rate_fn=constant_rate) for name in "ab"}
    plan = to_plan(tables, {name: FeatureConfig(name) for name in "ab"}, AdagradParameters(0.5))
    assert all(table.optimizer.learning_rate is constant_rate for table in plan.tables)


# Optimizers of tables.

def test_optimizer_of_the_table_goes_before_that_for_all():
    tables = {"own": TableConfig(10, 2, optimization_parameters=AdamParameters(0.25)),
              "common": TableConfig(10, 2)}
    plan = to_plan(tables, {name: FeatureConfig(name) for name in tables}, AdagradParameters(0.5))
    assert plan.table_by_name["own"].optimizer == RowOptimizer(Adam(), 0.25)
    assert plan.table_by_name["common"].optimizer == RowOptimizer(Adagrad(), 0.5)


def test_optimizer_for_all_may_be_missing_where_every_table_has_one():
    table = TableConfig(10, 1, optimization_parameters=AdamParameters(0.25))
    assert optimizer_of(None, table).rule == Adam()


def test_training_a_table_without_optimizer_raises_and_names_it():
    tables = {"own": TableConfig(10, 2, optimization_parameters=AdamParameters(0.25)),
              "b": TableConfig(10, 2), "a": TableConfig(10, 2)}
    with pytest.raises(ValueError, match=r"^`optimization_parameters` must be given for all "
                                         r"tables or for the tables \['a', 'b'\], got None"):
        to_plan(tables, {name: FeatureConfig(name) for name in tables})


def test_plan_that_is_not_for_training_has_no_optimizers():
    plan = plan_of(AdagradParameters(0.5), training=False, pipelined=True,
                   gradient_multiplier_fn=constant_rate, clipping_limit=1.0)
    assert plan.table_by_name["words"].optimizer is None
    assert plan.table_by_name["words"].slot_initial_values == {}
    assert not plan.pipelined and plan.gradient_multiplier_fn is None
    assert plan_of(None, training=False).table_by_name["words"].optimizer is None


# The clipping limit.

def test_clipping_limit_clips_both_sides_of_every_table():
    assert optimizer_of(AdagradParameters(0.5), clipping_limit=0.5).gradient_limits == (-0.5, 0.5)
    assert optimizer_of(AdagradParameters(0.5, use_gradient_accumulation=False),
                        clipping_limit=1).gradient_limits == (-1, 1)


@pytest.mark.parametrize("own", [{"clip_gradient_min": -3.0}, {"clip_gradient_max": 4.0},
                                 {"clip_gradient_min": -3.0, "clip_gradient_max": 4.0}])
def test_gradient_limits_of_the_parameters_go_before_the_clipping_limit(own):
    parameters = AdagradParameters(0.5, **own)
    assert optimizer_of(parameters, clipping_limit=0.5).gradient_limits == (
        own.get("clip_gradient_min"), own.get("clip_gradient_max"))


def test_clipping_limit_is_what_rows_are_updated_with():
    optimizer = optimizer_of(StochasticGradientDescentParameters(1.0), clipping_limit=0.5)
    row, _ = optimizer.update(tf.constant([[3.0], [-3.0], [0.25]]), tf.zeros([3, 1]), {}, 1.0, 0)
    np.testing.assert_array_equal(row, [[-0.5], [0.5], [-0.25]])


def test_clipping_limit_says_once_that_a_tpu_ignored_it():
    with pytest.warns(UserWarning, match="clipping_limit clips.*A TPU ignored it"):
        plan_of(AdagradParameters(0.5), clipping_limit=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_of(AdagradParameters(0.5), clipping_limit=0.25)


@pytest.mark.parametrize("options", [{"training": False, "clipping_limit": 0.5}, {}])
def test_nothing_is_said_where_nothing_is_clipped(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_of(AdagradParameters(0.5), **options)
        plan_of(AdagradParameters(0.5, clip_gradient_max=1.0), clipping_limit=0.5)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("training", [True, False])
def test_clipping_limit_that_is_not_positive_raises(limit, training):
    with pytest.raises(ValueError, match="^`clipping_limit` must be a positive number or None"):
        plan_of(AdagradParameters(0.5), clipping_limit=limit, training=training)


def test_clipping_limit_that_is_no_number_raises():
    with pytest.raises(TypeError, match="^`clipping_limit` must be a positive number or None, "
                                        "got '1'"):
        plan_of(AdagradParameters(0.5), clipping_limit="1")


# Tables and features.

def test_tables_and_features_are_carried_over():
    initializer = tf.compat.v1.zeros_initializer()
    plan = to_plan(
        {"words": TableConfig(100, 8, initializer, "sqrtn"), "users": TableConfig(7, 3)},
        {"title": FeatureConfig("words", 5, "title weights"), "body": FeatureConfig("words"),
         "user": FeatureConfig("users")},
        AdagradParameters(0.1), partition_strategy="mod", num_hosts=3, pipelined=True,
        gradient_multiplier_fn=constant_rate)
    words = plan.table_by_name["words"]
    assert (words.vocabulary_size, words.dimension, words.combiner) == (100, 8, "sqrtn")
    assert words.initializer is initializer
    assert [(f.name, f.table, f.max_sequence_length, f.weight_key) for f in plan.features] == [
        ("user", "users", 0, None), ("body", "words", 0, None),
        ("title", "words", 5, "title weights")]
    assert (plan.partition_strategy, plan.num_hosts, plan.pipelined) == ("mod", 3, True)
    assert plan.gradient_multiplier_fn is constant_rate


def test_hot_id_replication_changes_nothing_in_the_plan():
    initializer = tf.compat.v1.zeros_initializer()
    plans = [plan_of(AdagradParameters(0.1), TableConfig(10, 2, initializer,
                                                         hot_id_replication=replicate))
             for replicate in (False, True)]
    assert plans[0] == plans[1]


def test_initializer_may_be_a_class():
    table = plan_of(None, TableConfig(10, 2, tf.compat.v1.ones_initializer),
                    training=False).table_by_name["words"]
    np.testing.assert_array_equal(table.initializer([10, 2], tf.float32), np.ones([10, 2]))


def test_no_tables_give_an_empty_plan():
    assert to_plan({}, {}, AdagradParameters(0.1)).tables == ()


def test_arguments_are_left_as_they_are():
    tables, features = {"b": TableConfig(10, 2), "a": TableConfig(10, 2)}, {
        "g": FeatureConfig("b"), "f": FeatureConfig("a")}
    before = dict(tables), dict(features)
    to_plan(tables, features, AdagradParameters(0.1))
    assert (tables, features) == before and list(tables) == ["b", "a"]


@pytest.mark.parametrize("training", [True, False])
def test_feature_of_an_unknown_table_raises(training):
    with pytest.raises(ValueError, match=r"^`table of feature 'title'` must be one of the tables "
                                         r"\['words'\], got 'word'"):
        to_plan({"words": TableConfig(10, 2)},
                {"title": FeatureConfig("word"), "body": FeatureConfig("words")},
                AdagradParameters(0.1), training=training)


def test_table_that_no_feature_uses_raises():
    with pytest.raises(ValueError, match=r"^`tables` must be used by at least one feature each, "
                                         r"got \['users'\]"):
        to_plan({"words": TableConfig(10, 2), "users": TableConfig(10, 2)},
                {"title": FeatureConfig("words")}, AdagradParameters(0.1))


def test_table_of_another_class_raises():
    table = tf.tpu.experimental.embedding.TableConfig(10, 2)
    with pytest.raises(ValueError, match=r"^`table_to_config_dict\['words'\]` must be a "
                                         r"TableConfig, got TableConfig\(vocabulary_size=10, dim"):
        to_plan({"words": table}, {"title": FeatureConfig("words")})


def test_feature_of_another_class_raises():
    with pytest.raises(ValueError, match=r"^`feature_to_config_dict\['title'\]` must be a "
                                         r"FeatureConfig, got 'words'"):
        to_plan({"words": TableConfig(10, 2)}, {"title": "words"})


@pytest.mark.parametrize("optimizer", [0.1, "adagrad", AdagradParameters,
                                       tf.tpu.experimental.embedding.Adagrad(0.1)],
                         ids=["number", "text", "class", "tf2"])
def test_optimizer_of_another_class_raises(optimizer):
    with pytest.raises(ValueError, match=r"^`optimization_parameters` must be one of the "
                                         r"\*Parameters, such as AdagradParameters, got "):
        plan_of(optimizer)


def test_optimizer_that_only_has_the_base_raises():
    class Lion(_OptimizationParameters):
        pass

    with pytest.raises(ValueError, match=r"^`optimization_parameters` must be one of Adagrad.*got"):
        plan_of(Lion())


def test_unknown_partition_strategy_raises():
    with pytest.raises(ValueError, match="^`partition_strategy` must be one of 'div', 'mod', got"):
        plan_of(AdagradParameters(0.1), partition_strategy="row")


def test_gradient_multiplier_that_cannot_be_called_raises():
    with pytest.raises(ValueError, match="^`gradient_multiplier_fn` must be a callable or None"):
        plan_of(AdagradParameters(0.1), gradient_multiplier_fn=0.5)


# The frequency estimator.

def test_frequency_estimator_of_a_wide_table_raises():
    with pytest.raises(ValueError, match="^`dimension of table 'words'` must be 1 under "
                                         "FrequencyEstimatorParameters, got 2"):
        plan_of(FrequencyEstimatorParameters(0.1, 100.0, 5.0, 1.0), TableConfig(10, 2))


def test_frequency_estimator_says_once_that_its_exponent_is_left_to_the_model():
    parameters = FrequencyEstimatorParameters(0.1, 100.0, 5.0, 1.0)
    with pytest.warns(UserWarning, match="weight_exponent does not change them"):
        plan_of(parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_of(parameters)


# Objects of TensorFlow's own classes.

def test_objects_of_classes_like_tensorflows_are_planned():
    class _OptimizationParameters:
        pass

    class AdagradParameters(_OptimizationParameters):
        learning_rate, initial_accumulator, use_gradient_accumulation = 0.5, 0.3, True
        clip_weight_min, clip_weight_max = -1.0, None
        weight_decay_factor = multiply_weight_decay_factor_by_learning_rate = None
        clip_gradient_min = clip_gradient_max = None

    table = collections.namedtuple("TableConfig", TableConfig._fields)(
        10, 2, tf.compat.v1.zeros_initializer(), "sum", False, None, None, None)
    feature = collections.namedtuple("FeatureConfig", FeatureConfig._fields)("words", 0, None)
    plan = to_plan({"words": table}, {"title": feature}, AdagradParameters())
    assert plan.table_by_name["words"].combiner == "sum"
    assert plan.table_by_name["words"].optimizer == RowOptimizer(
        Adagrad(0.3), 0.5, weight_limits=(-1.0, None))


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="TensorFlow 2.15 is the last that has these classes")
def test_objects_of_the_installed_tensorflows_classes_are_planned():
    theirs = load_tensorflows_own_module()
    assert theirs.TableConfig is not TableConfig
    for parameters, rule in RULES:
        make = getattr(theirs, type(parameters).__name__)
        same = make(**{name: getattr(parameters, name)
                       for name in inspect.signature(make).parameters})
        plan = to_plan({"words": theirs.TableConfig(10, 1, optimization_parameters=same)},
                       {"title": theirs.FeatureConfig("words", 3)}, same)
        assert plan.table_by_name["words"].optimizer.rule == rule
        assert plan.features[0].max_sequence_length == 3


def load_tensorflows_own_module():
    """Loads the file beside which another module may stand under its name."""
    path = pathlib.Path(tf.__file__).parent / "python" / "tpu" / "tpu_embedding.py"
    spec = importlib.util.spec_from_file_location("tensorflows_own_tpu_embedding", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
