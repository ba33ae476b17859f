# SPDX-License-Identifier: Apache-2.0
"""Shapes of activations: stated, given to build, or those of the input."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import SGD, FeatureConfig, TableConfig, TPUEmbedding

TABLE = np.arange(20.0, dtype=np.float32).reshape([10, 2])
NAN = -1  # no id


def config(combiner="sum", **options):
    return FeatureConfig(TableConfig(
        10, 2, tf.compat.v1.constant_initializer(TABLE), combiner=combiner, name="words"),
        **options)


def lookup(configs, features, **build):
    embedding = TPUEmbedding(configs, SGD(1.0))
    if build:
        embedding.build(**build)
    embedding.enqueue(features, training=False)
    return tf.nest.map_structure(lambda values: values.numpy(), embedding.dequeue())


def rows(ids):
    """Returns the rows of an array of ids of any shape, zeros for -1."""
    ids = np.array(ids)
    return np.where(ids[..., np.newaxis] >= 0, TABLE[ids], 0.0)


def sparse(array):
    array = np.array(array)
    places = np.argwhere(array >= 0)
    return tf.SparseTensor(places, array[array >= 0], array.shape)


@pytest.mark.parametrize("ids", [[3, 4], [[3], [4]], [[[1], [2]], [[3], [4]]]])
def test_dense_ids_have_a_row_each(ids):
    expected = rows(ids) if np.ndim(ids) == 1 else rows(ids)[..., 0, :]
    np.testing.assert_array_equal(lookup(config(), tf.constant(ids)), expected)


def test_zero_is_an_ordinary_id():
    np.testing.assert_array_equal(lookup(config(), tf.constant([0, 0])), rows([0, 0]))


CUBE = [[[1, 2, NAN], [3, NAN, NAN]], [[NAN] * 3, [4, 4, 5]], [[6, NAN, NAN], [7, 8, 9]]]


def test_sparse_ids_are_combined_over_the_last_dimension():
    np.testing.assert_array_equal(lookup(config(), sparse(CUBE)), rows(CUBE).sum(2))
    np.testing.assert_array_equal(lookup(config(), sparse(CUBE[0])), rows(CUBE[0]).sum(1))


@pytest.mark.filterwarnings("ignore:max_sequence_length of feature 'feature' is ignored")
def test_sequences_of_higher_rank_are_combined():
    np.testing.assert_array_equal(lookup(config(max_sequence_length=5), sparse(CUBE)),
                                  rows(CUBE).sum(2))


MATRIX = [[1, 2, 3], [4, NAN, NAN]]


@pytest.mark.parametrize("length, expected", [
    (1, [[1], [4]]), (2, [[1, 2], [4, NAN]]), (4, [[1, 2, 3, NAN], [4, NAN, NAN, NAN]])])
@pytest.mark.parametrize("ragged", [False, True])
def test_sequences_are_cut_and_filled(length, expected, ragged):
    ids = tf.ragged.constant([[1, 2, 3], [4]]) if ragged else sparse(MATRIX)
    np.testing.assert_array_equal(lookup(config(max_sequence_length=length), ids),
                                  rows(expected))


@pytest.mark.parametrize("shape, ids, expected", [
    ([2, 3], tf.constant([1, 2, 3, 4, 5, 6]), rows([[1, 2, 3], [4, 5, 6]])),
    ([3, 2], sparse(CUBE), rows(CUBE).sum(2)),
    ([2], sparse(MATRIX), rows(MATRIX).sum(1)),
    ([2], tf.ragged.constant([[1, 2, 3], [4]]), rows(MATRIX).sum(1)),
    ([2, 1], tf.ragged.constant([[1, 2, 3], [4]]), rows(MATRIX).sum(1)[:, np.newaxis]),
    ([2, 2], tf.ragged.constant([[1, 2, 3], [4]]), rows([[1, 2], [4, NAN]])),
])
@pytest.mark.parametrize("with_other", [False, True])
def test_stated_shapes(shape, ids, expected, with_other):
    # Beside a feature of one sample, the rows of every other are those of its sequence.
    stated = config(output_shape=shape)
    if not with_other:
        np.testing.assert_array_equal(lookup(stated, ids), expected)
        return
    other = FeatureConfig(stated.table, max_sequence_length=3, output_shape=[1])
    found = lookup([stated, other], [ids, tf.ragged.constant([[8, 9]])])
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], rows([[8, 9]]).sum(1))


def test_stated_shapes_train_every_row_they_show():
    stated = config(output_shape=[2, 2])
    other = FeatureConfig(stated.table, output_shape=[3])
    embedding = TPUEmbedding([stated, other], SGD(1.0))
    embedding.enqueue([tf.ragged.constant([[1, 2, 9], [4]]), tf.constant([5, 5, 6])])
    embedding.dequeue()
    embedding.apply_gradients([tf.reshape(tf.range(8.0), [2, 2, 2]), tf.ones([3, 2])])
    change = np.zeros_like(TABLE)
    change[[1, 2, 4]] = [[0, 1], [2, 3], [4, 5]]
    change[[5, 6]] = [[2, 2], [1, 1]]
    np.testing.assert_array_equal(embedding.embedding_tables[stated.table], TABLE - change)


def test_batches_that_do_not_divide_each_other_are_stated():
    natural, stated = config(max_sequence_length=2), config(output_shape=[3])
    stated.table = natural.table
    found = lookup([natural, stated], [sparse(MATRIX), tf.constant([7, 8, 9])])
    np.testing.assert_array_equal(found[0], rows([[1, 2], [4, NAN]]))
    np.testing.assert_array_equal(found[1], rows([7, 8, 9]))


@pytest.mark.parametrize("shape, ids, message", [
    ([2, 3], tf.constant([1, 2, 3]), "Number of ids of feature 'feature' must be 6, one per"),
    ([4], sparse(MATRIX), r"Batch of feature 'feature' must be \[4\]"),
    ([2, 2], sparse(MATRIX), "Rank of the sparse input of feature 'feature' must be 3, for"),
    ([5], tf.ragged.constant([[1], [2]]), "must be a divisor of the rows of its output_shape, 5"),
    ([None, 2], sparse(MATRIX), "`output_shape` of feature 'feature' must be fully defined"),
])
def test_stated_shapes_that_ids_do_not_fill(shape, ids, message):
    with pytest.raises(ValueError, match=message):
        lookup(config(output_shape=shape), ids)


@pytest.mark.parametrize("build", [
    {"per_replica_batch_size": 2}, {"per_replica_input_shapes": 2},
    {"per_replica_input_shapes": [[2, None], tf.TensorShape([2])]}])
def test_built_shapes_serve_inputs_whose_batch_is_unknown(build):
    sequence = config(max_sequence_length=2)
    embedding = TPUEmbedding([sequence, FeatureConfig(sequence.table)], SGD(1.0))
    embedding.build(**build)
    seen = tf.function(lambda words, ids: (
        embedding.enqueue([words, ids], training=False), embedding.dequeue())[1],
        input_signature=[tf.SparseTensorSpec([None, None], tf.int64),
                         tf.TensorSpec([None], tf.int64)])
    words, ids = seen(tf.cast(sparse(MATRIX), tf.int64), tf.constant([5, 6], tf.int64))
    np.testing.assert_array_equal(words, rows([[1, 2], [4, NAN]]))
    np.testing.assert_array_equal(ids, rows([5, 6]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="as in earlier calls"):
        seen(tf.cast(sparse(MATRIX[:1]), tf.int64), tf.constant([5, 6], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Samples of feature .*must be 2"):
        seen(tf.cast(sparse(MATRIX), tf.int64), tf.constant([5], tf.int64))


def test_unknown_batch_is_that_of_another_feature():
    known = config()
    embedding = TPUEmbedding([known, FeatureConfig(known.table)], SGD(1.0))
    seen = tf.function(lambda known, unknown: (
        embedding.enqueue([known, unknown], training=False), embedding.dequeue())[1],
        input_signature=[tf.TensorSpec([2], tf.int64), tf.TensorSpec([None], tf.int64)])
    ids = tf.constant([1, 2], tf.int64)
    assert seen(ids, ids)[1].numpy().tolist() == rows([1, 2]).tolist()


def test_unknown_batch_without_build_is_an_error():
    embedding = TPUEmbedding(config(), SGD(1.0))
    step = tf.function(embedding.enqueue, input_signature=[tf.TensorSpec([None], tf.int64)])
    with pytest.raises(RuntimeError, match="Batch size of feature 'feature' must be known, got "
                                           r"\[None\]. Batch with drop_remainder=True, or call"):
        step(tf.constant([1, 2], tf.int64))


@pytest.mark.parametrize("second", [{"per_replica_batch_size": 3},
                                    {"per_replica_input_shapes": [3, 1]}])
def test_building_for_another_batch_is_an_error(second):
    embedding = TPUEmbedding(config(), SGD(1.0))
    embedding.build(per_replica_batch_size=2)
    embedding.build(per_replica_batch_size=2)
    embedding.build()
    with pytest.raises(ValueError, match="Batch of feature 'feature' must be .2. as in earlier"):
        embedding.build(**second)


@pytest.mark.parametrize("build, message", [
    ({"per_replica_batch_size": 0}, "`per_replica_batch_size` must be an int of at least 1"),
    ({"per_replica_input_shapes": []}, "Input shape of feature 'feature' must be of at least"),
])
def test_shapes_that_cannot_be_built(build, message):
    with pytest.raises(ValueError, match=message):
        TPUEmbedding(config(), SGD(1.0)).build(**build)


@pytest.mark.filterwarnings("ignore:max_sequence_length of feature 'feature' is ignored")
@pytest.mark.parametrize("ids", [tf.ragged.constant([[1, 2, 3], [4]]), sparse(MATRIX)])
def test_sequences_fill_built_shapes_of_more_dimensions(ids):
    found = lookup(config(max_sequence_length=2), ids, per_replica_input_shapes=[2, 2, None])
    np.testing.assert_array_equal(found, rows([[1, 2], [4, NAN]]))


def test_inputs_of_lower_rank_fill_built_shapes():
    shapes = {"per_replica_input_shapes": [2, 2, None]}
    ragged = tf.ragged.constant([[1, 2, 3], [4]])
    np.testing.assert_array_equal(lookup(config(), ragged, **shapes), rows([[1, 2], [4, NAN]]))
    np.testing.assert_array_equal(lookup(config(), tf.constant([1, 2, 3, 4]), **shapes),
                                  rows([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match="must be a divisor of the rows of its output_shape, 4"):
        lookup(config(), tf.ragged.constant([[1], [2], [3]]), **shapes)


def test_sequences_of_unknown_batch_fill_built_shapes():
    embedding = TPUEmbedding(config(output_shape=[2, 2], max_sequence_length=2), SGD(1.0))
    seen = tf.function(lambda ids: (embedding.enqueue(ids, training=False), embedding.dequeue())[1],
                       input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
    np.testing.assert_array_equal(seen(tf.ragged.constant([[1, 2, 3], [4]])),
                                  rows([[1, 2], [4, NAN]]))


def test_features_of_unequal_batch_sizes_train():
    pair, triple = config(), config(max_sequence_length=2)
    triple.table = pair.table
    embedding = TPUEmbedding([pair, triple], SGD(1.0))
    embedding.enqueue([tf.constant([5, 6]), tf.ragged.constant([[1, 2, 3], [4], [5]])])
    first, second = embedding.dequeue()
    np.testing.assert_array_equal(first, rows([5, 6]))
    np.testing.assert_array_equal(second, rows([[1, 2], [4, NAN], [5, NAN]]))
    embedding.apply_gradients([tf.ones([2, 2]), 10 * tf.ones([3, 2, 2])])
    expected = TABLE.copy()
    expected[[1, 2, 4, 5, 6]] -= np.array([[10], [10], [10], [11], [1]])
    np.testing.assert_array_equal(embedding.embedding_tables[pair.table], expected)


@pytest.mark.parametrize("stated, build", [
    ([4], {"per_replica_input_shapes": [5, None]}), ([4], {"per_replica_batch_size": 5}),
    ([2, 3], {"per_replica_input_shapes": [2, 4, None]}),
    ([4], {"per_replica_input_shapes": [2, 2, None]})])
def test_built_shapes_that_contradict_the_configuration_are_errors(stated, build):
    with pytest.raises(ValueError, match="^Inconsistent shape founded for input feature feature, "
                                         "Output shape is set to be"):
        TPUEmbedding(config(output_shape=stated), SGD(1.0)).build(**build)


def test_built_shapes_of_lower_rank_leave_the_configured_shape():
    found = lookup(config(output_shape=[2, 2]), tf.ragged.constant([[1, 2], [4]]),
                   per_replica_input_shapes=[2, None])
    np.testing.assert_array_equal(found, rows([[1, 2], [4, NAN]]))
