# SPDX-License-Identifier: Apache-2.0
"""A program like DLRM goes through all stages by `migrate`, `checkpoint convert` and `verify`.

Nothing is edited by hand: what `migrate` writes is what runs.
"""

import pathlib
import sys

import pytest

from tests.codemod.migration.test_keras3 import missing
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.migration.verify.recording import RecordedResult

PROGRAM = pathlib.Path(__file__).with_name("dlrm.py")
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding"]
CAPTURE = ["--capture", "--capture-steps", "1"]
TIMEOUT = 1800
BACKENDS = ("jax", "tensorflow")


def run(directory, *arguments, **environment):
    done = start([*COMMAND, *arguments], cwd=directory, timeout=TIMEOUT, **environment)
    assert done.returncode == 0 or arguments[0] == "migrate" and (
        done.returncode == 2 and " 0 things left to do by hand" in done.stderr), (
            done.stdout + done.stderr)
    return done


@pytest.fixture(name="directory", scope="module")
def directory_with_the_program(tmp_path_factory):
    path = tmp_path_factory.mktemp("dlrm")
    (path / "dlrm.py").write_bytes(PROGRAM.read_bytes())
    return path


def test_stage_1_agrees_bit_for_bit(directory):
    done = run(directory, "migrate", "--output", "imports", "--verify", "dlrm.py", "--", "never")
    assert done.stdout.endswith("They agree in all 25 steps (20 + 5 of the second training).\n")


def test_stage_2_agrees(directory):
    done = run(directory, "migrate", "--to", "tf2", "--output", "tf2", *CAPTURE, "--verify",
               "dlrm.py", "--", "never")
    assert done.stdout.endswith("They agree in all 25 steps (20 + 5 of the second training).\n")


@pytest.fixture(name="keras3", scope="module")
def program_of_stage_3(directory):
    if missing("jax"):
        pytest.skip(f"needs the extra `jax`: {', '.join(missing('jax'))} not installed")
    run(directory, "migrate", "--to", "keras3", "--output", "keras3", *CAPTURE, "dlrm.py", "--",
        "never")
    return directory


@pytest.mark.parametrize("backend", BACKENDS)
def test_stage_3_agrees(keras3, backend):
    done = run(keras3, "verify", "--rtol", "1e-4", "--keep", backend, "dlrm.py", "keras3/dlrm.py",
               "--", "never", KERAS_BACKEND=backend)
    assert done.stdout.endswith("They agree in all 25 steps (20 + 5 of the second training).\n")
    assert "accuracy, auc, global_step, loss, prediction" in done.stdout
    check_round_trip(keras3 / backend, {"jax": "keras-rs-jax", "tensorflow": "keras-rs"}[backend])


def check_round_trip(runs, form):
    """Tables, slots and dense variables come back with the same bits."""
    trained, saved, back = runs / "legacy" / "step-20", runs / "saved", runs / "back"
    recorded = RecordedResult.load(runs / "legacy").tables
    names = {variable: table for table, variable in recorded.items() if "/" not in table}
    done = checkpoint.convert(trained, saved, form, template=runs / "migrated" / "template",
                              names=names)
    assert done.left_out == ()
    checkpoint.convert(saved, back, "v1", names=names)
    found = checkpoint.compare(trained, back)
    assert not found.only_in_a and not any(one.differing_rows for one in found.tensors)
    assert {one.slot for one in found.tensors} == {None, "parameters", "accumulators"}
    assert len(found.tensors) >= 3 * 2 + 5 * 4  # tables, and layers with their slots
