# SPDX-License-Identifier: Apache-2.0
"""Measures baselines in turns of a few steps, so that disturbances affect all of them.

If the tables of all baselines do not fit into memory together, the first baseline, which is the
reference, stays loaded, and the others are measured one after another.
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence

from benchmarks.baselines import Entry
from benchmarks.machine import available_bytes
from benchmarks.worker import Worker, WorkerError
from benchmarks.workloads import Workload

_BYTES_OF_PROCESS = 1 << 30  # memory of TensorFlow or PyTorch, with its input
_MAX_STEPS = 500  # maximum steps per turn


@dataclasses.dataclass(frozen=True)
class TimingSettings:
    """The duration of a measurement.

    Attributes:
        rounds: number of measured turns of each baseline.
        seconds: approximate duration of a turn.
        warm_up_rounds: number of turns before the measured ones.
    """

    rounds: int = 9
    seconds: float = 0.4
    warm_up_rounds: int = 2


QUICK = TimingSettings(rounds=4, seconds=0.2, warm_up_rounds=1)


@dataclasses.dataclass
class Result:
    """The measurements of one baseline.

    Attributes:
        baseline: its name.
        samples: seconds per step, one number for each turn.
        reference: the median of the first baseline in the same turns.
        description: its own description, such as its kernels.
        memory_over_tables: bytes of memory used beyond tables and slots.
        error: why there are no samples.
    """

    baseline: str
    samples: list[float] = dataclasses.field(default_factory=list)
    reference: float = 0.0
    description: str = ""
    memory_over_tables: int = 0
    error: str = ""

    @property
    def median(self) -> float:
        """Median of the seconds per step."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the samples."""
        if len(self.samples) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    @property
    def drift(self) -> float:
        """How much slower its slowest third was than its fastest, in turn: 0.2 is 20 %."""
        third = max(1, len(self.samples) // 3)
        medians = [statistics.median(self.samples[start:start + third])
                   for start in (0, (len(self.samples) - third) // 2, len(self.samples) - third)]
        return max(medians) / min(medians) - 1

    @property
    def times_reference(self) -> float:
        """Time per step divided by that of the first baseline."""
        return self.median / self.reference


def measure(workload: Workload, entries: Sequence[Entry], workers: dict[str, Worker],
            settings: TimingSettings, progress: Callable[[str], None],
            options: dict[str, object] | None = None) -> list[Result]:
    """Measures all baselines on one workload.

    Args:
        workload: the workload to run.
        entries: the baselines; the first one is the reference.
        workers: name -> its process.
        settings: the duration of the measurement.
        progress: called `num_calls` times, with a description of the next action.
        options: keyword arguments of every baseline.

    Returns:
        A result for each entry, in the same order.
    """
    results = {entry.name: Result(entry.name) for entry in entries}
    first = entries[0]
    opened: set[str] = set()
    for group in list(_groups(workload, entries)):
        names = [first.name, *(entry.name for entry in group)]
        for name in names:
            workers[name].start()  # all processes import modules at the same time
        for name in names:
            if name not in opened and not results[name].error:
                progress(f"{workload.name}: {name} makes its tables")
                _open(workers[name], workload, options or {}, results[name])
                opened.add(name)
        running = [name for name in names if not results[name].error]
        _take_turns(workload, running, workers, settings, progress, results)
        for entry in group:
            _close(workers[entry.name], results[entry.name])
    _close(workers[first.name], results[first.name])
    return list(results.values())


def num_calls(workload: Workload, entries: Sequence[Entry], settings: TimingSettings) -> int:
    """Returns the number of calls of `progress` in `measure`."""
    turns = sum(1 + len(group) for group in _groups(workload, entries))
    return len(entries) + turns * (settings.rounds + settings.warm_up_rounds)


def _groups(workload: Workload, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Splits the other baselines into groups that fit into memory with the first one."""
    first, *others = entries
    room = available_bytes() - _memory(workload, first)
    group: list[Entry] = []
    for entry in others:
        if group and sum(_memory(workload, other) for other in [*group, entry]) > room:
            yield group
            group = []
        group.append(entry)
    yield group


def _memory(workload: Workload, entry: Entry) -> float:
    return entry.memory * workload.bytes + _BYTES_OF_PROCESS


def _open(worker: Worker, workload: Workload, options: dict[str, object],
          result: Result) -> None:
    try:
        result.description = worker.open(workload, **options)["description"]
    except WorkerError as error:
        result.error = str(error)


def _close(worker: Worker, result: Result) -> None:
    if result.error:
        return
    try:
        result.memory_over_tables = worker.memory_over_tables()
        worker.close()
    except WorkerError as error:
        result.error = str(error)


def _take_turns(workload: Workload, names: Sequence[str], workers: dict[str, Worker],
                settings: TimingSettings, progress: Callable[[str], None],
                results: dict[str, Result]) -> None:
    samples: dict[str, list[float]] = {name: [] for name in names}
    done = dict.fromkeys(names, 0)
    for round_number in range(settings.warm_up_rounds + settings.rounds):
        order = names if round_number % 2 == 0 else names[::-1]
        for name in order:
            progress(f"{workload.name}: {name}")
            if not results[name].error:
                _take_turn(workers[name], samples[name], done, settings, results[name])
    for name in names:
        measured = samples[name][settings.warm_up_rounds:]
        results[name].samples += measured
        if measured and samples[names[0]]:
            results[name].reference = statistics.median(
                samples[names[0]][settings.warm_up_rounds:] or measured)


def _take_turn(worker: Worker, samples: list[float], done: dict[str, int], settings: TimingSettings,
               result: Result) -> None:
    settling = worker.entry.settling_steps
    expected = samples[-1] if samples else settings.seconds
    count = min(_MAX_STEPS, max(1, round(settings.seconds / expected)))
    try:
        worker.run(done[result.baseline], settling)
        seconds = worker.run(done[result.baseline] + settling, count)
    except WorkerError as error:
        result.error = str(error)
        return
    done[result.baseline] += settling + count
    samples.append(seconds / count)
