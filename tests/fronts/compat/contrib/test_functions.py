# SPDX-License-Identifier: Apache-2.0
"""Functions of tf.contrib that this package writes over other ones: their numbers."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
contrib = tf.contrib
RANDOM = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("session")


def elements(session, dataset):
    read, found = v1.data.make_one_shot_iterator(dataset).get_next(), []
    while True:
        try:
            found.append(session.run(read))
        except tf.errors.OutOfRangeError:
            return found


@pytest.mark.parametrize("made, expected", [
    (lambda: contrib.data.batch_and_drop_remainder(2), [[0, 1], [2, 3]]),
    (lambda: contrib.data.sliding_window_batch(3, stride=2), [[0, 1, 2], [2, 3, 4]]),
    (lambda: contrib.data.sliding_window_batch(2, window_shift=2, window_stride=2),
     [[0, 2], [2, 4]]),
    (lambda: contrib.data.assert_element_shape(tf.TensorShape([])), [0, 1, 2, 3, 4])])
def test_transformations(session, made, expected):
    found = elements(session, tf.data.Dataset.range(5).apply(made()))
    assert np.array(found).tolist() == expected


def test_transformations_of_several_components(session):
    data = tf.data.Dataset.range(4).map(lambda n: (n, {"x": tf.fill([n], n)}))
    padded = data.apply(contrib.data.padded_batch_and_drop_remainder(2, ([], {"x": [None]})))
    assert [batch[1]["x"].tolist() for batch in elements(session, padded)] == [
        [[0], [1]], [[2, 2, 0], [3, 3, 3]]]
    pairs = tf.data.Dataset.range(3).map(lambda n: (n, -n))
    [first, second] = elements(session, pairs.apply(contrib.data.sliding_window_batch(2)))
    assert np.array([first, second]).tolist() == [[[0, 1], [0, -1]], [[1, 2], [-1, -2]]]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        elements(session, data.apply(contrib.data.assert_element_shape(
            (tf.TensorShape([]), {"x": tf.TensorShape([2])}))))


def test_sloppy_interleave(session):
    data = tf.data.Dataset.range(3).apply(contrib.data.sloppy_interleave(
        lambda n: tf.data.Dataset.from_tensors(n).repeat(2), cycle_length=2))
    assert sorted(elements(session, data)) == [0, 0, 1, 1, 2, 2]


def test_lookup(session):
    lookup = contrib.lookup
    words = tf.constant(["b", "zz", "a"])
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "b"], [5, 6]), -1, name="t")
    index = lookup.string_to_index_table_from_tensor(mapping=["a", "b"], default_value=9)
    strings = lookup.index_to_string_table_from_tensor(mapping=["a", "b"])
    session.run(table.init)
    found = [table.lookup(words), index.lookup(words),
             strings.lookup(tf.constant([1, 7], tf.int64)), lookup.string_to_index(words, ["b"]),
             lookup.index_to_string(tf.constant([0], tf.int64), ["b"])]
    session.run(v1.tables_initializer())
    assert [value.tolist() for value in session.run(found)] == [
        [6, -1, 5], [1, 9, 0], [b"b", b"UNK"], [0, -1, -1], [b"b"]]
    with pytest.raises(ValueError, match="`shared_name` must be None, got 'x'"):
        lookup.HashTable(lookup.KeyValueTensorInitializer(["a"], [5]), -1, "x")


def test_hardmax_and_tile_batch(session):
    found = contrib.seq2seq.hardmax(tf.constant([[1.0, 3.0, 2.0]]))
    tiled = contrib.seq2seq.tile_batch({"a": tf.constant([[1], [2]])}, multiplier=3)
    assert tiled["a"].shape == (6, 1)
    found, tiled = session.run([found, tiled])
    assert found.tolist() == [[0, 1, 0]] and tiled["a"].ravel().tolist() == [1, 1, 1, 2, 2, 2]


def followed_back(ids, parents, lengths, end):
    """Each beam from its last step to its first, in plain Python."""
    result = np.full_like(ids, end)
    for batch in range(ids.shape[1]):
        for beam in range(ids.shape[2]):
            at = beam
            for step in reversed(range(min(len(ids), lengths[batch]))):
                result[step, batch, beam] = ids[step, batch, at]
                at = parents[step, batch, at]
            [ends] = np.nonzero(result[:, batch, beam] == end)
            if len(ends):
                result[ends[0]:, batch, beam] = end
    return result


def test_gather_tree(session):
    ids = RANDOM.integers(0, 9, [6, 3, 4]).astype(np.int32)
    parents = RANDOM.integers(0, 4, [6, 3, 4]).astype(np.int32)
    lengths = np.array([6, 3, 9], np.int32)
    found = session.run(contrib.seq2seq.gather_tree(
        tf.constant(ids), tf.constant(parents), tf.constant(lengths), end_token=0))
    np.testing.assert_array_equal(found, followed_back(ids, parents, lengths, 0))


def test_sparsemax_is_the_projection_on_the_simplex(session):
    logits = RANDOM.normal(0, 2, [50, 7]).astype(np.float32)
    labels = np.eye(7, dtype=np.float32)[RANDOM.integers(0, 7, 50)]
    z = tf.constant(logits)
    p = contrib.sparsemax.sparsemax(z)
    loss = contrib.sparsemax.sparsemax_loss(z, p, tf.constant(labels))
    found, losses, [of_loss] = session.run([p, loss, tf.gradients(loss, z)])
    for row, projected in zip(logits, found, strict=True):
        thresholds = np.linspace(row.min() - 1, row.max(), 200001)
        sums = np.maximum(row[:, None] - thresholds, 0).sum(0)
        threshold = thresholds[np.abs(sums - 1).argmin()]
        np.testing.assert_allclose(projected, np.maximum(row - threshold, 0), atol=1e-3)
    np.testing.assert_allclose(of_loss, found - labels, atol=1e-5)
    one = 0.5 * ((logits - labels) ** 2).sum(1) - 0.5 * ((logits - found) ** 2).sum(1)
    np.testing.assert_allclose(losses, one, atol=1e-4)


def test_legacy_sequence_loss(session):
    logits = RANDOM.normal(size=[3, 2, 4]).astype(np.float32)
    targets, weights = RANDOM.integers(0, 4, [3, 2]), RANDOM.uniform(size=[3, 2]).astype(np.float32)
    loss = contrib.legacy_seq2seq.sequence_loss(
        *(list(map(tf.constant, values)) for values in (logits, targets, weights)))
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    cross = -np.take_along_axis(log, targets[..., None], -1)[..., 0] * weights
    assert session.run(loss) == pytest.approx((cross.sum(0) / weights.sum(0)).mean(), rel=1e-5)


@pytest.mark.parametrize("name, labels, logits, loss, prediction", [
    ("poisson_regression_head", [[2.0]], [[1.0]],
     np.e - 2 + 2 * np.log(2) - 2 + 0.5 * np.log(4 * np.pi), np.e),
    ("logistic_regression_head", [[0.25]], [[0.0]], np.log(2), 0.5)])
def test_heads(session, name, labels, logits, loss, prediction):
    spec = getattr(contrib.estimator, name)().create_estimator_spec(
        {}, "eval", logits=tf.constant(logits), labels=tf.constant(labels))
    found, predicted = session.run([spec.loss, spec.predictions["predictions"]])
    assert found == pytest.approx(loss, rel=1e-5) and predicted[0, 0] == pytest.approx(prediction)


def test_columns_of_contrib_layers(session):
    layers = contrib.layers
    city = layers.sparse_column_with_keys("city", ["a", "b", "c", "d"])
    day = layers.sparse_column_with_integerized_feature("day", 4)
    hashed = layers.sparse_column_with_hash_bucket("word", 3)
    age = layers.real_valued_column("age", dimension=2)
    columns = [layers.embedding_column(city, 64), layers.one_hot_column(day), age,
               layers.one_hot_column(layers.weighted_sparse_column(day, "weight")),
               layers.one_hot_column(hashed), layers.bucketized_column(
                   layers.real_valued_column("size"), [1.0, 5.0])]
    features = {"city": tf.constant([["b"], ["b"]]), "day": tf.constant([[3], [0]]),
                "weight": tf.constant([[0.5], [2.0]]), "age": tf.constant([[1.0, 2], [3, 4]]),
                "word": tf.constant([["x"], ["y"]]), "size": tf.constant([[3.0], [9.0]])}
    found = layers.input_from_feature_columns(features, columns)
    session.run([v1.global_variables_initializer(), v1.tables_initializer()])
    found = session.run(found)
    [table] = session.run(v1.global_variables())
    assert table.shape == (4, 64) and table.std() == pytest.approx(0.5 * 0.88, abs=0.06)
    names = {"age": 2, "city": 64, "day": 4, "day_weighted": 4, "size": 3, "word": 3}
    parts = dict(zip(names, np.split(found, np.cumsum(list(names.values()))[:-1], 1), strict=True))
    assert parts["age"].tolist() == [[1, 2], [3, 4]]
    np.testing.assert_array_equal(parts["city"], table[[1, 1]])
    assert parts["day"].tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert parts["day_weighted"].tolist() == [[0, 0, 0, 0.5], [2, 0, 0, 0]]
    assert parts["size"].tolist() == [[0, 1, 0], [0, 0, 1]] and (parts["word"].sum(1) == 1).all()
    with pytest.raises(ValueError, match="`combiner` must be 'sum', got 'mean'"):
        layers.sparse_column_with_hash_bucket("word", 3, combiner="mean")
