# SPDX-License-Identifier: Apache-2.0
"""Detects where a program disables pipelining, so that lookups see all updates."""

import importlib

from tensorflow.python.ops import summary_ops_v2

_STATE = "tensorflow.python.tpu.embedding_context_utils"


def is_sequential() -> bool:
    """Whether pipelining is off at this point of the program.

    It is off inside TensorFlow's `SequentialEmbeddingContext`, in releases that have it, and
    while summaries are recorded: `tf.summary.record_if(True)` around a writer. A condition that
    is a tensor or a function is ignored. In a `tf.function`, the context at tracing time decides.
    """
    return _is_recording_summaries() or not _is_enabled()


def _is_recording_summaries() -> bool:
    state = summary_ops_v2._summary_state
    return state.writer is not None and state.is_recording is True


def _is_enabled() -> bool:
    try:
        state = importlib.import_module(_STATE)
    except ImportError:
        return True
    return state.embedding_pipelining_state.enabled
