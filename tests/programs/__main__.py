# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.programs --count 2000 --seed S`: the long form of the generated tests.

Prints every program that gave another number or an internal error, and counts.
"""

import argparse
import collections
import contextlib
import gc
import os
import pathlib
import random
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from tests.programs.grammar import SLOW, Program, new_program


def main() -> int:
    """Runs the programs; returns 1 if one of them has found a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="programs to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=3, help="ways per program; 0 means all")
    parser.add_argument("--slow-every", type=int, default=20, metavar="N",
                        help="migrate every N-th program to TF2, too, and verify it; 0 means none")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after as many")
    parser.add_argument("--faults", type=pathlib.Path, default=pathlib.Path("faults"),
                        help="directory for programs with faults")
    parser.add_argument("files", nargs="*", type=pathlib.Path,
                        help="run these programs instead, in all the ways that they name")
    args = parser.parse_args()
    import tpu_estimator_embedding
    tpu_estimator_embedding.install()
    gc.collect()
    gc.freeze()  # most objects are TensorFlow's modules, which every collection would visit
    tally = Tally(args.faults)
    for path in args.files:
        source = path.read_text(encoding="utf-8")
        tally.run(Program(0, source, ways_of(source)))
    if not args.files:
        run_random(args, tally)
    print(tally.summary(), flush=True)
    return 1 if tally.faults else 0


def ways_of(source: str) -> tuple[str, ...]:
    """Returns the ways that the docstring of a program names."""
    [line] = [line for line in source.splitlines() if line.startswith("Ways: ")]
    return tuple(way for way in line.removeprefix("Ways: ").split(", ") if way)


def run_random(args: argparse.Namespace, tally: "Tally") -> None:
    """Runs the programs of successive numbers, each in some of its ways."""
    end = time.monotonic() + 60 * args.minutes
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C leaves the summary
        for seed in range(args.seed, args.seed + args.count):
            if time.monotonic() < end:
                program = new_program(seed)
                tally.run(program._replace(ways=chosen_ways(program, args.most, args.slow_every)))


def chosen_ways(program: Program, most: int, slow_every: int = 0) -> tuple[str, ...]:
    """Returns some ways of a program; those that start processes only for every N-th one."""
    rng = random.Random(program.seed)
    ways = [way for way in program.ways if way not in SLOW]
    slow = [way for way in program.ways if way in SLOW
            and slow_every and program.seed % slow_every == 0]
    rng.shuffle(ways)
    ways.sort(key=lambda way: way != "reference")  # which is cheap and sees the most
    return (*ways[:most or None], *slow)


class Tally:
    """Counts what came of programs, and keeps those with faults."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.programs = 0
        self.results: collections.Counter[tuple[str, str]] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.faults: list[pathlib.Path] = []
        self._directory = directory

    def run(self, program: Program) -> None:
        """Runs a program and notes what came of it."""
        from tests.programs.verdicts import REFUSED, judge
        self.programs += 1
        for verdict in judge(program.source, program.ways):
            self.results[verdict.way, verdict.result] += 1
            if verdict.result == REFUSED:
                self.refusals[verdict.details] += 1
            if verdict.is_fault:
                self._keep(program, verdict)
        if self.programs % 10 == 0:
            print(f"{self.programs} programs, {len(self.faults)} faults", flush=True)

    def _keep(self, program: Program, verdict) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{program.seed}_{verdict.way}.py"
        path.write_text(program.source, encoding="utf-8")
        path.with_suffix(".txt").write_text(verdict.details, encoding="utf-8")
        self.faults.append(path)
        lines = verdict.details.strip().splitlines()
        told = lines[-1] if verdict.result == "failed" else " | ".join(lines[:3])
        print(f"{path}: {verdict.result}: {told[:300]}", flush=True)

    def summary(self) -> str:
        """Returns the counts as text."""
        lines = [f"{self.programs} programs, {len(self.faults)} faults"]
        lines += [f"{way:10} {result:10} {count:6}" for (way, result), count in
                  sorted(self.results.items())]
        lines += [f"refused {count} times: {text}" for text, count in self.refusals.items()]
        return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
