# SPDX-License-Identifier: Apache-2.0
"""A program configured by dictionaries that uses everything at once is the oracle's.

`mod` over three hosts, an optimizer and a learning rate for some tables and one for the
rest, a sequence, several features of a table, a gradient multiplier, pipelining; the
model_fn reads activations from `features[name]`.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.estimator import counting, linear
from tests.estimator.oracle_model import SLOTS, to_parameters
from tests.oracle import Optimizer
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import FtrlParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

NAMES = sorted(linear.FEATURES)
NUM_HOSTS = 3
FOR_ALL = Optimizer("SGD", 0.05)


def rising(step):
    return 0.02 * step + 0.01


def falling(step):
    return 1.0 - 0.125 * step


OWN = {  # table -> its optimizer as the oracle takes it
    "A": Optimizer("Adagrad", 0.2, {"initial_accumulator": 0.25}),
    "S": Optimizer("Adam", 0.02, {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3}),
    "W": Optimizer("SGD", rising),
    "Q": Optimizer("FTRL", 0.1, {"initial_accumulator_value": 0.3}),
    "O": Optimizer("Momentum", 0.03, {"momentum": 0.5}),
}
RATES = {  # what TableConfig says of learning rates
    "A": {"learning_rate": 0.2}, "O": {"learning_rate": 0.03},
    "W": {"learning_rate_fn": lambda step: rising(tf.cast(step, tf.float32))}}


def parameters_of(name):
    if name == "Q":
        return FtrlParameters(0.1, initial_accumulator_value=0.3)
    own = to_parameters(OWN[name])
    if "learning_rate" in RATES.get(name, {}):
        own.learning_rate = 7.0  # the table's own rate goes before it
    return own


def new_spec():
    return EmbeddingConfigSpec(
        table_to_config_dict={name: TableConfig(
            table.rows, table.dim, combiner=table.combiner,
            optimization_parameters=parameters_of(name) if name in OWN else None,
            **RATES.get(name, {})) for name, table in linear.TABLES.items()},
        feature_to_config_dict={name: FeatureConfig(
            feature.table, feature.length, feature.weights)
            for name, feature in linear.FEATURES.items()},
        optimization_parameters=to_parameters(FOR_ALL), partition_strategy="mod",
        pipeline_execution_with_tensor_core=True,
        experimental_gradient_multiplier_fn=lambda step: falling(tf.cast(step, tf.float32)))


def by_id(values):
    """Puts the rows of a saved tensor, which has them in the order of the hosts, in that of ids."""
    rows = np.empty_like(values)
    rows[np.concatenate(oracle.cut(np.arange(len(values)), NUM_HOSTS, "mod"))] = values
    return rows


class DictOracle(linear.LinearOracle):
    """The linear model with an optimizer for each table, one step behind."""

    def __init__(self, values):
        self.kernel = np.ones(linear.X_SIZE)
        self.tables = oracle.Oracle(
            [oracle.Table(name, values[name], linear.TABLES[name].combiner,
                          OWN.get(name, FOR_ALL)) for name in values],
            [oracle.Feature(name, feature.table, feature.length)
             for name, feature in linear.FEATURES.items()], falling)

    def train(self, data):
        def gradients_of(step, activations):
            residual = self.z(activations, data.xs[step]) - data.ys[step]
            self.kernel = self.kernel - linear.KERNEL_LEARNING_RATE * data.xs[step].T @ residual
            return {name: np.multiply.outer(residual, linear.direction(name))
                    for name in activations}

        oracle.train(self.tables, data.batches, gradients_of, pipelined=True)


@pytest.mark.filterwarnings("ignore:Feature 'd' is dense:UserWarning")
def test_program_with_dictionaries_is_that_of_the_oracle(tmp_path):
    data = linear.random_data(NAMES, [5, 5, 5, 5, 3])

    def input_fn(params):
        return linear.to_dataset(data, params["batch_size"])

    estimator = counting.new_estimator(
        tmp_path, linear.new_model_fn(lambda features: {name: features[name] for name in NAMES}),
        spec=new_spec(), batch_size=5, num_hosts=NUM_HOSTS)
    estimator.train(input_fn, max_steps=100)
    first = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0"))
    expected = DictOracle({name: by_id(first.get_tensor(name)) for name in linear.TABLES})
    expected.train(data)
    compare = {"rtol": 2e-5, "atol": 2e-6}
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), expected.kernel, **compare)
    for name, table in expected.tables.tables.items():
        np.testing.assert_allclose(estimator.get_variable_value(name), table.values,
                                   err_msg=name, **compare)
        for slot, suffix in SLOTS[table.optimizer.kind].items():
            np.testing.assert_allclose(
                estimator.get_variable_value(f"{name}/{suffix}"), table.slots[slot],
                err_msg=f"{name} {slot}", **compare)
    predictions = [prediction["z"] for prediction in estimator.predict(input_fn)]
    np.testing.assert_allclose(predictions, expected.predict(data), rtol=1e-4, atol=1e-5)
