# SPDX-License-Identifier: Apache-2.0
"""The table of start-up times, and what counts as a busy machine."""

from benchmarks import baselines, report, startup
from benchmarks.timing import Result
from benchmarks.workloads import SMALL, W


def test_table_has_medians_and_extremes_of_every_task():
    table = startup.text({task: {"wall": [1.0, 2.0, 4.0], "cpu": [0.5, 0.25, 1.0]}
                          for task in startup.TASKS}).splitlines()
    assert len(table) == 1 + len(startup.TASKS) == 6
    assert table[1].startswith("  install() after import tensorflow ")
    assert table[1].split()[-8:] == ["2.00", "1.00", "-", "4.00", "0.50", "0.25", "-", "1.00"]
    assert "stock TPUEstimator: 500 tables x 1,000" in table[5]


def test_run_whose_bound_drifts_says_so():
    steady, drifting = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0, 1.0, 1.0, 1.1, 1.3, 1.3]
    assert Result("bound", steady).drift < 0.1 < 0.25 < Result("bound", drifting).drift
    for samples, is_told in ((steady, False), (drifting, True)):
        told = report.text({"W": {"bound": Result("bound", samples, reference=1.0)}}, {})
        assert ("W: NOT A QUIET MACHINE" in told) is is_told


def test_small_steps_are_measured_through_the_estimators():
    for workload in SMALL:
        names = [entry.name for entry in baselines.ALL.values() if entry.runs(workload)]
        assert names == ["estimator", "stock_estimator", "estimator_loop", "estimator_long_loop"]
    assert all(entry.runs(W) for entry in baselines.QUICK)
