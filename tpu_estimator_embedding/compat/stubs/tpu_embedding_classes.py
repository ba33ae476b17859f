# SPDX-License-Identifier: Apache-2.0
"""This package's TPUEmbedding classes under TensorFlow's names, if there is no TPU."""

from typing import Any

from tensorflow.python.tpu import tpu_embedding_v1, tpu_embedding_v2

from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.mid_level import tpu_embedding, tpu_embedding_v0
from tpu_estimator_embedding.mid_level import tpu_embedding_v2 as mid_level_v2

try:
    from tensorflow.python.tpu import tpu_embedding_v3  # new in TensorFlow 2.16
except ImportError:
    tpu_embedding_v3 = None

_UpstreamTPUEmbeddingV0 = tpu_embedding_v1.TPUEmbeddingV0
_UpstreamTPUEmbedding = tpu_embedding_v2.TPUEmbedding
_UpstreamTPUEmbeddingV2 = getattr(tpu_embedding_v3, "TPUEmbeddingV2", None)


class TPUEmbedding(tpu_embedding.TPUEmbedding):
    __doc__ = tpu_embedding.TPUEmbedding.__doc__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present():
            return _UpstreamTPUEmbedding(*args, **kwargs)
        return super().__new__(cls)


class TPUEmbeddingV0(tpu_embedding_v0.TPUEmbeddingV0):
    __doc__ = tpu_embedding_v0.TPUEmbeddingV0.__doc__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present():
            return _UpstreamTPUEmbeddingV0(*args, **kwargs)
        return super().__new__(cls)


class TPUEmbeddingV2(mid_level_v2.TPUEmbeddingV2):
    __doc__ = mid_level_v2.TPUEmbeddingV2.__doc__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present() and _UpstreamTPUEmbeddingV2:
            return _UpstreamTPUEmbeddingV2(*args, **kwargs)
        return super().__new__(cls)

