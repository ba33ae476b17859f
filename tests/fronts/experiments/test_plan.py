# SPDX-License-Identifier: Apache-2.0
"""What `plan` reports about a program before it trains: costs, warnings, and sampled input."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.experiments.sweeps import PROGRAM, run
from tpu_estimator_embedding import AdagradParameters, EmbeddingConfigSpec, FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.experiments import id_statistics, plan_report
from tpu_estimator_embedding.experiments.id_statistics import BatchIds
from tpu_estimator_embedding.free_memory import free_memory
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

ADAM = RowOptimizer(Adam(), 0.1)  # two slots
ZEROS = tf.compat.v1.zeros_initializer()


def plan_of(*tables, **options):
    """Tables of (name, rows, dim), each with one feature."""
    return EmbeddingPlan.build(
        [TablePlan(name, rows, dim, ZEROS, optimizer=ADAM) for name, rows, dim in tables],
        [FeaturePlan(f"of_{name}", name) for name, _, _ in tables], **options)


def test_memory_counts_tables_and_slots_on_every_host():
    memory = plan_report.memory_of(plan_of(("a", 7, 4), ("b", 2, 8), num_hosts=3), 10_000)
    assert memory.tables == 4 * (7 * 4 + 2 * 8)
    assert memory.slots == 2 * memory.tables
    assert memory.per_host == [4 * 3 * (3 * 4 + 8), 4 * 3 * (2 * 4 + 8), 4 * 3 * 2 * 4]
    assert sum(memory.per_host) == memory.needed == 3 * memory.tables
    assert memory.fits


def test_ways_to_fit_are_those_that_would():
    memory = plan_report.memory_of(plan_of(("a", 1000, 4)), available=20_000)
    assert not memory.fits
    rows, slots, hosts = plan_report.ways_to_fit(memory)
    assert rows.startswith("tables of 42% of the rows")
    assert "StochasticGradientDescentParameters" in slots and "15.6 KiB" in slots
    assert "num_hosts=3" in hosts
    assert not any("StochasticGradient" in way for way in plan_report.ways_to_fit(
        plan_report.memory_of(plan_of(("a", 1000, 4)), available=10_000)))


def test_memory_of_this_machine_is_less_than_it_has():
    with open("/proc/meminfo") as file:
        [total] = re.findall(r"MemTotal: +(\d+)", file.read())
    assert 0 < free_memory() <= 1024 * int(total)


def test_time_to_initialize_grows_with_the_rows():
    ticks = iter(range(100))
    seconds = plan_report.seconds_to_initialize(
        plan_of(("a", 1 << 20, 4)), clock=lambda: next(ticks))
    assert seconds == 4  # a quarter of the rows was timed, in one tick


def test_warnings_name_their_tables():
    few, odd, equal = plan_report.warnings_of(plan_of(
        ("few", 100, 4), ("odd", 9000, 6), ("same", 5000, 8), ("other", 5000, 8), num_hosts=4))
    assert few.startswith("Split over 4 hosts") and few.endswith(": few.")
    assert odd.endswith(": odd (6).")
    assert "5,000 × 8 share nothing: other, same." in equal and "468.8 KiB" in equal
    assert plan_report.warnings_of(plan_of(("one", 5000, 8), ("small", 10, 1))) == []


def batch(*samples):
    return BatchIds(np.array(sum(samples, []), np.int64), np.array([len(ids) for ids in samples]))


def test_facts_of_a_feature():
    batches = [batch([0, 0, 0], [], [5, 199]), batch([0, 7], [200], [-1, 7])]
    facts = id_statistics.feature_facts(batches, vocabulary_size=200)
    assert facts.ids_per_sample == pytest.approx(10 / 6)
    assert facts.empty == pytest.approx(1 / 6)
    assert facts.unique_per_batch == (3 + 4) / 2
    assert facts.hot_share == pytest.approx((4 + 2) / 8)  # of the two rows looked up most
    assert facts.out_of_range == 2


def test_loads_count_a_row_once_in_a_step_with_its_columns():
    plan = EmbeddingPlan.build(
        [TablePlan("a", 8, 4, ZEROS), TablePlan("b", 4, 2, ZEROS)],
        [FeaturePlan("x", "a"), FeaturePlan("y", "a"), FeaturePlan("z", "b")])
    steps = [{"x": batch([0, 1]), "y": batch([1, 4]), "z": batch([3])},
             {"x": batch([0]), "y": batch([0]), "z": batch([2, 9])}]
    assert id_statistics.rows_touched(plan, "a", steps) == 2
    div = id_statistics.loads(plan, 2, "div", steps)
    np.testing.assert_array_equal(div, [(2 * 4 + 4) / 2, (4 + 2 + 2) / 2])
    mod = id_statistics.loads(plan, 2, "mod", steps)
    np.testing.assert_array_equal(mod, [(2 * 4 + 4 + 2) / 2, (4 + 2) / 2])
    assert id_statistics.imbalance(div) == 6 / 5


@pytest.mark.parametrize("ids, better, reason", [
    (range(100), "mod", "frequent ids are adjacent"),
    (range(0, 1000, 2), "div", "frequent ids have the same remainder"),
    (range(1000), "div", "both are similar")])
def test_recommends_the_strategy_with_the_evener_load(ids, better, reason):
    strategy, why = id_statistics.recommend(
        plan_of(("a", 1000, 4)), 4, [{"of_a": batch(list(ids))}])
    assert strategy == better
    assert reason in why


def test_plan_that_does_not_fit_is_an_error_with_what_would(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(plan_report, "free_memory", lambda: 1 << 20)
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(10 ** 9, 64)},
        feature_to_config_dict={"title": FeatureConfig("words")},
        optimization_parameters=AdagradParameters(0.1))
    captured = types.SimpleNamespace(constructor_arguments={
        "embedding_config_spec": spec, "num_hosts": 1, "use_tpu": True})
    assert plan_report.show(captured, None, None, tmp_path / "plan.png") == 1
    shown = capsys.readouterr()
    assert "words  1000000000" in shown.out
    assert ("need 476.8 GiB, but this machine has 1.0 MiB available. Alternatives:"
            in shown.err)


def test_plan_of_a_program_with_its_input(tmp_path):
    done = run("plan", PROGRAM, "--sample", "5", "--hosts", "2", cwd=tmp_path)
    assert "Logging error" not in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert "Embedding plan: 2 tables, 2 features, 2 hosts, partition 'div', 2.2 KiB" in done.stdout
    assert re.search(r"^a checkpoint +2\.2 KiB and the dense", done.stdout, re.MULTILINE)
    assert "In 5 batches of the input:" in done.stdout
    assert re.search(r"^user +tbl_user +1\.00 +0\.0% ", done.stdout, re.MULTILINE)
    assert "partition_strategy='" in done.stdout
    assert "warning: Split over 2 hosts, these tables have fewer" in done.stdout
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "model").exists()  # nothing was trained


@pytest.mark.long
def test_figure_that_cannot_be_written_is_no_lack_of_memory(tmp_path):
    (tmp_path / "file").touch()
    done = run("plan", PROGRAM, "--sample", "1", "--figure", "file/plan.png", cwd=tmp_path)
    assert done.returncode == 2
    assert "plan: `--figure` must be a file that can be written: [Errno 20]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_plan_of_a_program_without_an_estimator(tmp_path):
    (tmp_path / "nothing.py").write_text("")
    done = run("plan", "nothing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "ended without constructing a TPUEstimator" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("program, end", [
    ("import sys; sys.exit(1)", "ended with exit status 1"),
    ("import sys; sys.exit(7)", "ended with exit status 7"),
    ("import sys; sys.exit('no data')", "ended with exit status 1 and the message 'no data'"),
    ("raise KeyError('price')", "failed")])
def test_plan_of_a_program_that_ends_early_says_how(program, end, tmp_path):
    (tmp_path / "early.py").write_text(program)
    done = run("plan", "early.py", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(rf"plan: \S*early.py {end} before it had constructed its TPUEstimator, so "
                     "there is nothing to inspect", done.stderr), done.stderr
    assert ("KeyError: 'price'" in done.stderr) == (end == "failed")
