# SPDX-License-Identifier: Apache-2.0
"""Tables and features become a plan: what is carried over, what raises."""

import collections
import importlib.util
import inspect
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.config.one_table import RULES, constant_rate, plan_of
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer

pytestmark = pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")


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


def test_arguments_are_left_as_they_are():
    tables, features = {"b": TableConfig(10, 2), "a": TableConfig(10, 2)}, {
        "g": FeatureConfig("b"), "f": FeatureConfig("a")}
    before = dict(tables), dict(features)
    to_plan(tables, features, AdagradParameters(0.1))
    assert (tables, features) == before and list(tables) == ["b", "a"]


@pytest.mark.parametrize("training", [True, False])
def test_feature_of_an_unknown_table_raises(training):
    with pytest.raises(ValueError, match=r"Table of feature 'title' must be one of the tables "
                                         r"\['words'\], got 'word'"):
        to_plan({"words": TableConfig(10, 2)},
                {"title": FeatureConfig("word"), "body": FeatureConfig("words")},
                AdagradParameters(0.1), training=training)


def test_table_that_no_feature_uses_raises():
    with pytest.raises(ValueError, match=r"`tables` must be used by at least one feature each, "
                                         r"got \['users'\]"):
        to_plan({"words": TableConfig(10, 2), "users": TableConfig(10, 2)},
                {"title": FeatureConfig("words")}, AdagradParameters(0.1))


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
