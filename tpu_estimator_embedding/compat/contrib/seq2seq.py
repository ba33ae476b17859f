# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.seq2seq` and `tf.contrib.legacy_seq2seq` without decoders."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.types import Structure, Tensor

_EPSILON = 1e-12  # added to a sum of weights


def hardmax(logits: Tensor, name: str | None = None) -> Tensor:
    """Returns 1 at the largest element of the last dimension, and 0 elsewhere."""
    with tf.name_scope(name or "Hardmax"):
        logits = tf.convert_to_tensor(logits)
        return tf.one_hot(tf.argmax(logits, axis=-1), tf.shape(logits)[-1], dtype=logits.dtype)


def tile_batch(t: Structure, multiplier: int, name: str | None = None) -> Structure:
    """Repeats each sample `multiplier` times, next to each other.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     session.run(tile_batch(tf.constant([1, 2]), 2)).tolist()
    [1, 1, 2, 2]
    """
    def tile(tensor: Tensor) -> Tensor:
        tensor = tf.convert_to_tensor(tensor)
        size = tensor.shape[0]
        repeated = tf.repeat(tensor, multiplier, axis=0)
        repeated.set_shape([size and size * multiplier, *tensor.shape[1:]])
        return repeated

    with tf.name_scope(name or "tile_batch"):
        return tf.nest.map_structure(tile, t)


def gather_tree(step_ids: Tensor, parent_ids: Tensor, max_sequence_lengths: Tensor,
                end_token: Tensor | int, name: str | None = None) -> Tensor:
    """Returns the sequence of each beam, followed back from its last step.

    Args:
        step_ids: `[steps, batch, beams]`, int32.
        parent_ids: the beam of the step before, in the same shape.
        max_sequence_lengths: `[batch]`, steps of each sample.
        end_token: fills the steps behind the first end token, and behind the length.
        name: name of the ops.

    Returns:
        `[steps, batch, beams]`.
    """
    with tf.name_scope(name or "gather_tree"):
        steps = tf.shape(step_ids)[0]
        own = tf.zeros_like(step_ids[0]) + tf.range(tf.shape(step_ids)[2])

        def back(carried: tuple[Tensor, Tensor], step: tuple[Tensor, Tensor, Tensor],
                 ) -> tuple[Tensor, Tensor]:
            ids, parents, number = step
            beams = carried[1]
            is_inside = tf.broadcast_to((number < max_sequence_lengths)[:, None], tf.shape(beams))
            return (tf.where(is_inside, tf.gather(ids, beams, batch_dims=1), end_token),
                    tf.where(is_inside, tf.gather(parents, beams, batch_dims=1), beams))

        found, _ = tf.scan(back, (step_ids, parent_ids, tf.range(steps)), (own, own), reverse=True)
        ended = tf.cumsum(tf.cast(tf.equal(found, end_token), tf.int32), exclusive=True)
        return tf.where(ended > 0, end_token, found)


def sequence_loss_by_example(logits: Sequence[Tensor], targets: Sequence[Tensor],
                             weights: Sequence[Tensor], average_across_timesteps: bool = True,
                             softmax_loss_function: Callable[..., Tensor] | None = None,
                             name: str | None = None) -> Tensor:
    """Computes the weighted cross entropy of each sequence.

    Args:
        logits: `[batch, classes]` of each step.
        targets: `[batch]` of each step.
        weights: `[batch]` of each step.
        average_across_timesteps: whether to divide by the sum of the weights.
        softmax_loss_function: function of `labels` and `logits`; by default softmax cross entropy.
        name: name of the ops.

    Returns:
        `[batch]`.

    Raises:
        ValueError: if there are not as many steps in all three.
    """
    if not len(logits) == len(targets) == len(weights):
        raise ValueError("Lengths of logits, weights, and targets must be the same, got "
                         f"{len(logits)}, {len(weights)} and {len(targets)}.")
    function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss_by_example"):
        total = tf.add_n([function(labels=target, logits=logit) * weight
                          for logit, target, weight in zip(logits, targets, weights, strict=True)])
        return total / (tf.add_n(list(weights)) + _EPSILON) if average_across_timesteps else total


def sequence_loss(logits: Sequence[Tensor], targets: Sequence[Tensor], weights: Sequence[Tensor],
                  average_across_timesteps: bool = True, average_across_batch: bool = True,
                  softmax_loss_function: Callable[..., Tensor] | None = None,
                  name: str | None = None) -> Tensor:
    """Computes the sum or, by default, the mean of `sequence_loss_by_example` over the batch."""
    with tf.name_scope(name or "sequence_loss"):
        losses = sequence_loss_by_example(logits, targets, weights, average_across_timesteps,
                                          softmax_loss_function)
        return tf.reduce_mean(losses) if average_across_batch else tf.reduce_sum(losses)
