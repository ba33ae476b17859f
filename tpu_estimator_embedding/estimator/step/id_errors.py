# SPDX-License-Identifier: Apache-2.0
"""Bad ids, said in the one sentence that matters."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

# TensorFlow puts where an op stands before, and how it came about, over a hundred lines, after.
_SENTENCE = re.compile(r"`[^`\n]+ of (?:sequence )?feature \\?'[^\n]+? must be [^\n]+")


@contextlib.contextmanager
def explained_ids() -> Iterator[None]:
    """Raises the errors of ids that no step can use anew, without TensorFlow's stack traces.

    >>> with explained_ids():
    ...     raise tf.errors.InvalidArgumentError(
    ...         None, None, "assertion failed: [`ids of feature 'a'` must be in [0, 9), got 9.]")
    Traceback (most recent call last):
    ...
    tensorflow.python.framework.errors_impl.InvalidArgumentError: `ids of feature 'a'` must ...
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _SENTENCE.search(error.message or "")
        if found is None:
            raise
        sentence = re.sub(r"\]?\s*(\[\[.*)?$", "", found[0]).replace("\\'", "'")
        raise tf.errors.InvalidArgumentError(error.node_def, None, sentence) from None
