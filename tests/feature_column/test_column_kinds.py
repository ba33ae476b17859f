# SPDX-License-Identifier: Apache-2.0
import pytest
import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc_v1

from tpu_estimator_embedding.feature_column.column_checks import (
    is_plain_column,
    is_tensor_core_column,
    is_tpu_column,
)
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

words = tf.feature_column.categorical_column_with_identity("words", 10)
numbers = tf.feature_column.numeric_column("price")

ENGINE = {
    "ours": embedding_column(words, 4),
    "ours, shared": shared_embedding_columns([words], 4)[0],
    "tensorflow's": tf.compat.v1.tpu.experimental.embedding_column(words, 4),
    "tensorflow's, shared": tf.compat.v1.tpu.experimental.shared_embedding_columns([words], 4)[0],
    "tensorflow's first": tpu_fc_v1.embedding_column(words, 4),
    "tensorflow's first, shared": tpu_fc_v1.shared_embedding_columns([words], 4)[0],
    "for the engine by name": embedding_column(
        words, 4, embedding_lookup_device="tpu_embedding_core"),
}
TENSOR_CORE = {
    "single": embedding_column(words, 4, embedding_lookup_device="tpu_tensor_core",
                               tensor_core_shape=[None, 3]),
    "shared": shared_embedding_columns([words], 4, embedding_lookup_device="tpu_tensor_core",
                                       tensor_core_shape=[None, 3])[0],
}
with tf.Graph().as_default():  # TensorFlow makes neither of them eagerly
    shared_of_tf2 = tf.feature_column.shared_embeddings([words], 4)[0]
    shared_of_tf1 = tf.compat.v1.feature_column.shared_embedding_columns([words], 4)[0]
PLAIN = {
    "embedding": tf.feature_column.embedding_column(words, 4),
    "shared in TF2": shared_of_tf2,
    "shared in TF1": shared_of_tf1,
    "number": numbers,
}
OTHERS = {"categorical": words, "indicator": tf.feature_column.indicator_column(words),
          "text": "words", "none": None}


def kinds(column):
    return is_tpu_column(column), is_tensor_core_column(column), is_plain_column(column)


@pytest.mark.parametrize("name", ENGINE)
def test_columns_for_the_engine(name):
    assert kinds(ENGINE[name]) == (True, False, False)


@pytest.mark.parametrize("name", TENSOR_CORE)
def test_columns_for_a_tensor_core(name):
    assert kinds(TENSOR_CORE[name]) == (True, True, False)


@pytest.mark.parametrize("name", PLAIN)
def test_ordinary_columns(name):
    assert kinds(PLAIN[name]) == (False, False, True)


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_no_embedding_column(name):
    assert kinds(OTHERS[name]) == (False, False, False)
