# SPDX-License-Identifier: Apache-2.0
"""N steps of a whole program are N steps of the oracle: tables, slots and predictions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, counting, linear
from tests.graphs import ancestors
from tests.spec.oracle import Optimizer
from tests.spec.oracle_optimizers import suffixes
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdamParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

BATCH_SIZES = [5, 5, 5, 5, 3]
# One that has two slots; test_optimizers.py has all others.
PARAMETERS = AdamParameters(0.02, 0.75, 0.9, 1e-3)
OPTIMIZER = Optimizer("Adam", 0.02, {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3})
SLOTS = suffixes("Adam")
pytestmark = pytest.mark.filterwarnings("ignore:Feature 'd' is dense:UserWarning")


def check_against_oracle(tmp_path, spec, activations_of, names, variable_names):
    """Trains, predicts, and compares everything with the oracle's five steps.

    Args:
        variable_names: table -> name of its variable.
    """
    data = linear.random_data(names, BATCH_SIZES)
    estimator = counting.new_estimator(
        tmp_path, linear.new_model_fn(activations_of), spec=spec, batch_size=5)
    estimator.train(lambda params: linear.to_dataset(data, 5), max_steps=100)
    first = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0"))
    expected = linear.LinearOracle(
        names, {table: first.get_tensor(name) for table, name in variable_names.items()},
        OPTIMIZER)
    for table, name in variable_names.items():
        for slot, suffix in SLOTS.items():
            np.testing.assert_array_equal(
                first.get_tensor(f"{name}/{suffix}"),
                expected.tables.tables[table].slots[slot].astype(np.float32))
    expected.train(data)
    assert estimator.get_variable_value("global_step") == len(BATCH_SIZES)
    compare = {"rtol": 2e-5, "atol": 2e-6}
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), expected.kernel, **compare)
    for table, name in variable_names.items():
        wanted = expected.tables.tables[table]
        np.testing.assert_allclose(estimator.get_variable_value(name), wanted.values,
                                   err_msg=table, **compare)
        for slot, suffix in SLOTS.items():
            np.testing.assert_allclose(
                estimator.get_variable_value(f"{name}/{suffix}"), wanted.slots[slot],
                err_msg=f"{table} {slot}", **compare)
    predictions = estimator.predict(lambda params: linear.to_dataset(data, 5))
    np.testing.assert_allclose([prediction["z"] for prediction in predictions],
                               expected.predict(data), rtol=1e-4, atol=1e-5)


def test_steps_with_columns_are_those_of_the_oracle(tmp_path):
    embeddings = columns.new_columns()
    spec = EmbeddingConfigSpec(list(embeddings.values()), PARAMETERS)
    check_against_oracle(
        tmp_path, spec, lambda features: columns.apply(embeddings, features), columns.NAMES,
        columns.variable_names(embeddings))


@pytest.mark.smoke
def test_steps_with_dictionaries_are_those_of_the_oracle(tmp_path):
    names = sorted(linear.FEATURES)
    check_against_oracle(
        tmp_path, columns.new_dict_spec(PARAMETERS),
        lambda features: {name: features[name] for name in names}, names,
        {name: name for name in linear.TABLES})


def test_learning_rate_and_multiplier_see_the_step_before_it_is_counted(tmp_path):
    """Even where the step is counted apart from the optimizer, so that nothing else orders it.

    Rates and multipliers are exact in float32, so that every step is, too.
    """
    counting_ops, steps_read = [], []

    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        step = tf.compat.v1.train.get_global_step()
        counting_ops.append(step.assign_add(1, read_value=False))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        return counting.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(
            counting_ops[0], optimizer.minimize(loss)))

    def noted(function):
        def of_step(step):
            steps_read.append(step)
            return function(tf.cast(step, tf.float32))
        return of_step

    spec = EmbeddingConfigSpec(
        table_to_config_dict={"counts": TableConfig(
            counting.VOCABULARY, 1, tf.compat.v1.zeros_initializer(), None,
            learning_rate_fn=noted(lambda step: step + 1))},
        feature_to_config_dict={"id": FeatureConfig("counts")},
        optimization_parameters=StochasticGradientDescentParameters(7.0),
        experimental_gradient_multiplier_fn=noted(lambda step: tf.pow(2.0, step)))
    estimator = counting.new_estimator(tmp_path, model_fn, spec=spec, batch_size=1)
    estimator.train(counting.input_of(range(10), 1), max_steps=100)
    expected = [(step + 1) * 2.0 ** step for step in range(10)] + [0.0, 0.0]
    assert counting.counts(estimator) == expected
    before_counting = ancestors(counting_ops[0])  # by what depends on what, not by chance
    assert len(steps_read) == 2
    assert all(step.op in before_counting for step in steps_read)
