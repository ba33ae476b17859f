# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.crf`: a linear chain of tags with scores of tags and of transitions.

The score of a sequence of tags y with potentials x and transitions A is

    s(x, y) = sum_t x[t, y[t]] + sum_t A[y[t - 1], y[t]]

and its probability is exp(s(x, y)) divided by the sum over all sequences of that length.

Source: Lafferty, McCallum, Pereira: Conditional Random Fields, 2001.
"""


import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def crf_log_likelihood(inputs: Tensor, tag_indices: Tensor, sequence_lengths: Tensor,
                       transition_params: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Computes the logarithm of the probability of the tags.

    Args:
        inputs: potentials, `[batch, positions, tags]`.
        tag_indices: integers, `[batch, positions]`.
        sequence_lengths: integers, `[batch]`.
        transition_params: `[tags, tags]`; None creates a variable `transitions`.

    Returns:
        The logarithms, `[batch]`, and the transition parameters.
    """
    if transition_params is None:
        tags = inputs.shape[2]
        transition_params = tf.compat.v1.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_sequence_score(inputs: Tensor, tag_indices: Tensor, sequence_lengths: Tensor,
                       transition_params: Tensor) -> Tensor:
    """Returns the score of the tags, `[batch]`; arguments as `crf_log_likelihood`."""
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params)


def crf_unary_score(tag_indices: Tensor, sequence_lengths: Tensor, inputs: Tensor) -> Tensor:
    """Returns the sum of the potentials of the tags, `[batch]`."""
    scores = tf.gather(inputs, tag_indices, axis=2, batch_dims=2)
    return tf.reduce_sum(scores * _valid(tag_indices, sequence_lengths, scores.dtype), axis=1)


def crf_binary_score(tag_indices: Tensor, sequence_lengths: Tensor,
                     transition_params: Tensor) -> Tensor:
    """Returns the sum of the scores of the transitions, `[batch]`."""
    pairs = tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=2)
    scores = tf.gather_nd(transition_params, pairs)
    valid = _valid(tag_indices, sequence_lengths, scores.dtype)
    return tf.reduce_sum(scores * valid[:, 1:], axis=1)


def crf_log_norm(inputs: Tensor, sequence_lengths: Tensor, transition_params: Tensor) -> Tensor:
    """Returns the logarithm of the sum of exp(score) over all tags, `[batch]`; 0 if empty."""

    def add_position(scores: Tensor, position: tuple[Tensor, Tensor]) -> Tensor:
        potentials, is_valid = position
        later = tf.reduce_logsumexp(scores[:, :, None] + transition_params, axis=1) + potentials
        return tf.where(is_valid[:, None], later, scores)

    scores = tf.foldl(add_position, _later_positions(inputs, sequence_lengths), inputs[:, 0])
    total = tf.reduce_logsumexp(scores, axis=1)
    return tf.where(sequence_lengths > 0, total, tf.zeros_like(total))


def crf_decode(potentials: Tensor, transition_params: Tensor,
               sequence_length: Tensor) -> tuple[Tensor, Tensor]:
    """Finds the tags with the highest score, by Viterbi's algorithm.

    Args:
        potentials: `[batch, positions, tags]`.
        transition_params: `[tags, tags]`.
        sequence_length: integers, `[batch]`.

    Returns:
        The tags, int32, `[batch, positions]`, 0 after the end; and their scores, `[batch]`.
    """
    initial = potentials[:, 0]
    stay = tf.zeros_like(initial, tf.int32) + tf.range(tf.shape(potentials)[2])

    def add_position(state: tuple[Tensor, Tensor],
                     position: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        now, is_valid = position
        scores = state[0][:, :, None] + transition_params
        later, previous = tf.reduce_max(scores, axis=1) + now, tf.argmax(scores, 1, tf.int32)
        return (tf.where(is_valid[:, None], later, state[0]),
                tf.where(is_valid[:, None], previous, stay))

    all_scores, pointers = tf.scan(
        add_position, _later_positions(potentials, sequence_length), (initial, stay))
    scores = tf.concat([initial[None], all_scores], axis=0)[-1]
    last = tf.argmax(scores, axis=1, output_type=tf.int32)
    earlier = tf.scan(lambda tag, pointer: tf.gather(pointer, tag, batch_dims=1), pointers, last,
                      reverse=True)
    tags = tf.transpose(tf.concat([earlier, last[None]], axis=0))
    valid = _valid(tags, sequence_length, tf.int32)
    return tags * valid, tf.reduce_max(scores, axis=1)


def viterbi_decode(score: np.ndarray, transition_params: np.ndarray) -> tuple[list[int], float]:
    """Finds the tags of one sequence with the highest score, in NumPy.

    Args:
        score: potentials, `[positions, tags]`.
        transition_params: `[tags, tags]`.

    Returns:
        The tags and their score.
    """
    best, pointers = np.asarray(score[0]), []
    for potentials in score[1:]:
        through = best[:, None] + transition_params
        pointers.append(through.argmax(axis=0))
        best = potentials + through.max(axis=0)
    tags = [int(best.argmax())]
    for pointer in reversed(pointers):
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], best.max()


def _valid(tags: Tensor, lengths: Tensor, dtype: tf.DType) -> Tensor:
    """Returns 1 for positions before the end, else 0, `[batch, positions]`."""
    return tf.sequence_mask(lengths, tf.shape(tags)[1], dtype)


def _later_positions(potentials: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns potentials, and whether they are before the end, of positions 1..., in order."""
    valid = tf.sequence_mask(lengths, tf.shape(potentials)[1])
    return tf.transpose(potentials, [1, 0, 2])[1:], tf.transpose(valid)[1:]
