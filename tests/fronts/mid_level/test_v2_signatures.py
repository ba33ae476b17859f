# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of TPUEmbeddingV2 are those of TensorFlow, ours behind them.

Beside TensorFlow 2.15, `tests/public_surface.txt` holds them to what they were.
"""

import inspect

import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

METHODS = ["__init__", "__call__", "apply_gradients", "build", "compute_sparse_core_stats",
           "dequeue", "embedding_lookup", "enqueue"]


def positional(function):
    """Returns names and defaults of the arguments that may be given by position."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        parameter.name if parameter.default is inspect.Parameter.empty
        else f"{parameter.name}={parameter.default!r}" for parameter in parameters
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in ("self", "cls"))


@pytest.mark.all_cases
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.skipif(not hasattr(tf.tpu.experimental.embedding, "TPUEmbeddingV2"),
                    reason="TensorFlow 2.15 has no TPUEmbeddingV2")
def test_methods_are_called_as_tensorflows(method):
    theirs = tf.tpu.experimental.embedding.TPUEmbeddingV2
    assert positional(getattr(TPUEmbeddingV2, method)) == positional(getattr(theirs, method))
