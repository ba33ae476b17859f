# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks dlrm`: all ways train the same model."""

import numpy as np
import pytest

from benchmarks import dlrm
from tpu_estimator_embedding.channels import channel

SMALL = dlrm.Settings(batch_size=512, steps=60, loop=20, eval_steps=8, limit=30, dim=4)


@pytest.mark.skipif(not channel.are_available(), reason="channels need native kernels")
def test_all_ways_learn_the_same():
    figures = dlrm.measure(SMALL, lambda way: None)
    assert list(figures) == [name for name, way in dlrm.WAYS.items() if not way.missing]
    assert {"hand_driven", "estimator", "mid_level", "stock_graph", "keras"} <= set(figures)
    auc = [each["auc"] for each in figures.values()]
    np.testing.assert_allclose(auc, auc[0], atol=2e-3)
    assert auc[0] > 0.55
    assert all(each["examples_per_second"] > 0 for each in figures.values())


def test_ids_are_in_their_tables_and_small_ones_are_frequent():
    [(numbers, ids, labels)], _ = dlrm.make_batches(dlrm.Settings(steps=1, eval_steps=0))
    sizes = np.array(dlrm.Settings().sizes)
    assert numbers.shape == (2048, 13) and ids.shape == (26, 2048)
    assert (ids >= 0).all() and (ids < sizes[:, np.newaxis]).all()
    assert 0.04 < (ids[0] == 0).mean() < 0.08  # log 2 / log 200,001
    assert 0.2 < labels.mean() < 0.8


def test_table_has_a_line_for_each_way():
    printed = dlrm.text(SMALL, {way: {"examples_per_second": 1234.5, "auc": 0.75}
                                for way in dlrm.WAYS if way != "fbgemm"})
    assert len(printed.splitlines()) == 2 + len(dlrm.WAYS)
    assert printed.splitlines()[2].split()[-2:] == ["1,234", "0.7500"]
    assert "not measured: " in printed.splitlines()[-1]


def test_way_that_fails_leaves_the_figures_of_the_others(monkeypatch):
    monkeypatch.setattr(dlrm, "WAYS", {"unknown": dlrm.Way("none of its ways", "none:none", ())})
    assert dlrm.measure(SMALL, lambda way: None) == {}
    assert "not measured: it failed" in dlrm.text(SMALL, {})
