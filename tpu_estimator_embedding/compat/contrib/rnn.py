# SPDX-License-Identifier: Apache-2.0
"""Cells and layers of `tf.contrib.rnn`, and the loss of `tf.contrib.seq2seq`."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.compat.contrib import layers
from tpu_estimator_embedding.types import Structure, Tensor

v1 = tf.compat.v1
_EPSILON = 1e-12  # added to a sum of weights


class LayerNormBasicLSTMCell(tf.compat.v1.nn.rnn_cell.RNNCell):
    """An LSTM cell with normalized gates and state, and dropout of the candidate.

        i, j, f, o = norm(split([x, h] kernel))
        c := c * sigmoid(f + forget_bias) + dropout(activation(j)) * sigmoid(i)
        h := activation(norm(c)) * sigmoid(o)

    norm(z) = gamma * (z - mean) / sqrt(variance + 1e-12) + beta over the units of a sample. Without
    `layer_norm`, norm(z) = z, and a bias is added to the four gates.

    Source: Ba, Kiros, Hinton: Layer Normalization, https://arxiv.org/abs/1607.06450, 2016;
    Semeniuta, Severyn, Barth: Recurrent Dropout without Memory Loss,
    https://arxiv.org/abs/1603.05118, 2016.

    Args:
        num_units: number of units.
        forget_bias: is added to the forget gate.
        input_size: must be None; the cell takes it from its input.
        activation: function of the candidate and the state.
        layer_norm: whether to normalize.
        norm_gain: initial gamma.
        norm_shift: initial beta.
        dropout_keep_prob: probability to keep an element of the candidate; a number or a tensor.
        dropout_prob_seed: seed of the dropout.
        reuse: whether to reuse existing variables.

    Raises:
        ValueError: if `input_size` is given.
    """

    def __init__(self, num_units: int, forget_bias: float = 1.0, input_size: None = None,
                 activation: Callable[[Tensor], Tensor] = tf.tanh, layer_norm: bool = True,
                 norm_gain: float = 1.0, norm_shift: float = 0.0,
                 dropout_keep_prob: float | Tensor = 1.0, dropout_prob_seed: int | None = None,
                 reuse: bool | None = None) -> None:
        if input_size is not None:
            raise ValueError(f"`input_size` must be None, got {input_size!r}. The cell takes the "
                             "size from its input.")
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._is_normalized, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> tf.compat.v1.nn.rnn_cell.LSTMStateTuple:
        """The sizes of c and h."""
        return v1.nn.rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self._num_units

    def call(self, inputs: Tensor, state: Sequence[Tensor],
             ) -> tuple[Tensor, tf.compat.v1.nn.rnn_cell.LSTMStateTuple]:
        """Returns the output, `[batch, num_units]`, and the new state."""
        c, h = state
        joined = tf.concat([inputs, h], axis=1)
        width = 4 * self._num_units
        gates = joined @ v1.get_variable("kernel", [joined.shape[1], width], joined.dtype)
        if not self._is_normalized:
            gates += v1.get_variable("bias", [width], joined.dtype, v1.zeros_initializer())
        i, j, f, o = (self._norm(gate, name) for gate, name in zip(
            tf.split(gates, 4, axis=1), ("input", "transform", "forget", "output"), strict=True))
        candidate = self._activation(j)
        if isinstance(self._keep_prob, tf.Tensor) or self._keep_prob < 1:
            candidate = tf.nn.dropout(candidate, 1 - self._keep_prob, seed=self._seed)
        c = self._norm(c * tf.sigmoid(f + self._forget_bias) + candidate * tf.sigmoid(i), "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, v1.nn.rnn_cell.LSTMStateTuple(c, h)

    def _norm(self, values: Tensor, name: str) -> Tensor:
        if not self._is_normalized:
            return values
        with v1.variable_scope(name):
            for variable, initial in (("gamma", self._gain), ("beta", self._shift)):
                v1.get_variable(variable, [self._num_units], values.dtype,
                                v1.constant_initializer(initial))
        return layers.layer_norm(values, reuse=True, scope=name)


class LSTMBlockCell(tf.compat.v1.nn.rnn_cell.LSTMCell):
    """An LSTM cell: the equations, variables and defaults of the fused one, in single ops.

    Args:
        num_units: number of units.
        forget_bias: is added to the forget gate.
        cell_clip: limit of the state; None or a number below 0 means no limit.
        use_peephole: whether gates also depend on the state.
        dtype: type of the variables.
        reuse: whether to reuse existing variables.
        name: scope of the variables.
    """

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, dtype: tf.DType | None = None,
                 reuse: bool | None = None, name: str = "lstm_cell") -> None:
        is_limited = cell_clip is not None and cell_clip >= 0
        super().__init__(num_units, forget_bias=forget_bias, use_peepholes=use_peephole,
                         cell_clip=cell_clip if is_limited else None, dtype=dtype, reuse=reuse,
                         name=name)


def stack_bidirectional_dynamic_rnn(
        cells_fw: Sequence[tf.compat.v1.nn.rnn_cell.RNNCell],
        cells_bw: Sequence[tf.compat.v1.nn.rnn_cell.RNNCell], inputs: Tensor,
        initial_states_fw: Sequence[Structure] | None = None,
        initial_states_bw: Sequence[Structure] | None = None, dtype: tf.DType | None = None,
        sequence_length: Tensor | None = None, parallel_iterations: int | None = None,
        time_major: bool = False, scope: str | tf.compat.v1.VariableScope | None = None,
        swap_memory: bool = False) -> tuple[Tensor, tuple[Structure, ...],
                                          tuple[Structure, ...]]:
    """Stacks bidirectional layers; each reads both outputs of the one below, concatenated.

    Args:
        cells_fw: one cell per layer, for the forward direction.
        cells_bw: as many cells for the backward direction.
        inputs: `[batch, positions, size]`.
        initial_states_fw: one state per forward cell; by default zeros.
        initial_states_bw: one state per backward cell; by default zeros.
        others: as in `tf.nn.bidirectional_dynamic_rnn`.

    Returns:
        The outputs of the last layer, `[batch, positions, forward + backward size]`, and the last
        states of the forward and the backward cells.

    Raises:
        ValueError: if the numbers of cells or states differ, or there are none.
    """
    if not cells_fw or len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth: `cells_fw` and "
                         f"`cells_bw` must have as many cells, at least one, got {len(cells_fw)} "
                         f"and {len(cells_bw)}.")
    depth = len(cells_fw)
    states = [initial_states_fw or [None] * depth, initial_states_bw or [None] * depth]
    if any(len(given) != depth for given in states):
        raise ValueError(f"Initial states must have one state per cell, {depth}, got "
                         f"{len(states[0])} and {len(states[1])}.")
    last = []
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, (forward, backward, *initial) in enumerate(zip(
                cells_fw, cells_bw, *states, strict=True)):
            with v1.variable_scope(f"cell_{index}"):
                outputs, state = v1.nn.bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, *initial, dtype=dtype,
                    parallel_iterations=parallel_iterations, swap_memory=swap_memory,
                    time_major=time_major)
            inputs = tf.concat(outputs, axis=2)
            last.append(state)
    of_forward, of_backward = zip(*last, strict=True)
    return inputs, of_forward, of_backward


def sequence_loss(logits: Tensor, targets: Tensor, weights: Tensor,
                  average_across_timesteps: bool = True, average_across_batch: bool = True,
                  sum_over_timesteps: bool = False, sum_over_batch: bool = False,
                  softmax_loss_function: Callable[..., Tensor] | None = None,
                  name: str | None = None) -> Tensor:
    """Computes the weighted cross entropy of sequences.

    An average divides the sum of weight * loss by the sum of the weights; a sum divides it by the
    number of weights that are not 0.

    Args:
        logits: `[batch, positions, classes]`.
        targets: integers, `[batch, positions]`.
        weights: `[batch, positions]`.
        average_across_timesteps: whether to average over positions.
        average_across_batch: whether to average over the batch.
        sum_over_timesteps: whether to sum over positions.
        sum_over_batch: whether to sum over the batch.
        softmax_loss_function: function of `labels` and `logits`, of `[batch * positions]` and
            `[batch * positions, classes]`; by default softmax cross entropy.
        name: name of the ops.

    Returns:
        The loss: a scalar, or `[batch]`, `[positions]` or `[batch, positions]`.

    Raises:
        ValueError: if a shape has another rank, or both an average and a sum are asked for.
    """
    for argument, tensor, rank in (("Logits", logits, 3), ("Targets", targets, 2),
                                   ("Weights", weights, 2)):
        if tensor.shape.rank != rank:
            raise ValueError(f"{argument} must be a tensor of {rank} dimensions, got "
                             f"{tensor.shape}.")
    averages = average_across_timesteps, average_across_batch
    sums = sum_over_timesteps, sum_over_batch
    if any(averages) and any(sums):
        raise ValueError("average_across_timesteps and average_across_batch cannot be true with "
                         f"sum_over_timesteps or sum_over_batch, got {averages} and {sums}.")
    with tf.name_scope(name or "sequence_loss"):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = tf.reshape(function(
            labels=tf.reshape(targets, [-1]),
            logits=tf.reshape(logits, [-1, tf.shape(logits)[2]])), tf.shape(targets)) * weights
        axes = [axis for axis, is_reduced in ((1, any((averages[0], sums[0]))),
                                              (0, any((averages[1], sums[1])))) if is_reduced]
        if any(averages):
            return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + _EPSILON)
        if any(sums):
            count = tf.math.count_nonzero(weights, axes, dtype=losses.dtype)
            return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), count)
        return losses
