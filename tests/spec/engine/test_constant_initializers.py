# SPDX-License-Identifier: Apache-2.0
"""Tables of one value: the same values as TensorFlow's, in the memory of one table."""

import itertools
import platform

import numpy as np
import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding.engine.variables import computed_in_session

CONSTANTS = (tf.constant_initializer, tf.compat.v1.constant_initializer)
VALUES = [0.1, -0.0, 3, True, 1e300, 1e-45, float("nan"), -float("inf"), np.float64(0.1),
          np.float32(0.1), np.float16(0.1), np.int64(7), np.array(0.1)]
OF_ONE_VALUE = [tf.zeros_initializer(), tf.compat.v1.zeros_initializer(),
                tf.ones_initializer(), tf.compat.v1.ones_initializer(),
                *(constant(value) for value, constant in itertools.product(VALUES, CONSTANTS))]

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:Casting complex values")


class Subclass(tf.compat.v1.zeros_initializer):
    """A program's own."""


def outcome(initializer):
    """Returns bytes and dtype of what the initializer gives in a session, or its error."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            values = session.run(initializer([3, 2], dtype=tf.float32))
        except (TypeError, ValueError) as error:
            return type(error), str(error)
    return values.tobytes(), values.dtype, values.shape


@pytest.mark.parametrize("initializer", OF_ONE_VALUE)
def test_values_are_those_of_the_initializer_bit_by_bit(initializer):
    ours = computed_in_session(initializer)
    assert ours is not initializer
    assert outcome(ours) == outcome(initializer)


@pytest.mark.parametrize("constant", CONSTANTS)
def test_value_of_another_type_raises_as_it_does_in_the_initializer(constant):
    initializer = constant(np.complex64(1j))
    assert outcome(computed_in_session(initializer)) == outcome(initializer)


@pytest.mark.parametrize("initializer", [
    *(constant(value) for value, constant in itertools.product(
        ([1.0, 2.0], [1.0], np.ones([3, 2])), CONSTANTS)),
    Subclass(), tf.compat.v1.truncated_normal_initializer(), lambda shape, dtype: tf.zeros(shape)])
def test_any_other_initializer_stays_as_it_is(initializer):
    assert computed_in_session(initializer) is initializer


@pytest.mark.long
@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_a_table_takes_its_own_memory_and_not_half_as_much_again():
    shown = run_python("""
        import pathlib, re

        import tensorflow as tf
        from tpu_estimator_embedding.engine.variables import create_variables, default_names
        from tpu_estimator_embedding.plan.embedding_plan import (
            EmbeddingPlan, FeaturePlan, TablePlan)

        v1, kept = tf.compat.v1, []

        def peak():
            status = pathlib.Path("/proc/self/status").read_text()
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024

        def train(rows, initializer, in_graph):
            plan = EmbeddingPlan.build([TablePlan("T", rows, 16, initializer, "sum")],
                                       [FeaturePlan("f", "T")])
            [table] = create_variables(plan, default_names(plan)).values()
            update = table.parts[0].scatter_update(tf.IndexedSlices(tf.ones([1, 16]), [3]))
            if in_graph:
                session = v1.Session()
                session.run(v1.global_variables_initializer())
                session.run(update.op)
            kept.append(session if in_graph else table)  # what is given back is used again

        for in_graph in (True, False):
            for initializer in (
                    tf.zeros_initializer(), tf.ones_initializer(), tf.constant_initializer(0.1),
                    v1.zeros_initializer(), v1.ones_initializer(), v1.constant_initializer(0.1)):
                for rows in (10, 1 << 20):  # the first is for what TensorFlow itself takes
                    with tf.Graph().as_default() if in_graph else tf.init_scope():
                        before = peak()
                        train(rows, initializer, in_graph)
                print((peak() - before) / (rows * 16 * 4))
    """)
    in_tables = [float(line) for line in shown.stdout.split()]
    assert len(in_tables) == 12
    assert min(in_tables) > 0.9 and max(in_tables) < 1.5, in_tables
