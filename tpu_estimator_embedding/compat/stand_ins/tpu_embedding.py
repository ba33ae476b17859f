# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's names of the TPUEmbedding classes: this package's, where there is no TPU."""

from typing import Any

from tensorflow.python.tpu import tpu_embedding_v2 as upstream

from tpu_estimator_embedding.compat.stand_ins import tpu_system
from tpu_estimator_embedding.mid_level import tpu_embedding, tpu_embedding_v2


class TPUEmbedding(tpu_embedding.TPUEmbedding):
    __doc__ = tpu_embedding.TPUEmbedding.__doc__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present():
            return upstream.TPUEmbedding(*args, **kwargs)
        return super().__new__(cls)


class TPUEmbeddingV2(tpu_embedding_v2.TPUEmbeddingV2):
    __doc__ = tpu_embedding_v2.TPUEmbeddingV2.__doc__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present() and (theirs := _upstream_v2()):
            return theirs(*args, **kwargs)
        return super().__new__(cls)


def _upstream_v2() -> Any:
    """Returns TensorFlow's class, which it has from 2.16 on, or None."""
    try:
        from tensorflow.python.tpu import tpu_embedding_v3
    except ImportError:
        return None
    return getattr(tpu_embedding_v3, "TPUEmbeddingV2", None)
