# SPDX-License-Identifier: Apache-2.0
"""The modes of an engine and of a batch: lookup only, or training."""

import enum
from typing import Any

from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2

from tpu_estimator_embedding import checks

_MODES = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration

TRAINING = _MODES.TRAINING
INFERENCE = _MODES.INFERENCE


class BatchMode(enum.Enum):
    """Which calls follow after a batch was enqueued."""

    INFERENCE = "activations are received"
    TRAINING = "activations are received, then gradients are sent"
    BACKWARD_PASS_ONLY = "gradients are sent, activations are not received"


# TensorFlow documents both spellings of training: one in the engine, one in its ops.
_OVERRIDES = {"inference": BatchMode.INFERENCE, "train": BatchMode.TRAINING,
              "training": BatchMode.TRAINING,
              "backward_pass_only": BatchMode.BACKWARD_PASS_ONLY}


def check_mode(mode: Any) -> None:
    """Raises ValueError unless `mode` is TRAINING or INFERENCE."""
    checks.check(mode in (TRAINING, INFERENCE), "mode",
                 f"TRAINING ({TRAINING}) or INFERENCE ({INFERENCE})", mode,
                 sentence=f"`mode` only supports {TRAINING} and {INFERENCE}; got {mode}.")


def batch_mode(mode: int, mode_override: str | None) -> BatchMode:
    """Returns the mode of a batch.

    Args:
        mode: the mode of the engine.
        mode_override: the mode of the batch; None and "unspecified" mean the engine's.

    Raises:
        ValueError: if the override is unknown, or requests training from an engine for
            INFERENCE. No gradients can be sent to it, and a TPU would wait for them forever.

    >>> batch_mode(TRAINING, None).name, batch_mode(TRAINING, "inference").name
    ('TRAINING', 'INFERENCE')
    """
    if mode_override in (None, "unspecified"):
        return BatchMode.TRAINING if mode == TRAINING else BatchMode.INFERENCE
    checks.check_one_of("mode_override", ("unspecified", *_OVERRIDES), mode_override)
    override = _OVERRIDES[mode_override]
    checks.check(mode == TRAINING or override == BatchMode.INFERENCE, "mode_override",
                 "'unspecified' or 'inference' in an engine for INFERENCE", mode_override,
                 "Make the TPUEmbedding with mode=TRAINING to train.")
    return override
