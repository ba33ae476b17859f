# SPDX-License-Identifier: Apache-2.0
"""What an engine, and what a batch, is for: looking up, or training too."""

import enum
from typing import Any

from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2

from tpu_estimator_embedding import checks

_MODES = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration

TRAINING = _MODES.TRAINING
INFERENCE = _MODES.INFERENCE


class BatchMode(enum.Enum):
    """What happens to a batch: which of receiving and sending follow its enqueueing."""

    INFERENCE = "activations are received"
    TRAINING = "activations are received, then gradients sent"
    BACKWARD_PASS_ONLY = "gradients are sent, and no activations received"


# Both spellings of training are documented, one by the engine and one by its ops.
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
        mode: that of the engine.
        mode_override: that of the batch; None and "unspecified" take the engine's.

    Raises:
        ValueError: if the override is unknown, or asks an engine for inference to train: no
            gradients can be sent to it, and a TPU would wait for them forever.

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
