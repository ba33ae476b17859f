# SPDX-License-Identifier: Apache-2.0
"""Generated programs agree in all ways that were drawn for them, as those do that once did not.

`python -m tests.programs --seed S --count 1` repeats a program, `--count 2000` is the long form.
"""

import contextlib
import pathlib

import pytest

from tests.programs.__main__ import chosen_ways, ways_of
from tests.programs.comparison import differences
from tests.programs.grammar import SLOW, new_program
from tests.programs.reference import run_reference
from tests.programs.verdicts import EQUAL, judge
from tests.programs.ways import run_program

FOUND = sorted(pathlib.Path(__file__).parent.glob("found/*.py"))
PROGRAMS = 4  # about half a minute
RESULTS = []  # a list of its ways' results for each generated program

# Name of a fault -> text of a program, and what takes its place in the reference.
PLANTS = {
    "in place": ('features["x"] *= 0.5', 'features["x"] *= 0.25'),
    "rate of a table": ("AdamParameters(learning_rate=0.05", "AdamParameters(learning_rate=0.04"),
    "weight decay": ("weight_decay_factor=0.125", "weight_decay_factor=0.25"),
    "multiplier": ("return 0.5 /", "return 0.75 /"),
    "moving average": ("ExponentialMovingAverage(0.75)", "ExponentialMovingAverage(0.5)"),
    "ids for a TensorCore": ("tensor_core_shape=[None, 2]", "tensor_core_shape=[None, 1]"),
    "combiner on a TensorCore": ('combiner="sum",\n    embedding_lookup_device="tpu_tensor_core"',
                                 'combiner="mean",\n    embedding_lookup_device="tpu_tensor_core"'),
    "loss": ("tf.square(logits - y)", "tf.abs(logits - y)"),
}


# The same for evaluations and predictions.
EVALUATIONS = {
    "averages": ("variables_to_restore()", "variables_to_restore(None)"),
    "smaller batch": ("EVALUATED = None", "EVALUATED = 3"),
}


@pytest.fixture(autouse=True)
def installed():
    """Programs of stage 0 need `install()`."""
    import tpu_estimator_embedding
    tpu_estimator_embedding.install()


@pytest.mark.all_cases
@pytest.mark.parametrize("offset", range(PROGRAMS))
def test_generated_program_agrees_in_all_ways(seed, offset):
    program = new_program(1_000 * seed + offset)
    RESULTS.append(check(program.source, chosen_ways(program, 3)))


def test_some_generated_program_is_not_refused():
    if len(RESULTS) < PROGRAMS:
        pytest.skip("A few programs may all be refused: it takes all of them.")
    assert any(EQUAL in results for results in RESULTS)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_program_that_once_failed_agrees_in_all_ways(path):
    source = path.read_text(encoding="utf-8")
    assert check(source, [way for way in ways_of(source) if way not in SLOW])[0] == EQUAL


def check(source, ways):
    """Returns the results of all ways, that of the plain one first."""
    verdicts = judge(source, ways)
    faults = [verdict for verdict in verdicts if verdict.is_fault]
    assert not faults, "\n\n".join([*(f"{verdict.way} {verdict.result}:\n{verdict.details}"
                                      for verdict in faults), source])
    return [verdict.result for verdict in verdicts]


@pytest.mark.parametrize("fault", PLANTS)
def test_planted_fault_is_found(fault, tmp_path):
    """A program that the package runs, and a reference that computes something else."""
    text, other = PLANTS[fault]
    source, outcome = first_run(text, tmp_path)
    assert not differences(outcome, run_reference(source, outcome.states[0]))
    planted = run_reference(source.replace(text, other), outcome.states[0])
    assert differences(outcome, planted)


def test_planted_lag_is_found(tmp_path):
    source, outcome = first_run("", tmp_path)
    assert differences(outcome, run_reference(source, outcome.states[0], pipelined=True))


@pytest.mark.parametrize("fault", EVALUATIONS)
def test_planted_fault_of_an_evaluation_is_found(fault, tmp_path):
    text, other = EVALUATIONS[fault]
    source, outcome = first_run(text, tmp_path, finish=True)
    assert not differences(outcome, run_reference(source, outcome.states[0], finish=True))
    planted = run_reference(source.replace(text, other), outcome.states[0], finish=True)
    assert differences(outcome, planted)


def first_run(text, directory, *, finish=False):
    """Returns the first program with this text that is not refused, and its outcome."""
    for program in map(new_program, range(1000)):
        if text in program.source and "reference" in program.ways:
            with contextlib.suppress(RuntimeError, TypeError):
                return program.source, run_program(program.source, directory / str(program.seed),
                                                   finish=finish)
    raise AssertionError(f"No program has the text {text!r}.")
