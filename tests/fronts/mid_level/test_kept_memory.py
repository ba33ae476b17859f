# SPDX-License-Identifier: Apache-2.0
"""Tables take their own memory, and a dropped object is freed as a variable is."""

import gc
import platform

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tests.subprocesses import run_python
from tpu_estimator_embedding.mid_level import (
    Adagrad,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingV0,
    TPUEmbeddingV2,
)

ROWS = 1000
IDS = tf.constant([1, 2])


def plain():
    table = tf.Variable(tf.zeros([ROWS, 4]))

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        table.assign_sub(tf.convert_to_tensor(tape.gradient(loss, table)))

    step(IDS)


def config():
    return [FeatureConfig(TableConfig(ROWS, 4), output_shape=[2])]


def engine(pipelined):
    embedding = TPUEmbedding(config(), Adagrad(0.1), pipelined)
    embedding.build(2)

    @tf.function
    def step(ids):
        embedding.enqueue([ids])
        embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, embedding.dequeue()))

    step(IDS)


def sparse_core(pipelined):
    embedding = TPUEmbeddingV2(config(), Adagrad(0.1), pipelined, num_sc_per_chip=1)

    @tf.function
    def step(ids):
        activations, preserved = embedding([ids])
        embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations), preserved)

    step(IDS)


def in_model():
    embedding = TPUEmbeddingV0(config(), None)
    embedding.build()
    tf.function(lambda ids: embedding([ids]))(IDS)


def kept():
    """Returns (tables, graphs, functions) of the process."""
    gc.collect()
    objects = gc.get_objects()
    return (sum(isinstance(each, tf.Variable) for each in objects),
            sum(isinstance(each, tf.Graph) for each in objects),
            len(context.context().list_function_names()))


@pytest.mark.long
@pytest.mark.parametrize("use", [
    plain, lambda: engine(False), lambda: engine(True), lambda: sparse_core(False),
    lambda: sparse_core(True), in_model],
    ids=["plain", "engine", "pipelined", "sparse_core", "pipelined_sparse_core", "v0"])
def test_nothing_is_kept_of_objects_that_are_dropped(use):
    use()
    before = kept()
    for _ in range(10):
        use()
    tables, graphs, functions = kept()
    assert (tables, graphs) <= before[:2] and functions <= before[2]


@pytest.mark.long
@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
@pytest.mark.parametrize("chips", [1, 4])
def test_initial_values_of_stacks_take_no_memory_beside_tables_and_slots(chips):
    shown = run_python(f"""
        import pathlib, re
        import tensorflow as tf
        from tpu_estimator_embedding.mid_level import (
            Adagrad, FeatureConfig, TableConfig, TPUEmbeddingV2)

        def mebibytes(field):
            status = pathlib.Path("/proc/self/status").read_text()
            return int(re.search(field + r":\\s+(\\d+)", status)[1]) / 1024

        def build(rows):
            embedding = TPUEmbeddingV2(
                [FeatureConfig(TableConfig(rows, 64, tf.ones_initializer()), output_shape=[8])],
                Adagrad(0.1), num_chips={chips})
            embedding.build()
            return embedding

        build(1000)
        before = mebibytes("VmRSS")
        built = build(500_000)  # 122 MiB, and as much for its slot
        print(mebibytes("VmHWM") - before)
    """)
    assert float(shown.stdout) < 2 * 122 + 60
