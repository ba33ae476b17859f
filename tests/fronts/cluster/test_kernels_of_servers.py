# SPDX-License-Identifier: Apache-2.0
"""A job with a server that has no native kernels ends, and says which server and what to do."""

import re

import pytest

from tests.fronts.cluster.faults import training
from tests.kernel_choice import choose_kernels


@pytest.mark.long
def test_a_server_without_kernels_is_named(tmp_path, monkeypatch):
    choose_kernels("native", monkeypatch)
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_KERNELS", "")
    monkeypatch.setenv("TASK_WITHOUT_KERNELS", "ps 1")
    with training(tmp_path / "cluster", 20, workers=0, strategy="div",
                  seconds_per_step=0) as cluster:
        assert cluster["chief 0"].wait() != 0
        assert re.search("server 0 of 2 .* kernels: native", cluster["ps 0"].text)
        assert re.search("server 1 of 2 .* kernels: TF ops", cluster["ps 1"].text)
        assert re.search(r"requires the native kernels, and ps 1 \([\d.:]+\) has none.*"
                         "tpu-estimator-embedding build-kernels", cluster["chief 0"].text)
    assert not list((tmp_path / "cluster").glob("model.ckpt*"))
