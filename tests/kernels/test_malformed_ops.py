# SPDX-License-Identifier: Apache-2.0
"""Ops reject malformed graphs, instead of reading out of bounds."""

import json
import sys

from tests.kernel_choice import choose_kernels
from tests.subprocesses import start


def test_random_changes_to_real_calls_end_no_process(monkeypatch):
    choose_kernels("native", monkeypatch)
    done = start([sys.executable, "-m", "tests.kernels.malformed_ops", 1, 2000],
                 TPU_ESTIMATOR_EMBEDDING_KERNELS="native", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr[-2000:]
    ops = json.loads(done.stdout.splitlines()[-1])
    assert set(ops) == {"tpu_embedding_prepare_ids", "tpu_embedding_look_up",
                        "tpu_embedding_update", "tpu_embedding_parse_examples"}
    for counts in ops.values():
        assert counts["refused"] > 200 and counts["made"] > 30 and counts["sentences"] > 5
