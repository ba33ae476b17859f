# SPDX-License-Identifier: Apache-2.0
"""Ops reject malformed graphs, instead of reading out of bounds."""

import json
import sys

import pytest

from tests.kernel_choice import choose_kernels
from tests.subprocesses import start

pytestmark = pytest.mark.every_tensorflow


def test_random_changes_to_real_calls_end_no_process(monkeypatch):
    choose_kernels("native", monkeypatch)
    done = start([sys.executable, "-m", "tests.spec.kernels.malformed_ops", 1, 8000],
                 TPU_ESTIMATOR_EMBEDDING_KERNELS="native", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr[-2000:]
    ops = json.loads(done.stdout.splitlines()[-1])
    assert set(ops) == {
        "tpu_embedding_prepare_ids", "tpu_embedding_look_up", "tpu_embedding_update",
        "tpu_embedding_parse_examples", "tpu_embedding_compact_ids", "tpu_embedding_flat_look_up",
        "tpu_embedding_joined_look_up", "tpu_embedding_sort_ids", "tpu_embedding_combine",
        "tpu_embedding_gather_gradients", "tpu_embedding_open_stored_table"}
    for counts in ops.values():
        assert counts["refused"] > 200 and counts["made"] > 10 and counts["sentences"] > 0
