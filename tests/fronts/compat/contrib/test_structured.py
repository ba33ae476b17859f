# SPDX-License-Identifier: Apache-2.0
"""tf.contrib.crf, image, rnn, seq2seq and the sequence layers, against NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
contrib = tf.contrib
RANDOM = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("session")


def evaluated(session, tensors, feed=None):
    session.run(v1.global_variables_initializer())
    return session.run(tensors, feed)


def variables(session):
    return {variable.op.name: session.run(variable) for variable in v1.global_variables()}


# Conditional random fields: all sequences of tags are enumerated.


def logsumexp(scores):
    return np.log(np.exp(scores).sum())


def score_of(tags, potentials, transitions):
    return (sum(row[tag] for row, tag in zip(potentials, tags, strict=True))
            + sum(transitions[pair] for pair in itertools.pairwise(tags)))


@pytest.mark.parametrize("positions", [1, 4])
def test_crf(session, positions):
    potentials = RANDOM.normal(size=[4, positions, 3])
    transitions = RANDOM.normal(size=[3, 3])
    tags = RANDOM.integers(0, 3, [4, positions])
    lengths = np.minimum([1, 2, 3, 4], positions)
    likelihood, _ = contrib.crf.crf_log_likelihood(
        tf.constant(potentials), tf.constant(tags), tf.constant(lengths), tf.constant(transitions))
    found, best, best_score = evaluated(session, [likelihood, *contrib.crf.crf_decode(
        tf.constant(potentials), tf.constant(transitions), tf.constant(lengths))])
    for row, length in enumerate(lengths):
        now = potentials[row, :length]
        scores = {every: score_of(every, now, transitions)
                  for every in itertools.product(range(3), repeat=int(length))}
        given = scores[tuple(tags[row, :length])]
        assert found[row] == pytest.approx(given - logsumexp(list(scores.values())))
        winner = max(scores, key=scores.get)
        assert tuple(best[row]) == winner + (0,) * (positions - length)
        assert best_score[row] == pytest.approx(scores[winner])
        assert contrib.crf.viterbi_decode(now, transitions) == (
            list(winner), pytest.approx(scores[winner]))


def test_crf_learns_its_transitions(session):
    """The gradient of the likelihood is that of finite differences; an empty sequence has 0."""
    potentials, tags = RANDOM.normal(size=[2, 3, 2]).astype(np.float32), [[0, 1, 1], [1, 0, 0]]
    likelihood, transitions = contrib.crf.crf_log_likelihood(
        tf.constant(potentials), tf.constant(tags), tf.constant([3, 0]))
    assert v1.global_variables()[0].op.name == "transitions"
    gradient, values, start = evaluated(session, [
        tf.gradients(likelihood, transitions)[0], likelihood, transitions])
    assert values[1] == 0

    def log_likelihood(changed):
        scores = [score_of(every, potentials[0], changed)
                  for every in itertools.product(range(2), repeat=3)]
        return score_of(tags[0], potentials[0], changed) - logsumexp(scores)

    assert values[0] == pytest.approx(log_likelihood(start), rel=1e-5)
    for index in itertools.product(range(2), repeat=2):
        step = np.zeros([2, 2])
        step[index] = 1e-4
        slope = (log_likelihood(start + step) - log_likelihood(start - step)) / 2e-4
        assert gradient[index] == pytest.approx(slope, abs=1e-4)


# Images.


def test_images_turn_and_move(session):
    images = RANDOM.integers(1, 255, [2, 5, 5, 3]).astype(np.float32)
    image = contrib.image
    turned, moved, single, flat, back, wide = evaluated(session, [
        image.rotate(tf.constant(images), [np.pi / 2, np.pi]),
        image.translate(tf.constant(images), [[1, 0], [0, -2]]),
        image.rotate(tf.constant(images[0]), -np.pi / 2),
        image.translate(tf.constant(images[0, :, :, 0]), [2, 0], interpolation="BILINEAR"),
        image.transform(tf.constant(images), image.compose_transforms(
            image.angles_to_projective_transforms(0.4, 5, 5),
            image.angles_to_projective_transforms(-0.4, 5, 5)), "BILINEAR"),
        image.transform(tf.constant(images), [1., 0, 0, 0, 1, 0, 0, 0], output_shape=[5, 7])])
    np.testing.assert_array_equal(turned[0], np.rot90(images[0]))
    np.testing.assert_array_equal(turned[1], np.rot90(images[1], 2))
    np.testing.assert_array_equal(single, np.rot90(images[0], -1))
    expected = np.zeros_like(images)
    expected[0, :, 1:] = images[0, :, :-1]
    expected[1, :-2] = images[1, 2:]
    np.testing.assert_array_equal(moved, expected)
    np.testing.assert_array_equal(flat[:, 2:], images[0, :, :-2, 0])
    np.testing.assert_allclose(back, images, rtol=1e-3)
    np.testing.assert_array_equal(wide[:, :, :5], images)
    assert wide.shape == (2, 5, 7, 3) and not wide[:, :, 5:].any()


def test_transforms_are_projective(session):
    x, y, w = np.linalg.inv([[1.2, 0.1, -0.5], [0.2, 0.9, 0.3], [0.1, 0.05, 1]]) @ [2, 3, 1]
    flat = [1.2, 0.1, -0.5, 0.2, 0.9, 0.3, 0.1, 0.05]
    matrices = contrib.image.flat_transforms_to_matrices(flat)
    assert evaluated(session, matrices)[0] @ [x, y, w] == pytest.approx([2, 3, 1])
    assert session.run(contrib.image.matrices_to_flat_transforms(
        2 * matrices))[0] == pytest.approx(flat)


@pytest.mark.parametrize("arguments, error, sentence", [
    ((np.zeros([2, 2]), [1.0] * 8, "CUBIC"), ValueError, "'NEAREST' or 'BILINEAR', got 'CUBIC'"),
    ((np.zeros([2]), [1.0] * 8), TypeError, "Images should have rank between 2 and 4"),
    ((np.zeros([2, 2]), np.zeros([1, 1, 8])), TypeError, "rank 1 or 2, but got rank 3")])
def test_images_that_are_refused(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        contrib.image.transform(*arguments)


# Cells.


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def layer_norm_lstm(x, values, forget_bias, is_normalized):
    """Returns the last h and c, `[batch, units]`."""
    prefix = "rnn/layer_norm_basic_lstm_cell/"
    kernel = values[f"{prefix}kernel"]
    units = kernel.shape[1] // 4

    def norm(z, name):
        if not is_normalized:
            return z
        z = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-12)
        return z * values[f"{prefix}{name}/gamma"] + values[f"{prefix}{name}/beta"]

    c = h = np.zeros([len(x), units])
    for now in np.moveaxis(x, 1, 0):
        gates = np.concatenate([now, h], axis=1) @ kernel + values.get(f"{prefix}bias", 0)
        i, j, f, o = (norm(gate, name) for gate, name in zip(
            np.split(gates, 4, axis=1), ("input", "transform", "forget", "output"), strict=True))
        c = norm(c * sigmoid(f + forget_bias) + np.tanh(j) * sigmoid(i), "state")
        h = np.tanh(c) * sigmoid(o)
    return h, c


@pytest.mark.parametrize("is_normalized", [True, False])
def test_layer_norm_lstm(session, is_normalized):
    x = RANDOM.normal(size=[2, 3, 5])
    cell = contrib.rnn.LayerNormBasicLSTMCell(
        4, forget_bias=0.5, layer_norm=is_normalized, norm_gain=0.7, norm_shift=0.2)
    outputs, state = v1.nn.dynamic_rnn(cell, tf.constant(x), dtype=tf.float64)
    assert len(v1.trainable_variables()) == (11 if is_normalized else 2)
    found, last = evaluated(session, [outputs, state])
    h, c = layer_norm_lstm(x, variables(session), 0.5, is_normalized)
    np.testing.assert_allclose(last.h, h, rtol=1e-6)
    np.testing.assert_allclose(last.c, c, rtol=1e-6)
    np.testing.assert_allclose(found[:, -1], h, rtol=1e-6)


def test_layer_norm_lstm_drops_out(session):
    keep = v1.placeholder_with_default(1.0, [])
    cell = contrib.rnn.LayerNormBasicLSTMCell(400, layer_norm=False, dropout_keep_prob=keep)
    _, state = v1.nn.dynamic_rnn(cell, tf.ones([1, 1, 2]), dtype=tf.float32)
    kept, dropped = evaluated(session, state.c), session.run(state.c, {keep: 0.75})
    is_kept = dropped != 0
    assert 0.65 < is_kept.mean() < 0.85
    np.testing.assert_allclose(dropped[is_kept], kept[is_kept] / 0.75, rtol=1e-5)
    with pytest.raises(ValueError, match="`input_size` must be None, got 3"):
        contrib.rnn.LayerNormBasicLSTMCell(4, input_size=3)


def test_lstm_block_cell_is_an_lstm_cell(session):
    x = tf.constant(RANDOM.normal(size=[2, 6, 5]))
    with v1.variable_scope("a", initializer=v1.ones_initializer()):
        block, _ = v1.nn.dynamic_rnn(contrib.rnn.LSTMBlockCell(
            4, forget_bias=0.3, cell_clip=2.5, use_peephole=True), x, dtype=tf.float64)
        unlimited, _ = v1.nn.dynamic_rnn(contrib.rnn.LSTMBlockCell(
            4, cell_clip=-1, name="other"), x, dtype=tf.float64)
    evaluated(session, [])
    names = {name.removeprefix("a/rnn/lstm_cell/") for name in variables(session)}
    assert {"kernel", "bias", "w_i_diag", "w_f_diag", "w_o_diag"} < names
    op = tf.raw_ops.BlockLSTM(  # gate order i, ci, f, o
        seq_len_max=np.int64(6), x=tf.cast(tf.transpose(x, [1, 0, 2]), tf.float32),
        cs_prev=tf.zeros([2, 4]), h_prev=tf.zeros([2, 4]), w=tf.ones([9, 16]), wci=tf.ones([4]),
        wcf=tf.ones([4]), wco=tf.ones([4]), b=tf.zeros([16]), forget_bias=0.3, cell_clip=2.5,
        use_peephole=True)
    with v1.variable_scope("a", reuse=True):
        v1.get_variable("rnn/lstm_cell/bias", [16], tf.float64).load(np.zeros(16), session)
    found, fused, free = session.run([block, tf.transpose(op.h, [1, 0, 2]), unlimited])
    np.testing.assert_allclose(found, fused, rtol=1e-5, atol=1e-6)
    assert np.abs(free).max() < 1


def test_stacked_bidirectional_rnn(session):
    x = tf.constant(RANDOM.normal(size=[2, 4, 3]))
    cells = [[contrib.rnn.BasicRNNCell(units) for units in (2, 5)] for _ in range(2)]
    outputs, forward, backward = contrib.rnn.stack_bidirectional_dynamic_rnn(
        *cells, x, dtype=tf.float64, sequence_length=[4, 2])
    found, fw, bw = evaluated(session, [outputs, forward, backward])
    values, below, lengths = variables(session), session.run(x), [4, 2]
    for index, units in enumerate((2, 5)):
        layer = np.zeros([2, 4, 2 * units])
        for way, half in (("fw", slice(units)), ("bw", slice(units, None))):
            prefix = f"stack_bidirectional_rnn/cell_{index}/bidirectional_rnn/{way}/basic_rnn_cell"
            for row, length in enumerate(lengths):
                h = np.zeros(units)
                for position in range(length)[::1 if way == "fw" else -1]:
                    h = np.tanh(np.concatenate([below[row, position], h])
                                @ values[f"{prefix}/kernel"] + values[f"{prefix}/bias"])
                    layer[row, position, half] = h
                np.testing.assert_allclose((fw if way == "fw" else bw)[index][row], h, rtol=1e-6)
        below = layer
    np.testing.assert_allclose(found, below, rtol=1e-6)
    with pytest.raises(ValueError, match="must have the same depth.* got 2 and 1"):
        contrib.rnn.stack_bidirectional_dynamic_rnn(cells[0], cells[1][:1], x, dtype=tf.float64)


def test_sequence_loss(session):
    logits, targets = RANDOM.normal(size=[3, 4, 5]), RANDOM.integers(0, 5, [3, 4])
    weights = RANDOM.uniform(size=[3, 4]) * [[1, 1, 0, 1]]
    losses = weights * (np.log(np.exp(logits).sum(2))
                        - np.take_along_axis(logits, targets[..., None], 2)[..., 0])

    def loss(*flags):
        return session.run(contrib.seq2seq.sequence_loss(
            tf.constant(logits), tf.constant(targets), tf.constant(weights), *flags))

    assert loss() == pytest.approx(losses.sum() / weights.sum())
    assert loss(False, True) == pytest.approx(losses.sum(0) / np.maximum(weights.sum(0), 1e-12))
    assert loss(True, False) == pytest.approx(losses.sum(1) / weights.sum(1))
    assert loss(False, False) == pytest.approx(losses)
    assert loss(False, False, True, True) == pytest.approx(losses.sum() / 9)
    assert loss(False, False, False, True) == pytest.approx(
        losses.sum(0) / np.maximum((weights > 0).sum(0), 1))
    assert loss(False, False, True) == pytest.approx(losses.sum(1) / 3)
    with pytest.raises(ValueError, match="cannot be true with"):
        loss(True, True, True)
    with pytest.raises(ValueError, match=r"Weights must be a tensor of 2 dimensions, got \(3,\)"):
        contrib.seq2seq.sequence_loss(tf.constant(logits), tf.constant(targets), tf.zeros([3]))


# Layers of sequences of ids.


def test_embeddings_of_sequences(session):
    ids = tf.constant([[1, 3, 3], [0, 2, 1]])
    layers = contrib.layers
    embedded = layers.embed_sequence(ids, 4, 2, scope="a")
    again = layers.embed_sequence(ids, unique=True, scope="a", reuse=True)
    bag = layers.bow_encoder(ids, 4, 2, scope="b")
    mean = layers.bow_encoder(ids, 4, 2, sparse_lookup=False, scope="c")
    sparse = layers.bow_encoder(tf.sparse.from_dense(ids), 4, 2, scope="b", reuse=True)
    gradient = tf.convert_to_tensor(tf.gradients(tf.reduce_sum(again), v1.global_variables()[0])[0])
    found, unique, bags, means, sparses, gradients = evaluated(
        session, [embedded, again, bag, mean, sparse, gradient])
    values, rows = variables(session), np.array([[1, 3, 3], [0, 2, 1]])
    np.testing.assert_array_equal(found, values["a/embeddings"][rows])
    np.testing.assert_array_equal(unique, found)
    np.testing.assert_array_equal(gradients, np.repeat([[1], [2], [1], [2]], 2, 1))
    np.testing.assert_allclose(
        bags, [values["b/embeddings"][[1, 3, 3]].mean(0), values["b/embeddings"][[2, 1]].mean(0)])
    np.testing.assert_array_equal(sparses, bags)
    np.testing.assert_allclose(means, values["c/embeddings"][rows].mean(1))
    assert len(values) == 3 and len(v1.get_collection("model_variables")) == 3
    with pytest.raises(ValueError, match="Must specify vocab size and embedding dimension when not "
                                         "reusing. Got vocab_size=4 and embed_dim=None"):
        layers.embed_sequence(ids, 4)
    with pytest.raises(TypeError, match="`ids` must be a dense tensor if `sparse_lookup` is false"):
        layers.bow_encoder(tf.sparse.from_dense(ids), 4, 2, sparse_lookup=False)


def test_small_names(session):
    with v1.name_scope("outer"):
        assert contrib.framework.get_name_scope() == "outer"

    @contrib.framework.deprecated("2018-01-01", "Use something else.")
    def old():
        return 7

    assert old() == 7
    assert contrib.util.constant_value(tf.constant([1, 2]) * 3) is None
    assert list(contrib.util.constant_value(tf.constant([1, 2]))) == [1, 2]
    assert list(session.run(contrib.nn.nth_element(tf.constant([[3.0, 1, 2]]), 1))) == [2]
    table = contrib.lookup.index_table_from_tensor(["a", "b"], num_oov_buckets=1)
    session.run(v1.tables_initializer())
    assert list(session.run(table.lookup(tf.constant(["b", "z", "a"])))) == [1, 2, 0]
