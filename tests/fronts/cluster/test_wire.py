# SPDX-License-Identifier: Apache-2.0
"""What a worker and its servers send to each other in a step."""

import json
import sys

import pytest

from tests.kernel_choice import choose_kernels
from tests.subprocesses import start

# For W and 2 servers: of each table the sums, or the distinct rows, whichever takes fewer bytes;
# their ids and ends, and gradients. With sums alone it would be 44.3 MB.
LEAST_BYTES = 36.3e6


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_a_step_sends_few_tensors_and_few_bytes(strategy, monkeypatch):
    choose_kernels("native", monkeypatch)
    done = start([sys.executable, "-m", "tests.fronts.cluster.wire", 2, strategy],
                 TPU_ESTIMATOR_EMBEDDING_KERNELS="native", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr[-2000:]
    sent = json.loads(done.stdout.splitlines()[-1])
    assert sent["bytes"] < 1.01 * LEAST_BYTES
    assert sent["tensors"] <= 2 * 7  # with each server
    assert sent["orders"] <= 2 * 2
