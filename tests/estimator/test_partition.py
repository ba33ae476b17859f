# SPDX-License-Identifier: Apache-2.0
"""Any number of hosts, by either strategy, is the oracle's one table."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.estimator.counting import TPUEstimatorSpec, new_estimator
from tests.estimator.oracle_model import (
    Data,
    Model,
    ModelOracle,
    assert_same_states,
    rows_of,
    states_of,
)
from tests.estimator.replica_model import Values, new_replicated
from tests.optimizer_cases import CASES
from tests.oracle import cut
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

HOSTS = [(2, "div"), (2, "mod"), (8, "div"), (8, "mod")]


def by_id(states, num_hosts, strategy):
    """Puts rows in the order of their ids; a variable has them in that of the hosts."""
    return [{key: values if key == "kernel" else
             rearranged(values, ids_in_order(key[0], num_hosts, strategy))
             for key, values in state.items()} for state in states]


def ids_in_order(name, num_hosts, strategy):
    return np.concatenate(cut(np.arange(rows_of(name)), num_hosts, strategy))


def rearranged(values, ids):
    rows = np.empty_like(values)
    rows[ids] = values
    return rows


@pytest.mark.parametrize("num_hosts, strategy", HOSTS)
def test_hosts_train_evaluate_and_predict_as_the_oracle(tmp_path, num_hosts, strategy):
    """Nine rows over up to eight hosts, and five rows over eight."""
    model = Model({"big": CASES["Adam, not lazy"], "small": dataclasses.replace(
        CASES["Adagrad"], accumulate=False)})
    data = Data(model.optimizers, [8, 8, 8])
    values = Values()
    estimator = new_replicated(
        tmp_path, model.model_fn, 2, spec=model.spec(partition_strategy=strategy),
        num_hosts=num_hosts)
    estimator.train(data.input_fn, max_steps=100, hooks=[values])
    states = by_id(states_of(values.of_step, model), num_hosts, strategy)
    oracle = ModelOracle(model, states[0], num_cores=2)
    assert_same_states(states, oracle.train(data))
    expected = np.concatenate([oracle.predict(oracle.now, batch, x)
                               for batch, x in zip(data.batches, data.xs, strict=True)])
    predictions = [prediction["p"] for prediction in estimator.predict(data.input_fn)]
    np.testing.assert_allclose(predictions, expected, 1e-4, 1e-5)
    loss = np.mean((expected - np.concatenate(data.ys)) ** 2) / 2
    assert estimator.evaluate(data.input_fn)["loss"] == pytest.approx(loss, rel=1e-4)


def row_ids(shape, dtype=tf.float32, partition_info=None):
    """Gives every row its id, under `div`."""
    offset = partition_info.var_offset[0] if partition_info else 0
    return tf.cast(offset + tf.range(shape[0]), dtype)[:, tf.newaxis] * tf.ones(shape, dtype)


def tables_at_first(tmp_path, num_hosts, **initializers):
    """Returns table name -> its initial rows, put together from all hosts."""
    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(features[name]) for name in initializers])
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, tf.compat.v1.train.get_global_step()))

    spec = EmbeddingConfigSpec(
        table_to_config_dict={name: TableConfig(7, 2, initializer, None)
                              for name, initializer in initializers.items()},
        feature_to_config_dict={name: FeatureConfig(name) for name in initializers},
        optimization_parameters=AdagradParameters(0.1))
    values = Values()
    estimator = new_estimator(tmp_path / str(num_hosts), model_fn, spec=spec, num_hosts=num_hosts)
    estimator.train(lambda params: tf.data.Dataset.range(2).batch(2).map(
        lambda ids: dict.fromkeys(initializers, ids)), max_steps=1, hooks=[values])
    return {name: values.of_step[0][name] for name in initializers}


def test_constant_and_row_id_initializers_give_one_table_on_any_number_of_hosts(tmp_path):
    expected = {"constant": np.full([7, 2], 0.5), "ones": np.ones([7, 2]),
                "row_ids": np.arange(7)[:, np.newaxis] * np.ones([7, 2])}
    for num_hosts in (1, 2, 3, 8):
        tables = tables_at_first(
            tmp_path, num_hosts, constant=tf.compat.v1.constant_initializer(0.5),
            ones=tf.compat.v1.ones_initializer, row_ids=row_ids)
        for name, table in expected.items():
            np.testing.assert_array_equal(tables[name], table, err_msg=f"{name} {num_hosts}")


def test_initializer_is_called_for_each_part_with_its_shape(tmp_path):
    shapes = []

    def initializer(shape, dtype=tf.float32, partition_info=None):
        shapes.append(list(shape))
        return tf.zeros(shape, dtype)

    tables_at_first(tmp_path, 3, t=initializer)
    assert sorted(shapes) == [[2, 2], [2, 2], [3, 2]]
