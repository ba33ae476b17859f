# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches for TF2 programs: strategies and TPUEmbedding classes."""

from tpu_estimator_embedding.compat.patch import Patch

_OURS = "tpu_estimator_embedding"
_VERSIONS = ("", ".compat.v2")
_EMBEDDING = tuple(f"{root}.tpu.experimental.embedding" for root in (
    "tensorflow._api.v2", "tensorflow._api.v2.compat.v1", "tensorflow._api.v2.compat.v2",
    "tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2"))

MID_LEVEL = (
    *(Patch(f"tensorflow._api.v2{version}.distribute{parent}", "TPUStrategy",
            f"{_OURS}.compat.stand_ins.tpu_strategy:{source}",
            "fails without a TPU; there it has the devices of this machine", replaces=True)
      for version in _VERSIONS
      for parent, source in (("", "TPUStrategy"), (".experimental", "ExperimentalTPUStrategy"))),
    *(Patch(module, name, f"{_OURS}.compat.stand_ins.tpu_embedding:{name}",
            "looks up and trains without a TPU, too", replaces=True)
      for module in _EMBEDDING for name in ("TPUEmbedding", "TPUEmbeddingV2")),
    *(Patch(module, name, f"{_OURS}.mid_level:{name}", "new in TensorFlow 2.21")
      for module in _EMBEDDING for name in ("RowIdInitializer", "SparseCoreEmbeddingConfig")))
