# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of `tf.contrib.rnn` and `tf.contrib.recurrent` that read whole sequences.

Their inputs are `[positions, batch, size]`, unless they have `time_major`.
"""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.types import Structure, Tensor

v1 = tf.compat.v1
_State = v1.nn.rnn_cell.LSTMStateTuple

# The base of the cells that keep their variables as layers do.
LayerRNNCell = v1.nn.rnn_cell.BasicLSTMCell.__base__


class FusedRNNCell:
    """A base of layers that read a whole sequence in one call."""

    def __call__(self, inputs: Tensor, initial_state: Structure | None = None,
                 dtype: tf.DType | None = None, sequence_length: Tensor | None = None,
                 scope: Any = None) -> tuple[Tensor, Structure]:
        """Returns the outputs, `[positions, batch, units]`, and the last state."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__.")


class FusedRNNCellAdaptor(FusedRNNCell):
    """Applies a cell to a whole sequence.

    Args:
        cell: a cell of `tf.nn.rnn_cell`.
        use_dynamic_rnn: whether to loop; otherwise the graph has an op for each position.
    """

    def __init__(self, cell: tf.compat.v1.nn.rnn_cell.RNNCell,
                 use_dynamic_rnn: bool = False) -> None:
        self._cell, self._is_dynamic = cell, use_dynamic_rnn

    def __call__(self, inputs: Tensor, initial_state: Structure | None = None,
                 dtype: tf.DType | None = None, sequence_length: Tensor | None = None,
                 scope: Any = None) -> tuple[Tensor, Structure]:
        """Returns the outputs, `[positions, batch, units]`, and the last state."""
        if self._is_dynamic:
            return v1.nn.dynamic_rnn(self._cell, inputs, sequence_length, initial_state, dtype,
                                     time_major=True, scope=scope)
        outputs, state = v1.nn.static_rnn(self._cell, tf.unstack(inputs), initial_state, dtype,
                                          sequence_length, scope)
        return tf.stack(outputs), state


class TimeReversedFusedRNN(FusedRNNCell):
    """Reads each sequence from its end.

    Args:
        cell: a layer that reads a whole sequence.
    """

    def __init__(self, cell: FusedRNNCell) -> None:
        self._cell = cell

    def __call__(self, inputs: Tensor, initial_state: Structure | None = None,
                 dtype: tf.DType | None = None, sequence_length: Tensor | None = None,
                 scope: Any = None) -> tuple[Tensor, Structure]:
        """Returns the outputs, `[positions, batch, units]`, and the state at the first position."""
        outputs, state = self._cell(
            _reversed(inputs, sequence_length), initial_state=initial_state, dtype=dtype,
            sequence_length=sequence_length, scope=scope)
        return tf.nest.map_structure(lambda one: _reversed(one, sequence_length), outputs), state


def _reversed(values: Tensor, sequence_length: Tensor | None) -> Tensor:
    if sequence_length is None:
        return tf.reverse(values, [0])
    return tf.reverse_sequence(values, sequence_length, seq_axis=0, batch_axis=1)


