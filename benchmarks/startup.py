# SPDX-License-Identifier: Apache-2.0
"""How long programs take to start, in separate processes that take turns.

`python -m benchmarks.startup TASK` is such a process: it prints seconds as JSON.
"""

import compileall
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.workloads import Workload

ROUNDS = 5
_PROGRAMS = {
    "26 tables x 100,000": Workload("start26", 100_000, 32, 64, (1,) * 26),
    "500 tables x 1,000": Workload("start500", 1_000, 8, 64, (1,) * 500)}
TASKS = ("install", *(f"{kind}: {name}" for name in _PROGRAMS for kind in ("ours", "stock")))

Seconds = dict[str, dict[str, list[float]]]  # task -> "wall" and "cpu" -> of every round


def measure(progress: Callable[[str], None], rounds: int = ROUNDS) -> Seconds:
    """Runs every task in turn; `progress` is called with each, `rounds * len(TASKS)` times.

    Byte-compiles this package and the benchmarks first, as pip does when it installs a package;
    a checkout with PYTHONDONTWRITEBYTECODE would compile them in every process.
    """
    root = Path(__file__).parents[1]
    for package in ("benchmarks", "tpu_estimator_embedding"):
        compileall.compile_dir(root / package, quiet=1)
    seconds: Seconds = {task: {"wall": [], "cpu": []} for task in TASKS}
    for _ in range(rounds):
        for task in TASKS:
            progress(task)
            done = subprocess.run([sys.executable, "-m", __name__, task], check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for clock, value in json.loads(done.stdout.splitlines()[-1]).items():
                seconds[task][clock].append(value)
    return seconds


def text(seconds: Seconds) -> str:
    """Returns a table of medians with the least and the most."""
    lines = [f"{'start-up':<58}{'wall s':>9}{'least - most':>18}{'CPU s':>9}{'least - most':>18}"]
    for task, clocks in seconds.items():
        columns = "".join(f"{statistics.median(values):9.2f}"
                          f"{f'{min(values):.2f} - {max(values):.2f}':>18}"
                          for values in clocks.values())
        lines.append(f"  {_TITLES[task.partition(':')[0]] + task.partition(':')[2]:<56}{columns}")
    return "\n".join(lines)


_TITLES = {"install": "install() after import tensorflow",
           "ours": "start to first step, TPUEstimator, this package:",
           "stock": "start to first step, stock TPUEstimator:"}


def run(task: str) -> None:
    """Prints the seconds that one task took in this process."""
    start = _now()
    if task == "install":
        import tensorflow  # noqa: F401
        start = _now()
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
    else:
        kind, _, name = task.partition(": ")
        _train_one_step(_PROGRAMS[name], is_stock=kind == "stock")
    print(json.dumps({clock: after - before for (clock, before), after in
                      zip(start.items(), _now().values(), strict=True)}))


def _train_one_step(workload: Workload, is_stock: bool) -> None:
    from benchmarks.baselines import estimator
    from benchmarks.baselines.graph_inputs import feature, tf, to_sparse
    from benchmarks.batches import make_batches
    [batch] = make_batches(workload, 1)

    def input_fn(params):
        ids = {feature(table): to_sparse(ids, splits)
               for table, (ids, splits) in enumerate(zip(batch.ids, batch.splits, strict=True))}
        return tf.data.Dataset.from_tensors((ids, tf.ones([workload.batch_size, 1]))).repeat()

    with tempfile.TemporaryDirectory() as model_dir:
        estimator.make_estimator(workload, is_stock, model_dir).train(input_fn, max_steps=1)


def _now() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"wall": time.perf_counter(), "cpu": usage.ru_utime + usage.ru_stime}


def main(arguments: Sequence[str]) -> None:
    """Runs the task that the command line names."""
    run(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
