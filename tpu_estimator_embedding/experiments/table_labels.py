# SPDX-License-Identifier: Apache-2.0
"""Short names of tables for the labels of bars."""

import collections
from collections.abc import Sequence

_OF_COLUMNS = "/embedding_weights"


def short_names(keys: Sequence[str]) -> list[str]:
    """Returns for every key of a table the part that distinguishes it from the others.

    >>> short_names(["a/words_embedding/embedding_weights", "items"])
    ['words_embedding', 'items']
    >>> short_names(["a/words", "b/words"])
    ['a/words', 'b/words']
    """
    shorter = [key.removesuffix(_OF_COLUMNS) for key in keys]
    last = [key.rpartition("/")[2] for key in shorter]
    counts = collections.Counter(last)
    return [name if counts[name] == 1 else key for name, key in zip(last, shorter, strict=True)]
