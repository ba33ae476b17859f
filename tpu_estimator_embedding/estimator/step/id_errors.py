# SPDX-License-Identifier: Apache-2.0
"""Errors about invalid ids, reduced to the relevant sentence."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding.ops.assertion import sentence_of


@contextlib.contextmanager
def explained_ids() -> Iterator[None]:
    """Re-raises errors about invalid ids without TensorFlow's stack traces.

    >>> with explained_ids():
    ...     raise tf.errors.InvalidArgumentError(None, None, "assertion failed: "
    ...         "[tpu_estimator_embedding: `ids of feature 'a'` must be in [0, 9), got 9.]")
    Traceback (most recent call last):
    ...
    tensorflow.python.framework.errors_impl.InvalidArgumentError: `ids of feature 'a'` must ...
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        sentence = sentence_of(error.message or "")
        if sentence is None:
            raise
        raise tf.errors.InvalidArgumentError(error.node_def, None, sentence) from None
