# SPDX-License-Identifier: Apache-2.0
"""Which optimizer, learning rate and clipping limit a table gets."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.config.one_table import constant_rate, optimizer_of, plan_of
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer

pytestmark = pytest.mark.filterwarnings("ignore:clipping_limit clips")


@pytest.mark.parametrize(("options", "expected"), [
    ({}, 0.5), ({"learning_rate": 0.25}, 0.25), ({"learning_rate": 0.0}, 0.5),
    ({"learning_rate": None}, 0.5), ({"learning_rate_fn": constant_rate}, constant_rate)])
def test_rate_of_the_table_goes_before_that_of_the_optimizer(options, expected):
    rate = optimizer_of(AdagradParameters(0.5), TableConfig(10, 1, **options)).learning_rate
    assert rate is expected or rate == expected


def test_rate_of_the_table_overrides_that_of_its_optimizer():
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
    with pytest.raises(ValueError, match=r"`optimization_parameters` is missing.*\['a', 'b'\]"):
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


def test_clipping_limit_warns_once_that_a_tpu_ignored_it():
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
