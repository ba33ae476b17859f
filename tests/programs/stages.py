# SPDX-License-Identifier: Apache-2.0
"""Runs what `migrate` writes where it claims that nothing is left to do.

Run as a module, it is the process in which programs with explicit imports run: one without
`install()`, where only what the program imports exists. It takes a job per line.
"""

import functools
import json
import pathlib
import pickle
import subprocess
import sys
import traceback
from typing import Any

from tests.programs.comparison import Outcome, differences
from tests.programs.ways import begin_with, load_program, run_program

# The call in a program that trains, and what every task of a cluster calls instead.
_IN_A_CLUSTER = ("    estimator.train(input_fn, max_steps=STEPS)\n", """\
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=STEPS),
        tf.estimator.EvalSpec(input_fn, steps=1))
    return
""")
READY = "ready for the next job"


class ReportedError(Exception):
    """`migrate` says that something is left to do by hand; the message names the codes."""


def explicit_imports(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    """Compares a program with what `migrate` makes of it."""
    from tpu_estimator_embedding.migration.report import Report
    from tpu_estimator_embedding.migration.rewrite import rewrite
    result = rewrite(source, "program.py")
    _check_nothing_left(sorted({finding.code for finding in Report.of(result.findings).open}))
    path = base / "imports.py"
    path.write_bytes(result.data)
    return differences(_process().run(path, base / "imports"), plain)


def training_loop(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    """Verifies what `migrate --to tf2` makes of a program."""
    return _verified(source, base, "tf2")


def keras_layers(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    """Verifies what `migrate --to layers` makes of a program."""
    return _verified(source, base, "layers")


def cluster(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    """Compares a program with itself in a cluster of a chief and two parameter servers."""
    text, directory = source.replace(*_IN_A_CLUSTER), base / "cluster"
    assert text != source
    path = base / "program_of_cluster.py"
    path.write_text(text, encoding="utf-8")
    begin_with(base / "plain", directory)
    done = _command("cluster", "--workers", 0, "--ps", 2, "--restart", 0, path, directory)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    estimator = load_program(source).new_estimator(str(directory))
    last = max(plain.states)
    expected = plain.states[last]
    states = {name: estimator.get_variable_value(name) for name in expected}
    return differences(Outcome({last: states}, {}), Outcome({last: expected}, {}), losses=False)


def _verified(source: str, base: pathlib.Path, stage: str) -> list[str]:
    program, new, report = base / "program.py", base / stage, base / f"{stage}.json"
    # A training loop has one replica, which `migrate` reports.
    program.write_text(source.replace(", num_shards=NUM_SHARDS", ""), encoding="utf-8")
    done = _command("migrate", "--to", stage, "--output", new, "--report", report,
                    "--strict", program, "--", base / "never")
    if done.returncode == 2:
        findings = json.loads(report.read_text())["findings"]
        _check_nothing_left(sorted({finding["code"] for finding in findings
                                    if finding["kind"] in ("left", "decision")}))
    assert done.returncode == 0, done.stderr
    done = _command("verify", "--steps", 3, "--rtol", 1e-4, "--atol", 1e-5, program,
                    new / "program.py", "--", base / "never")
    return [] if done.returncode == 0 else [f"verify {done.returncode}", done.stdout, done.stderr]


def _command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tpu_estimator_embedding", *map(str, arguments)],
                          capture_output=True, text=True, timeout=500, check=False)


def _check_nothing_left(codes: list[str]) -> None:
    if codes:
        raise ReportedError(f"migrate reports {', '.join(codes)}")


class Process:
    """A process that has not called `install()`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.programs.stages"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def run(self, path: pathlib.Path, directory: pathlib.Path) -> Outcome:
        """Runs the program in a file; raises what it raised, as a RuntimeError."""
        print(json.dumps([str(path), str(directory)]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.strip() == READY:
                result = pickle.loads(directory.with_suffix(".pickle").read_bytes())
                if isinstance(result, Outcome):
                    return result
                raise RuntimeError(result)
        raise RuntimeError("The process of programs with explicit imports ended.")


@functools.cache
def _process() -> Process:
    return Process()  # ends with its input, when this process ends


def main() -> None:
    """Runs the jobs of the standard input."""
    for line in sys.stdin:
        path, directory = map(pathlib.Path, json.loads(line))
        try:
            result: Any = run_program(path.read_text(encoding="utf-8"), directory, finish=True)
        except Exception:
            result = traceback.format_exc()
        directory.with_suffix(".pickle").write_bytes(pickle.dumps(result))
        print(f"\n{READY}", flush=True)


if __name__ == "__main__":
    main()
