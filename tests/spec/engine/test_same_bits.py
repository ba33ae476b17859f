# SPDX-License-Identifier: Apache-2.0
"""Every instruction set and any number of threads give the same bits."""

import json
import sys

import pytest

from tests.spec.engine.same_bits import NUM_THREADS
from tests.spec.optimizer_cases import CASES
from tests.subprocesses import start

pytestmark = pytest.mark.usefixtures("native_kernels")  # of the programs, too

ENVIRONMENT = {"TF_OVERRIDE_GLOBAL_THREADPOOL": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def printed(program, **environment):
    """Returns what the program says that it computed."""
    done = start([sys.executable, "-m", program], **ENVIRONMENT, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_instruction_sets_and_threads():
    best = printed("tests.spec.engine.same_bits", TPU_ESTIMATOR_EMBEDDING_SIMD="")
    expected = {case: best["digests"][f"{case} on 1 threads"] for case in CASES}
    assert len(set(expected.values())) == len(CASES)
    levels = {"native (avx512)": ["baseline", "avx2"], "native (avx2)": ["baseline"]}
    runs = [best]
    for level in levels.get(best["kernels"], []):
        runs.append(printed("tests.spec.engine.same_bits", TPU_ESTIMATOR_EMBEDDING_SIMD=level))
        assert runs[-1]["kernels"] == f"native ({level})"
    for run in runs:
        assert run["digests"] == {f"{case} on {number} threads": expected[case]
                                  for number in NUM_THREADS for case in CASES}, run["kernels"]


def test_skewed_ids():
    checked = printed("tests.spec.engine.skewed_ids")["checked"]
    assert len(checked) == 5 * len(NUM_THREADS)


def test_measures():
    found = printed("tests.spec.engine.same_measures")
    assert len(found) == 2 * len(NUM_THREADS)
    for accumulates in (True, False):
        digests, statistics = zip(*(found[f"{number} threads, accumulates: {accumulates}"]
                                    for number in NUM_THREADS), strict=True)
        assert len(set(digests)) == 1
        assert all(of_tables == statistics[0] for of_tables in statistics)
        assert statistics[0]["large"]["clipped_share"] > 0
