# SPDX-License-Identifier: Apache-2.0
"""The restored `tpu_embedding` module."""

import pytest

from tpu_estimator_embedding.compat.modules import tpu_embedding


def test_modes_are_the_protos():
    assert (tpu_embedding.INFERENCE, tpu_embedding.TRAINING) == (1, 2)


def test_everything_listed_exists():
    assert all(hasattr(tpu_embedding, name) for name in tpu_embedding.__all__)


def test_engine_by_hand_names_the_way_out():
    with pytest.raises(RuntimeError, match=r"cannot be made by hand .*\.EmbeddingConfigSpec\("):
        tpu_embedding.TPUEmbedding({}, {}, 8, tpu_embedding.TRAINING, master="")
