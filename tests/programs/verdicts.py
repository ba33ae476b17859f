# SPDX-License-Identifier: Apache-2.0
"""Runs a program in several ways and says what came of it."""

import pathlib
import re
import tempfile
import traceback
from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.programs.comparison import Outcome, differences
from tests.programs.reference import SWAP, run_reference
from tests.programs.stages import (
    ReportedError,
    cluster,
    explicit_imports,
    keras_layers,
    training_loop,
)
from tests.programs.ways import run_program

EQUAL, REFUSED, DIFFERENT, FAILED = "equal", "refused", "different", "failed"

# Errors that name the argument and the fix, each by its fact. What is not here is a fault.
REFUSALS = (
    "must be computed once per model_fn",
    "cross_replica_sum must be called outside of tf.function, tf.while_loop and tf.cond",
    "must be a Dataset with PER_HOST_V2",
    'TPUEmbeddingColumn with embedding_lookup_device="cpu" during training is not supported',
)


class Verdict(NamedTuple):
    """What came of a program run in one way.

    Attributes:
        way: its name.
        result: EQUAL, REFUSED, DIFFERENT or FAILED.
        details: what differs, or the error.
    """

    way: str
    result: str
    details: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether a person must look at it."""
        return self.result in (DIFFERENT, FAILED)


def judge(source: str, ways: Collection[str]) -> list[Verdict]:
    """Runs a program plainly, then in each of the ways, and compares."""
    with tempfile.TemporaryDirectory() as directory:
        base = pathlib.Path(directory)
        outcomes: list[Outcome] = []
        finish = is_finished_by_reference(source) or not set(ways).isdisjoint(FINISHED)
        verdict = _attempt("plain", lambda: outcomes.append(
            run_program(source, base / "plain", finish=finish)) or [])
        if verdict.result != EQUAL:
            return [verdict]
        return [verdict, *(_attempt(way, lambda way=way: WAYS[way](source, base, outcomes[0]))
                           for way in ways)]


def _attempt(way: str, run: Callable[[], list[str]]) -> Verdict:
    try:
        found = run()
    except ReportedError as report:
        return Verdict(way, REFUSED, str(report))
    except Exception as error:
        text = str(error)
        refusal = next((fact for fact in REFUSALS if re.search(fact, text)), None)
        if refusal and isinstance(error, (ValueError, TypeError, RuntimeError)):
            return Verdict(way, REFUSED, refusal)
        return Verdict(way, FAILED, traceback.format_exc())
    return Verdict(way, DIFFERENT, "\n".join(found)) if found else Verdict(way, EQUAL)


def _reference(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    return differences(plain, run_reference(source, plain.states[0],
                                            finish=is_finished_by_reference(source)))


def is_finished_by_reference(source: str) -> bool:
    """Whether the evaluation of a program is one that the reference repeats, at a cost."""
    return "EVALUATED = None" in source or SWAP in source


def _pipelined(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    actual = run_program(source, base / "pipelined", PIPELINED=True)
    return differences(actual, run_reference(source, plain.states[0], pipelined=True))


def _split(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    found = []
    for number in (2, 4):
        outcome = run_program(source, base / f"split{number}", finish=number == 2,
                              NUM_SHARDS=number)
        if "Reduction.SUM" in source and outcome.metrics:
            del outcome.metrics["loss"]  # the mean over replicas of what each has summed
        found += differences(outcome, plain, losses=False)
    return found


def _tiled(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    return differences(run_program(source, base / "tiled", NUM_SHARDS=2, times=2), plain)


def _loop(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    outcome = run_program(source, base / "loop", ITERATIONS=3)
    notes = [] if outcome.seen == plain.seen else [
        f"host calls: {outcome.seen}, expected {plain.seen}"]
    return differences(outcome, plain) + notes


def _kernels(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    return differences(run_program(source, base / "kernels", kernels="tf", finish=True), plain)


def _records(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    return differences(run_program(source, base / "records", finish=True,
                                   RECORDS=str(base / "data.tfrecord")), plain)


def _hosts(source: str, base: pathlib.Path, plain: Outcome) -> list[str]:
    return differences(run_program(source, base / "hosts", finish=True, num_hosts=3,
                                   first=base / "plain"), plain)


FINISHED = ("split", "kernels", "records", "hosts", "imports")  # compare evaluations too
WAYS = {"reference": _reference, "pipelined": _pipelined, "split": _split, "tiled": _tiled,
        "loop": _loop, "kernels": _kernels, "records": _records, "hosts": _hosts,
        "imports": explicit_imports, "cluster": cluster, "tf2": training_loop,
        "layers": keras_layers}
