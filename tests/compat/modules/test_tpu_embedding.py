# SPDX-License-Identifier: Apache-2.0
"""The restored `tpu_embedding` module."""

from tpu_estimator_embedding.compat.modules import tpu_embedding
from tpu_estimator_embedding.v1_engine import tpu_embedding as v1_tpu_embedding


def test_modes_are_the_protos():
    assert (tpu_embedding.INFERENCE, tpu_embedding.TRAINING) == (1, 2)


def test_everything_listed_exists():
    assert all(hasattr(tpu_embedding, name) for name in tpu_embedding.__all__)


def test_engine_is_this_packages():
    assert tpu_embedding.TPUEmbedding is v1_tpu_embedding.TPUEmbedding
