# SPDX-License-Identifier: Apache-2.0
"""Layers of tf.contrib.rnn that read whole sequences, against an LSTM in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
rnn = tf.contrib.rnn
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=[5, 3, 2]).astype(np.float32)  # positions, batch, size
LENGTHS = [5, 2, 0]


pytestmark = pytest.mark.usefixtures("session")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(inputs, lengths, kernel, bias, diagonals=(0, 0, 0), forget_bias=1.0, clip=np.inf):
    """Returns outputs, c and h; gates in the order i, j, f, o."""
    units = len(bias) // 4
    c = h = np.zeros([inputs.shape[1], units])
    outputs = []
    for position, x in enumerate(inputs):
        i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, axis=1)
        new = sigmoid(f + forget_bias + diagonals[1] * c) * c + (
            sigmoid(i + diagonals[0] * c) * np.tanh(j))
        new = np.clip(new, -clip, clip)
        out = sigmoid(o + diagonals[2] * new) * np.tanh(new)
        inside = (position < np.array(lengths))[:, None]
        outputs.append(np.where(inside, out, 0))
        c, h = np.where(inside, new, c), np.where(inside, out, h)
    return np.array(outputs), c, h


@pytest.mark.parametrize("peephole, clip", [(False, None), (True, None), (False, 0.1)])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_lstm_block_fused_cell(session, peephole, clip, lengths):
    cell = rnn.LSTMBlockFusedCell(4, use_peephole=peephole, cell_clip=clip)
    outputs, (c, h) = cell(tf.constant(INPUTS), dtype=tf.float32, sequence_length=lengths)
    assert outputs.shape == (5, 3, 4) and cell.num_units == 4
    names = [variable.op.name for variable in v1.trainable_variables()]
    assert names == [f"lstm_fused_cell/{name}" for name in [
        "kernel", "bias", *(["w_i_diag", "w_f_diag", "w_o_diag"] if peephole else [])]]
    session.run(v1.global_variables_initializer())
    kernel, bias, *diagonals = session.run(v1.trainable_variables())
    assert kernel.shape == (6, 16) and not bias.any()
    expected = lstm(INPUTS, lengths or [5] * 3, kernel, bias, diagonals or (0, 0, 0),
                    clip=clip or np.inf)
    for found, value in zip(session.run([outputs, c, h]), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)
    gradients = session.run(tf.gradients(outputs, v1.trainable_variables()))
    assert all(np.isfinite(gradient).all() for gradient in gradients) and gradients[0].any()


@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_time_reversed_adaptor(session, is_dynamic, lengths):
    cell = rnn.TimeReversedFusedRNN(rnn.FusedRNNCellAdaptor(
        rnn.BasicLSTMCell(4), use_dynamic_rnn=is_dynamic))
    outputs, state = cell(tf.constant(INPUTS), dtype=tf.float32, sequence_length=lengths)
    session.run(v1.global_variables_initializer())
    kernel, bias = session.run(v1.trainable_variables())
    lengths = lengths or [5] * 3
    turned = INPUTS.copy()
    for sample, length in enumerate(lengths):
        turned[:length, sample] = INPUTS[:length, sample][::-1]
    expected, c, h = lstm(turned, lengths, kernel, bias)
    for sample, length in enumerate(lengths):
        expected[:length, sample] = expected[:length, sample][::-1].copy()
    for found, value in zip(session.run([outputs, *state]), (expected, c, h), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
def test_functional_rnn(session, reverse, time_major):
    inputs = INPUTS if time_major else INPUTS.transpose(1, 0, 2)
    outputs, state = tf.contrib.recurrent.functional_rnn(
        rnn.BasicLSTMCell(4), tf.constant(inputs), dtype=tf.float32, time_major=time_major,
        reverse=reverse, use_tpu=True)
    session.run(v1.global_variables_initializer())
    expected, c, h = lstm(INPUTS[::-1] if reverse else INPUTS, [5] * 3,
                          *session.run(v1.trainable_variables()))
    expected = expected[::-1] if reverse else expected
    expected = expected if time_major else expected.transpose(1, 0, 2)
    for found, value in zip(session.run([outputs, *state]), (expected, c, h), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)


def test_bidirectional_functional_rnn(session):
    (forward, backward), _ = tf.contrib.recurrent.bidirectional_functional_rnn(
        rnn.BasicLSTMCell(4), rnn.BasicLSTMCell(4), tf.constant(INPUTS), dtype=tf.float32,
        time_major=True)
    session.run(v1.global_variables_initializer())
    values = session.run(v1.trainable_variables())
    np.testing.assert_allclose(session.run(forward), lstm(INPUTS, [5] * 3, *values[:2])[0],
                               atol=1e-5)
    np.testing.assert_allclose(session.run(backward),
                               lstm(INPUTS[::-1], [5] * 3, *values[2:])[0][::-1], atol=1e-5)
    with pytest.raises(ValueError, match="`fast_reverse` cannot be used with `sequence_length`"):
        tf.contrib.recurrent.bidirectional_functional_rnn(
            rnn.BasicLSTMCell(4), rnn.BasicLSTMCell(4), tf.constant(INPUTS),
            sequence_length=[1, 1, 1], fast_reverse=True)
