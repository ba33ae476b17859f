# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.feature_column.sequence_input_layer`."""

import numpy as np
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.estimator import counting
from tpu_estimator_embedding import EmbeddingConfigSpec, StochasticGradientDescentParameters
from tpu_estimator_embedding.compat.contrib.feature_column import sequence_input_layer

v1 = tf.compat.v1
IDS = [[1, 2], [3, 0]]


def sparse_ids(ids=IDS):
    return tf.sparse.from_dense(tf.constant(ids, tf.int64))


def column():
    return tf.feature_column.sequence_categorical_column_with_identity("words", 5)


def test_variables_have_the_names_of_tensorflow_1():
    embedded = tf.feature_column.embedding_column(
        column(), 3, initializer=v1.ones_initializer())
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("tower"):
            rows, lengths = sequence_input_layer({"words": sparse_ids()}, [embedded],
                                                 weight_collections=["mine"], trainable=False)
        for _ in range(2):
            sequence_input_layer({"words": sparse_ids()}, [embedded])
        layers = ["tower/sequence_input_layer", "sequence_input_layer", "sequence_input_layer_1"]
        assert [variable.op.name for variable in v1.global_variables()] == [
            f"{layer}/words_embedding/embedding_weights" for layer in layers]
        assert v1.get_collection("mine") == v1.global_variables()[:1]
        assert v1.trainable_variables() == v1.global_variables()[1:]
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(lengths), [2, 1])
        np.testing.assert_array_equal(session.run(rows)[:, :, 0], [[1, 1], [1, 0]])


def test_tables_of_the_engine_are_looked_up_and_trained(tmp_path):
    columns = [tpu_estimator_embedding.embedding_column(
        column(), 3, initializer=v1.ones_initializer(), max_sequence_length=2)]

    def model_fn(features, labels, mode, params):
        rows, lengths = sequence_input_layer(features, columns)
        loss = tf.reduce_sum(rows) + 0.0 * tf.reduce_sum(tf.cast(lengths, tf.float32))
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(
            loss, v1.train.get_global_step())
        return counting.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensors(tf.constant(IDS, tf.int64))
        return dataset.map(lambda ids: {"words": tf.sparse.from_dense(ids)})

    spec = EmbeddingConfigSpec(columns, StochasticGradientDescentParameters(0.5))
    estimator = counting.new_estimator(tmp_path, model_fn, spec=spec)
    estimator.train(input_fn, steps=1)
    [name] = [name for name in estimator.get_variable_names() if "embedding_weights" in name]
    np.testing.assert_array_equal(estimator.get_variable_value(name)[:, 0], [1, 0.5, 0.5, 0.5, 1])


def test_columns_with_a_shared_table():
    first, second, alone = (tf.feature_column.sequence_categorical_column_with_identity(name, 5)
                            for name in ("b", "c", "d"))
    number = tf.feature_column.sequence_numeric_column("a")
    single = tf.feature_column.embedding_column(alone, 1, initializer=v1.ones_initializer())
    with tf.Graph().as_default(), v1.Session() as session:
        shared = v1.feature_column.shared_embedding_columns(
            [second, first], 3, initializer=v1.ones_initializer())
        features = {name: tf.sparse.from_dense(value) for name, value in {
            "a": [[0.5, 7.0], [9.0, 0.0]], **dict.fromkeys("bcd", IDS)}.items()}
        rows, lengths = sequence_input_layer(features, [single, *shared, number],
                                             weight_collections=["mine"])
        names = {variable.op.name for variable in v1.global_variables()}
        assert names == {"sequence_input_layer/b_c_shared_embedding/embedding_weights",
                         "sequence_input_layer/d_embedding/embedding_weights"}
        assert len(v1.get_collection("mine")) == 2
        session.run(v1.global_variables_initializer())
        rows, lengths = session.run([rows, lengths])
    assert rows.shape == (2, 2, 8) and lengths.tolist() == [2, 1]
    assert rows[..., 0].tolist() == [[0.5, 7.0], [9.0, 0.0]]  # sorted by name: a, b, c, d
    np.testing.assert_array_equal(rows[..., 1:], np.broadcast_to(
        [[[1], [1]], [[1], [0]]], [2, 2, 7]))


def test_columns_with_a_shared_table_only():
    with tf.Graph().as_default(), v1.Session() as session:
        columns = v1.feature_column.shared_embedding_columns(
            [column()], 3, initializer=v1.ones_initializer())
        rows, lengths = sequence_input_layer({"words": sparse_ids()}, columns)
        session.run(v1.global_variables_initializer())
        assert session.run([tf.shape(rows), lengths])[0].tolist() == [2, 2, 3]
