# SPDX-License-Identifier: Apache-2.0
"""The columns we make: errors of their arguments, and that they are TensorFlow's columns."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import feature_column_v2 as tpu_fc_v2

from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import shared_embedding_columns

fc = tf.feature_column


def identity(name, size=10):
    return fc.categorical_column_with_identity(name, size)


def sequence(name, size=10):
    return fc.sequence_categorical_column_with_identity(name, size)


def single(column=None, **arguments):
    return embedding_column(**{"categorical_column": column or identity("words"), "dimension": 4,
                               **arguments})


def shared(column=None, **arguments):
    """The two columns of `words`, or of the column that is given, and `others`."""
    return shared_embedding_columns(**{
        "categorical_columns": [column or identity("words"), identity("others")],
        "dimension": 4, **arguments})


BOTH = pytest.mark.parametrize("make", [single, shared])


@BOTH
@pytest.mark.parametrize("dimension", [None, 0, -1, 2.0, "4", True])
def test_dimension_that_is_no_positive_int_raises(make, dimension):
    with pytest.raises(ValueError, match="`dimension` must be an int of at least 1, got "
                                         f"{dimension!r}"):
        make(dimension=dimension)


@BOTH
def test_learning_rate_function_that_cannot_be_called_raises(make):
    with pytest.raises(ValueError, match="`learning_rate_fn` must be a callable or None, got 0.5"):
        make(learning_rate_fn=0.5)


@BOTH
def test_unknown_combiner_raises(make):
    with pytest.raises(ValueError, match="`combiner` must be one of 'mean', .*, got 'max'"):
        make(combiner="max")


def test_no_shared_columns_raise():
    with pytest.raises(ValueError, match=r"`categorical_columns` must have at least one column"):
        shared_embedding_columns([], 4)


def test_column_is_tensorflows():
    def rate(step):
        return 0.1

    initializer = tf.compat.v1.ones_initializer()
    column = single(sequence("steps"), combiner="sum", initializer=initializer,
                    max_sequence_length=7, learning_rate_fn=rate, use_safe_embedding_lookup=False)
    assert type(column) is tpu_fc_v2._TPUEmbeddingColumnV2
    assert column.get_embedding_table_size() == (10, 4)
    assert (column.get_combiner(), column.get_initializer()) == ("sum", initializer)
    assert (column.get_max_sequence_length(), column.get_learning_rate_fn()) == (7, rate)
    assert not column.use_safe_embedding_lookup


def test_shared_columns_are_tensorflows():
    columns = shared_embedding_columns(
        (column for column in [sequence("steps"), identity("words")]), np.int64(4), "sqrtn",
        shared_embedding_collection_name="both", max_sequence_lengths=(7, 0))
    assert {type(column) for column in columns} == {tpu_fc_v2._TPUSharedEmbeddingColumnV2}
    assert [column.get_feature_key_name() for column in columns] == ["steps", "words"]
    assert [column.get_max_sequence_length() for column in columns] == [7, 0]
    assert {column.get_embedding_var_name() for column in columns} == {"both"}
    assert {column.get_combiner() for column in columns} == {"sqrtn"}


@pytest.mark.parametrize("device", ["cpu", "tpu_tensor_core", "tpu_embedding_core"])
def test_device_is_handed_on(device):
    columns = [single(embedding_lookup_device=device, tensor_core_shape=[None, 3]),
               *shared(embedding_lookup_device=device, tensor_core_shape=[None, 3])]
    for column in columns:
        assert column._embedding_lookup_device.name == device.upper()
        assert column._tensor_core_shape == [None, 3]


def test_column_without_tpu_is_an_ordinary_one():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        column = single(combiner="sum", initializer=tf.compat.v1.ones_initializer())
        ids = tf.sparse.from_dense([[1, 2], [3, 0]])
        activations = tf.compat.v1.feature_column.input_layer({"words": ids}, [column])
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(activations), [[2.0] * 4, [1.0] * 4])


def test_categorical_columns_that_are_no_list_raise():
    with pytest.raises(TypeError, match="`categorical_columns` must be a list of categorical "
                       "columns, got 5"):
        shared_embedding_columns(5, 4)
