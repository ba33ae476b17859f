# SPDX-License-Identifier: Apache-2.0
"""Ids whose sample indices decrease train as the same ids in order."""

import numpy as np
import pytest
import tensorflow as tf

from tests.runners import RUNNERS, to_plan
from tests.spec.oracle import Feature, Optimizer, Table
from tests.subprocesses import run_python
from tpu_estimator_embedding.ops.sparse_ids import SparseIds, in_order

pytestmark = pytest.mark.usefixtures("kernels")

BATCH, LENGTH, IDS = 4, 3, 12


def train(runner, combiner, kind, arrays):
    """Returns the activations of a step, and the table after it."""
    length = LENGTH if kind == "sequence" else 0
    optimizer = Optimizer("Adagrad", 0.5, {"initial_accumulator": 1.0})
    plan = to_plan([Table("t", np.zeros([9, 2]), combiner, optimizer)], [Feature("a", "t", length)])
    run = runner(plan, {"a": "flat sparse" if kind == "flat sparse" else "sparse"})
    shape = [BATCH, LENGTH, 2] if length else [BATCH, 2]
    gradients = {"a": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    run.train({"a": arrays}, gradients, BATCH, 0)
    activations = run.train({"a": arrays}, gradients, BATCH, 1)
    return activations["a"], run.read()["t", None][0]


@pytest.mark.parametrize("runner", ["session", "eager"])
@pytest.mark.parametrize("kind", ["sparse", "flat sparse", "sequence"])
@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_order_of_ids_does_not_matter(runner, kind, combiner):
    rng = np.random.default_rng(0)
    samples, positions = np.divmod(np.sort(rng.choice(BATCH * LENGTH, 8, replace=False)), LENGTH)
    ids = rng.integers(-1, 9, 8)
    weights = rng.random(8).astype(np.float32)
    places = samples if kind == "flat sparse" else np.stack([samples, positions], 1)
    order = rng.permutation(8)
    assert np.any(np.diff(samples[order]) < 0)
    results = [train(RUNNERS[runner], combiner, kind, [part[by] for part in (ids, places, weights)])
               for by in (np.arange(8), order)]
    for values, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(values, expected, 1e-6, 1e-6)
    assert np.any(results[0][1])


def test_ids_of_one_row_keep_their_order():
    ids = SparseIds(tf.constant([5, 6, 7, 8]), tf.constant([1, 0, 1, 0]), None)
    assert in_order(ids, "f").ids.numpy().tolist() == [6, 8, 5, 7]


PROGRAM = """
import tensorflow as tf
from tests.runners import RUNNERS, to_plan
from tests.spec.oracle import Feature, Optimizer, Table
import numpy as np
plan = to_plan([Table("t", np.zeros([9, 2]), "sum", Optimizer("SGD"))],
               [Feature("a", "t")])
run = RUNNERS["session"](plan, {"a": "sparse"})
for step in range(2):
    arrays = np.array([1, 2]), np.array([[1, 0], [0, 0]]), None
    run.train({"a": arrays}, {"a": np.ones([2, 2])}, 2, step)
"""


@pytest.mark.long
def test_sorting_is_said_once():
    """Not in every step."""
    said = run_python(PROGRAM, TF_CPP_MIN_LOG_LEVEL="1").stderr
    assert said.count("decrease") == 1
    assert "tf.sparse.reorder" in said
