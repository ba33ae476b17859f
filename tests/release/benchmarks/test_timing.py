# SPDX-License-Identifier: Apache-2.0
"""The order of turns, and the processing of figures. Nothing here measures anything."""

import dataclasses

import pytest

from benchmarks import baselines, machine, report, scaling, targets, timing
from benchmarks.timing import Result, TimingSettings, measure, num_calls
from benchmarks.worker import WorkerError
from benchmarks.workloads import TINY, W1, W

SETTINGS = TimingSettings(rounds=3, seconds=1.0, warm_up_rounds=1)
ENTRIES = [baselines.ALL[name] for name in ("native", "stock_graph", "fbgemm")]


class FakeWorker:
    """Steps that take as long as they are told to."""

    def __init__(self, entry, seconds, calls, fails_at=""):
        self.entry, self._seconds, self._calls, self._fails_at = entry, seconds, calls, fails_at

    def _note(self, what):
        if what == self._fails_at:
            raise WorkerError(f"no {what}")
        self._calls.append((self.entry.name, what))

    def start(self):
        pass

    def open(self, workload, **options):
        self._note("open")
        return {"description": self.entry.name}

    def run(self, first, count):
        self._note("run")
        return self._seconds * count

    def memory_over_tables(self):
        return 5

    def close(self):
        self._note("close")


def workers_of(calls, fails_at=""):
    return {entry.name: FakeWorker(entry, seconds, calls, fails_at * (entry.name == "stock_graph"))
            for entry, seconds in zip(ENTRIES, (0.01, 0.1, 0.05), strict=True)}


def test_all_take_turns_and_the_order_is_turned_around():
    calls = []
    results = measure(TINY, ENTRIES, workers_of(calls), SETTINGS, lambda _: None)
    assert [len(result.samples) for result in results] == [3, 3, 3]
    assert [result.times_reference for result in results] == pytest.approx([1, 10, 5])
    turns = [name for name, what in calls if what == "run"][::2]  # each settles first
    names = [entry.name for entry in ENTRIES]
    assert turns == [*names, *names[::-1], *names, *names[::-1]]


def test_progress_is_called_as_often_as_announced():
    messages = []
    measure(TINY, ENTRIES, workers_of([]), SETTINGS, messages.append)
    assert len(messages) == num_calls(TINY, ENTRIES, SETTINGS)


def test_where_memory_is_short_the_first_stays_and_the_others_come_in_turn(monkeypatch):
    monkeypatch.setattr(timing, "available_bytes", lambda: int(2.5 * 1.3 * W1.bytes))
    calls = []
    results = measure(W1, ENTRIES, workers_of(calls), SETTINGS, lambda _: None)
    tables = [call for call in calls if call[1] != "run"]
    assert tables == [("native", "open"), ("stock_graph", "open"), ("stock_graph", "close"),
                      ("fbgemm", "open"), ("fbgemm", "close"), ("native", "close")]
    assert len(results[0].samples) == 6 and results[2].times_reference == pytest.approx(5)


@pytest.mark.parametrize(("names", "groups"), [
    (("native", "torch", "fbgemm"), 1), (("native", "stock_graph", "fbgemm"), 2)])
def test_a_baseline_that_needs_more_than_its_tables_takes_the_room_of_others(
        names, groups, monkeypatch):
    room = 3 * 1.1 * W1.bytes + 3.1 * timing._BYTES_OF_PROCESS
    monkeypatch.setattr(timing, "available_bytes", lambda: int(room))
    entries = [baselines.ALL[name] for name in names]
    workers = {entry.name: FakeWorker(entry, 0.1, []) for entry in entries}
    results = measure(W1, entries, workers, SETTINGS, lambda _: None)
    assert len(results[0].samples) == groups * SETTINGS.rounds


@pytest.mark.parametrize("fails_at", ["open", "run", "close"])
def test_one_that_fails_reports_why_and_the_others_continue(fails_at):
    results = measure(TINY, ENTRIES, workers_of([], fails_at), SETTINGS, lambda _: None)
    assert [result.error for result in results] == ["", f"no {fails_at}", ""]
    assert len(results[2].samples) == 3