class LSTMBlockFusedCell(tf.compat.v1.layers.Layer, FusedRNNCell):
    """An LSTM over a whole sequence, in TensorFlow's op `BlockLSTM`.

    Args:
        num_units: number of units.
        forget_bias: is added to the forget gate.
        cell_clip: limit of the state; None or a number below 0 means no limit.
        use_peephole: whether gates also depend on the state.
        reuse: whether to reuse existing variables.
        dtype: type of the variables.
        name: scope of the variables `kernel` and `bias`, and of `w_i_diag`, `w_f_diag` and
            `w_o_diag` with `use_peephole`.
    """

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, reuse: bool | None = None,
                 dtype: tf.DType | None = None, name: str = "lstm_fused_cell") -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._units, self._forget_bias, self._has_peephole = num_units, forget_bias, use_peephole
        self._clip = -1 if cell_clip is None else cell_clip
        self.input_spec = v1.layers.InputSpec(ndim=3)

    @property
    def num_units(self) -> int:
        """The number of units."""
        return self._units

    def build(self, input_shape: Any) -> None:
        """Makes the variables."""
        size = int(tf.TensorShape(input_shape)[2])
        self._kernel = self.add_weight("kernel", [size + self._units, 4 * self._units])
        self._bias = self.add_weight("bias", [4 * self._units],
                                     initializer=v1.zeros_initializer())
        self._diagonals = [self.add_weight(f"w_{gate}_diag", [self._units])
                           for gate in "ifo"] if self._has_peephole else []
        self.built = True

    def call(self, inputs: Tensor, initial_state: tuple[Tensor, Tensor] | None = None,
             dtype: tf.DType | None = None,
             sequence_length: Tensor | None = None) -> tuple[
                 Tensor, tf.compat.v1.nn.rnn_cell.LSTMStateTuple]:
        """Returns the outputs, `[positions, batch, units]`, and the last state.

        Args:
            inputs: `[positions, batch, size]`.
            initial_state: c and h; by default zeros.
            dtype: must be that of the inputs.
            sequence_length: positions of each sample; outputs beyond are 0. By default all.
        """
        if dtype not in (None, inputs.dtype):
            raise ValueError(f"`dtype` must be that of the inputs, {inputs.dtype.name}, got "
                             f"{tf.as_dtype(dtype).name}. Omit it.")
        positions, batch = tf.shape(inputs)[0], tf.shape(inputs)[1]
        zeros = tf.zeros([batch, self._units], inputs.dtype)
        c, h = (zeros, zeros) if initial_state is None else initial_state
        lengths = tf.fill([batch], positions) if sequence_length is None else tf.cast(
            sequence_length, tf.int32)
        peepholes = self._diagonals or [tf.zeros([self._units], inputs.dtype)] * 3
        result = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(tf.reduce_max(lengths), tf.int64), x=inputs, cs_prev=c, h_prev=h,
            w=self._kernel, wci=peepholes[0], wcf=peepholes[1], wco=peepholes[2], b=self._bias,
            forget_bias=self._forget_bias, cell_clip=self._clip, use_peephole=self._has_peephole)
        # Beyond the longest sequence the op leaves its outputs as they were.
        mask = tf.sequence_mask(lengths, positions, dtype=tf.bool)
        outputs = tf.where(tf.transpose(mask)[:, :, None], result.h, 0)
        outputs.set_shape([*inputs.shape[:2], self._units])
        last = tf.stack([lengths, tf.range(batch)], axis=1)
        return outputs, _State(*(
            tf.gather_nd(tf.concat([first[None], values], axis=0), last)
            for first, values in ((c, result.cs), (h, result.h))))


def functional_rnn(cell: tf.compat.v1.nn.rnn_cell.RNNCell, inputs: Tensor,
                   sequence_length: Tensor | None = None,
                   initial_state: Structure | None = None, dtype: tf.DType | None = None,
                   time_major: bool = False, scope: Any = None, use_tpu: bool = False,
                   reverse: bool = False) -> tuple[Tensor, Structure]:
    """Applies a cell, as `tf.nn.dynamic_rnn`; `use_tpu` changes no value.

    Args:
        reverse: whether to read each sequence from its end; outputs keep their positions.
    """
    def flipped(values: Tensor) -> Tensor:
        if not reverse:
            return values
        values = values if time_major else tf.transpose(values, [1, 0, 2])
        values = _reversed(values, sequence_length)
        return values if time_major else tf.transpose(values, [1, 0, 2])

    outputs, state = v1.nn.dynamic_rnn(cell, flipped(inputs), sequence_length, initial_state, dtype,
                                       time_major=time_major, scope=scope)
    return flipped(outputs), state


def bidirectional_functional_rnn(
        cell_fw: tf.compat.v1.nn.rnn_cell.RNNCell,
        cell_bw: tf.compat.v1.nn.rnn_cell.RNNCell, inputs: Tensor,
        initial_state_fw: Structure | None = None, initial_state_bw: Structure | None = None,
        dtype: tf.DType | None = None, sequence_length: Tensor | None = None,
        time_major: bool = False, use_tpu: bool = False, fast_reverse: bool = False,
        scope: Any = None) -> tuple[tuple[Tensor, Tensor], tuple[Structure, Structure]]:
    """Applies two cells, as `tf.nn.bidirectional_dynamic_rnn`; `use_tpu` changes no value.

    Raises:
        ValueError: if `fast_reverse` is true with `sequence_length`.
    """
    if fast_reverse and sequence_length is not None:
        raise ValueError("`fast_reverse` cannot be used with `sequence_length`, because it also "
                         "reverses the padding. Omit one of them.")
    return v1.nn.bidirectional_dynamic_rnn(
        cell_fw, cell_bw, inputs, sequence_length, initial_state_fw, initial_state_bw, dtype,
        time_major=time_major, scope=scope)
