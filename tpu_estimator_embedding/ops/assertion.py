# SPDX-License-Identifier: Apache-2.0
"""Assertions in a graph whose message is one sentence."""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

VALUE = "<value>"  # placeholder for the value of a tensor

# Marks where the sentence begins in the message of an error, which TensorFlow adds text to.
# The compiled ops use the same marker.
MARKER = "tpu_estimator_embedding: "


def sentence_of(message: str) -> str | None:
    """Returns the sentence of an error if an assertion of this package raised it, else None.

    >>> sentence_of("assertion failed: [tpu_estimator_embedding: got 9.]\\n\\t [[{{node Assert}}]]")
    'got 9.'
    """
    _, marker, rest = message.partition(MARKER)
    line = rest.partition("\n")[0].partition(" [[")[0]
    return line.rstrip("] ").replace("\\'", "'") if marker else None


def assert_that(holds: Tensor, sentence: str, *values: Tensor,
                subject: Tensor | None = None) -> list[tf.Operation]:
    """Fails with InvalidArgumentError if `holds` is false.

    Args:
        holds: scalar bool.
        sentence: the message, with `VALUE` as placeholder for each of `values`.
        values: tensors that the message shows.
        subject: scalar string that precedes the sentence, if that depends on values too.

    Returns:
        The ops to depend on in a graph; none when executing eagerly, where it raises at once.

    >>> assert_that(tf.constant(True), "`size` must be 2, got <value>.", tf.constant(3))
    []
    """
    sentence = MARKER + sentence if subject is None else sentence
    message = tf.strings.format(sentence, values, placeholder=VALUE) if values else sentence
    if subject is not None:
        message = tf.strings.join([MARKER, subject, message])
    # The raw op, because tf.debugging.Assert wraps every message in a separate cond.
    operation = tf.raw_ops.Assert(condition=holds, data=[message])
    return [] if operation is None else [operation]


def require(holds: Tensor, sentence: str, error: type[Exception]) -> list[tf.Operation]:
    """Requires a scalar boolean.

    Args:
        holds: scalar bool.
        sentence: the message if `holds` is false.
        error: the exception to raise in eager execution. In a graph, the op fails with
            tf.errors.InvalidArgumentError.

    Returns:
        The ops to depend on; an empty list in eager execution.
    """
    if not tf.executing_eagerly():
        return assert_that(holds, sentence)
    if not bool(holds):
        raise error(sentence)
    return []
