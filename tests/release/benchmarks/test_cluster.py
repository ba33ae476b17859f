# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks cluster`: what it says of its figures, and one cluster of forty rows."""

import pytest

from benchmarks import cluster
from benchmarks.cluster import Figures
from benchmarks.workloads import TINY, W


def test_targets_are_judged_for_every_pair():
    def figures(kind, servers, cpu):
        return Figures(kind, servers, 1, 5.0, cpu, (cpu,) * servers, 10 ** 9)

    printed = cluster.text(W, [figures("ours", 1, 1e-5), figures("stock", 1, 5e-5),
                               figures("ours", 2, 2e-5), figures("stock", 2, 2e-5)])
    assert "CPU against stock, 1 servers, 1 workers      at most 0.5x:  0.20x  reached" in printed
    assert "CPU against stock, 2 servers, 1 workers      at most 0.5x:  1.00x  NOT R" in printed
    assert "CPU with 2 servers against 1, 1 workers      at most 1.3x:  3.00x  NOT R" in printed
    assert "ours           2       1     5.00      20.0         20.0       60.0" in printed


@pytest.mark.parametrize("kind", ["ours", pytest.param("stock", marks=pytest.mark.soak)])
def test_a_cluster_is_measured_and_ended(tmp_path, kind):
    measured = cluster.measure(TINY, kind, servers=1, workers=0, seconds=1,
                               log=tmp_path / "logs" / "cluster.log")
    assert (measured.kind, measured.servers, measured.workers) == (kind, 1, 0)
    assert measured.steps_per_second > 0 and measured.server_bytes > 1e6
    assert 0 < measured.trainer_cpu < measured.cpu < 1


def test_a_cluster_that_fails_says_where_its_log_is(tmp_path):
    log = tmp_path / "cluster.log"
    with pytest.raises(RuntimeError, match=r"(ps|chief) 0.* ended before 8 steps .*, see "):
        cluster.measure(W.__class__("unknown", 1, 1, 1, (1,)), "ours", servers=1, workers=0,
                        seconds=1, log=log)
    assert "KeyError: 'unknown'" in log.read_text()
