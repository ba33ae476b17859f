# SPDX-License-Identifier: Apache-2.0
"""Trained tables are in huge pages, if Linux has any."""

import pathlib
import platform
import re

import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

ROWS, DIMENSION = 100_000, 32
SIZE = ROWS * DIMENSION * 4  # of the table; its slot has another one
MOVED = 1.5 * SIZE  # both, except for the ends that share a huge page with other memory
MOST_STEPS = 300
SWITCH = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = [
    pytest.mark.usefixtures("native_kernels"),
    pytest.mark.skipif(not SWITCH.exists() or "[never]" in SWITCH.read_text()
                       or tuple(map(int, re.findall(r"\d+", platform.release())[:2])) < (6, 1),
                       reason="this Linux gives no huge pages on demand")]


def bytes_in_huge_pages():
    rollup = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"AnonHugePages:\s+(\d+) kB", rollup)[1]) * 1024


def trained():
    """Returns a table before and after its steps, and how many bytes moved.

    A step moves what it can within a limit of time, so a busy machine needs more of them.
    """
    plan = EmbeddingPlan.build(
        [TablePlan("t", ROWS, DIMENSION, tf.compat.v1.random_normal_initializer(seed=1), "sum",
                   RowOptimizer(Adagrad(1.0), 1.0))], [FeaturePlan("f", "t")])
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    variables = engine.variables["t"]
    before, huge = variables.parts[0].numpy(), bytes_in_huge_pages()
    ids = prepare_ids(plan, {"f": EnqueueData(tf.constant([7]))}, 1, training=True)
    moved = 0
    for _ in range(MOST_STEPS):
        engine.apply_gradients(ids, {"t": tf.ones([1, DIMENSION])}, 0)
        moved = bytes_in_huge_pages() - huge
        if moved > MOVED:
            break
    return before, variables.parts[0].numpy(), moved


PROGRAM = """
import numpy as np
from tests.spec.engine import test_huge_pages

before, after, moved = test_huge_pages.trained()
assert np.flatnonzero((before != after).any(axis=1)).tolist() == [7]
print(moved)
"""


@pytest.mark.long
@pytest.mark.parametrize("value", ["on", "off"])
def test_updates_move_tables_and_slots_unless_a_variable_switches_that_off(value):
    """In a separate process: huge pages that an earlier test frees would be subtracted."""
    done = run_python(PROGRAM, TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES=value,
                      TPU_ESTIMATOR_EMBEDDING_KERNELS="native")
    moved = int(done.stdout.splitlines()[-1])
    assert moved > MOVED if value == "on" else moved < SIZE