@pytest.fixture(name="measured")
def some_results():
    seconds = {"native": 0.01, "stock_graph": 0.09, "bound": 0.008, "tf_ops": 0.05}
    return {"W": {name: Result(name, [value] * 3, 0.01, name, 12_000_000)
                  for name, value in seconds.items()}}


def test_ratios_are_compared_with_what_they_should_be(measured, monkeypatch):
    monkeypatch.setattr(targets.importlib.metadata, "version", lambda _: "2.21.0")
    text = report.text(measured, {"cores": "2"})
    [against_stock] = [line for line in text.splitlines() if "W: native against stock" in line]
    assert against_stock.split()[-5:] == ["13.0x", "9.0x", "9.0x", "NOT", "REACHED"]
    [share] = [line for line in text.splitlines() if "W: native against bound " in line]
    assert share.split()[-4:] == ["70%", "80%", "80%", "reached"]
    [other] = [line for line in text.splitlines() if "W1: native against stock" in line]
    assert other.endswith("not measured")


def test_ratios_in_turns_and_of_medians_are_both_printed(measured, monkeypatch):
    monkeypatch.setattr(targets.importlib.metadata, "version", lambda _: "2.21.0")
    measured["W"]["stock_graph"].reference = 0.005  # native was twice as fast beside it
    [line] = [line for line in report.text(measured, {}).splitlines()
              if "W: native against stock" in line]
    assert line.split()[-4:] == ["13.0x", "18.0x", "9.0x", "reached"]


def test_caches_of_the_machine_are_listed_without_that_of_instructions(tmp_path):
    for number, (kind, level, size) in enumerate([
            ("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K")]):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (index / name).write_text(f"{value}\n")
    assert machine.caches(str(tmp_path)) == "L1 48K L2 2048K"
    assert machine.caches(str(tmp_path / "nothing")) == "unknown"


def test_targets_of_old_tensorflow_are_its_own(monkeypatch):
    monkeypatch.setattr(targets.importlib.metadata, "version", lambda _: "2.15.1")
    [target] = targets.targets()
    assert target == targets.Target("W", "native", "stock_graph", 4)


def test_results_are_read_as_they_were_saved(measured, tmp_path):
    measured["W"]["keras"] = Result("keras", error="was not there")
    report.save(tmp_path, "W", measured["W"], machine.describe())
    assert report.load(tmp_path, "W") == measured["W"]
    assert report.load(tmp_path, "W2") is None
    assert "was not there" in report.text(measured, {})


def test_what_parsing_leaves_is_reported(measured):
    measured["W"]["parsing"] = Result("parsing", [0.03], 0.01)
    measured["W"]["estimator_records"] = Result("estimator_records", [0.04], 0.01)
    assert "25% of the step remain" in report.text(measured, {})


def test_bars_are_drawn(measured, tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import plots
    plots.bars(measured, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_axes_vary_one_size_and_fit_into_memory():
    for axis in scaling.axes(cores=4):
        workloads = [dataclasses.replace(axis.workload(size), name="") for size in axis.sizes]
        assert len(axis.sizes) >= 3 and max(workload.bytes for workload in workloads) < 4e9
        options = [axis.options(size) for size in axis.sizes]
        assert all(options) != (len(set(workloads)) > 1)


def test_curve_names_slope_and_growth():
    curve = scaling.Curve({"native": [(1, 0.1), (10, 0.2), (100, 0.4)]}, [])
    assert curve.growth("native") == pytest.approx(4)
    assert curve.slope("native") == pytest.approx(0.301, abs=1e-3)
    [axis] = [axis for axis in scaling.axes(2) if axis.name == "vocabulary"]
    assert "native" in scaling.text(axis, curve) and "0.30" in scaling.text(axis, curve)


def test_w_takes_all_baselines_and_w1_only_tables():
    end_to_end = [entry for entry in baselines.ALL.values() if entry.workloads]
    assert {entry.module for entry in end_to_end} == {
        "estimator", "parsing", "low_level", "engine_function", "tf2_classes"}
    assert not [entry.name for entry in end_to_end if entry.runs(W1)]
    assert {entry.name for entry in end_to_end if not entry.runs(W)} == {
        "estimator_loop", "estimator_long_loop"}, "loops of small steps"
