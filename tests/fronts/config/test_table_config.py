# SPDX-License-Identifier: Apache-2.0
import copy

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig, is_table_config


def constant_rate(step):
    return 0.5


@pytest.mark.parametrize("value", [0, -1, 2.0, "10", None, np.int64(10)])
@pytest.mark.parametrize("argument", ["vocabulary_size", "dimension"])
def test_size_that_is_no_positive_int_raises(argument, value):
    with pytest.raises(ValueError, match=rf"`{argument}` must be an int of at least 1, got "):
        TableConfig(**{"vocabulary_size": 10, "dimension": 4, argument: value})


def test_learning_rate_key_of_release_1_15_names_the_fix():
    with pytest.raises(TypeError, match="`learning_rate_key` must be replaced by "
                                        "`learning_rate_fn`, a function of the global step, "
                                        "got 'slow'"):
        TableConfig(10, 4, learning_rate_key="slow")


def test_learning_rate_key_of_release_1_15_in_its_position_names_the_fix():
    with pytest.raises(ValueError, match="`learning_rate_fn` must be a function of the global "
                                         "step or None, got 'slow'. Release 1.15"):
        TableConfig(10, 4, None, "mean", False, None, "slow")


def test_learning_rate_that_is_no_number_raises():
    with pytest.raises(TypeError, match="`learning_rate` must be a number, got <function"):
        TableConfig(10, 4, learning_rate=constant_rate)


def test_default_initializer_has_the_deviation_of_the_dimension_and_is_truncated():
    values = TableConfig(10, 16).initializer([4000, 16], tf.float32).numpy()
    assert abs(values).max() <= 2 * 0.25
    # A normal distribution cut at ±2σ has 0.8796 of the deviation.
    assert values.std() == pytest.approx(0.8796 * 0.25, rel=0.02)
    assert values.mean() == pytest.approx(0.0, abs=0.01)


def test_attributes_are_the_arguments():
    optimizer = AdagradParameters(0.1)
    table = TableConfig(10, 4, tf.zeros_initializer(), None, True, None, constant_rate, optimizer)
    assert table.combiner is None and table.hot_id_replication is True
    assert table.learning_rate_fn is constant_rate
    assert table.optimization_parameters is optimizer


def test_table_config_is_a_tuple_that_copies_and_replaces():
    table = TableConfig(10, 4, tf.zeros_initializer(), learning_rate_fn=constant_rate)
    vocabulary_size, dimension, *_ = table
    assert (vocabulary_size, dimension) == (10, 4)
    larger = table._replace(vocabulary_size=20)
    assert isinstance(larger, TableConfig) and larger.vocabulary_size == 20
    assert copy.deepcopy(table).learning_rate_fn is constant_rate


def test_is_table_config_tells_the_words_of_tf2_apart():
    class Own(TableConfig):
        pass

    assert is_table_config(TableConfig(10, 4)) and is_table_config(Own(10, 4))
    assert not is_table_config(tf.tpu.experimental.embedding.TableConfig(10, 4))
    assert not is_table_config((10, 4)) and not is_table_config(None)
