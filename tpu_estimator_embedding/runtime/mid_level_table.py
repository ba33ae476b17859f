# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches for TF2 programs: strategies and TPUEmbedding classes."""

from typing import Any

from tpu_estimator_embedding.compat.patch import Patch

_OURS = "tpu_estimator_embedding"
_PYTHON = "tensorflow.python"
_VERSIONS = ("", ".compat.v2")
_EMBEDDING = tuple(f"{root}.tpu.experimental.embedding" for root in (
    "tensorflow._api.v2", "tensorflow._api.v2.compat.v1", "tensorflow._api.v2.compat.v2",
    "tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2"))


def _embedding(module: str, name: str, **options: Any) -> Patch:
    return Patch(module, name, f"{_OURS}.compat.stand_ins.tpu_embedding:{name}",
                 "works without a TPU", replaces=True, **options)


MID_LEVEL = (
    *(Patch(f"tensorflow._api.v2{version}.distribute{parent}", "TPUStrategy",
            f"{_OURS}.compat.stand_ins.tpu_strategy:{source}",
            "fails without a TPU; uses the devices of this machine instead", replaces=True)
      for version in _VERSIONS
      for parent, source in (("", "TPUStrategy"), (".experimental", "ExperimentalTPUStrategy"))),
    *(_embedding(module, name) for module in _EMBEDDING
      for name in ("TPUEmbedding", "TPUEmbeddingV2")),
    _embedding(f"{_PYTHON}.tpu.tpu_embedding_v2", "TPUEmbedding"),
    _embedding(f"{_PYTHON}.tpu.tpu_embedding_v3", "TPUEmbeddingV2", since=(2, 16)),
    *(Patch(module, "TPUEmbeddingForServing", f"{_OURS}.mid_level:TPUEmbeddingForServing",
            "uses this package's tables", replaces=True)
      for module in (*_EMBEDDING, f"{_PYTHON}.tpu.tpu_embedding_for_serving")),
    *(_embedding(module, "TPUEmbeddingV0")
      for module in (*_EMBEDDING, f"{_PYTHON}.tpu.tpu_embedding_v1")),
    Patch(f"{_PYTHON}.distribute", "tpu_strategy", f"{_OURS}.runtime.strategy_view:tpu_strategy",
          "shows the classes for this machine; TensorFlow's modules still use their own",
          is_module=True, replaces=True),
    *(Patch(module, name, f"{_OURS}.mid_level:{name}", "new in TensorFlow 2.21")
      for module in _EMBEDDING for name in ("RowIdInitializer", "SparseCoreEmbeddingConfig")))
