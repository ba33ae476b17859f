# SPDX-License-Identifier: Apache-2.0
"""The ops that one more table adds to the graph of a training, which decide how long it starts."""

import gc
from collections import Counter

import pytest
import tensorflow as tf

import tpu_estimator_embedding as tpu_embedding
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.hooks.session_start import add_ready_ops

BATCH = 4


class Graph(tf.compat.v1.train.SessionRunHook):
    """Counts the ops of a training by type, and notes whether garbage is collected."""

    def begin(self):
        self.collects_at_begin = gc.isenabled()

    def after_create_session(self, session, coord):
        graph = session.graph.as_graph_def()
        functions = graph.library.function
        self.ops = Counter(node.op for nodes in (
            graph.node, *(function.node_def for function in functions)) for node in nodes)

    def before_run(self, run_context):
        self.collects_in_step = gc.isenabled()


def train(model_dir, count):
    columns = [tpu_embedding.embedding_column(
        tf.feature_column.categorical_column_with_identity(f"f{number}", 10), 8, "sum")
        for number in range(count)]

    def model_fn(features, labels, mode, params):
        inputs = tf.compat.v1.feature_column.input_layer(features, columns)
        loss = tf.reduce_sum(inputs)
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.AdagradOptimizer(0.1))
        return upstream.tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, tf.compat.v1.train.get_global_step()))

    def input_fn(params):
        ids = {f"f{number}": tf.RaggedTensor.from_row_splits(  # without a static shape
            [1] * BATCH, list(range(BATCH + 1)), validate=False).to_sparse()
            for number in range(count)}
        return tf.data.Dataset.from_tensors((ids, tf.ones([BATCH, 1]))).repeat()

    graph = Graph()
    tpu_embedding.TPUEstimator(
        model_fn=model_fn, model_dir=str(model_dir), use_tpu=True, train_batch_size=BATCH,
        config=upstream.tpu_config.RunConfig(),
        embedding_config_spec=tpu_embedding.EmbeddingConfigSpec(
            feature_columns=columns, optimization_parameters=tpu_embedding.AdagradParameters(0.1)
        )).train(input_fn, [graph], max_steps=1)
    return graph


@pytest.fixture(scope="module", name="per_table")
def ops_per_table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        choose_kernels("native", patch)
        few, many = (train(tmp_path_factory.mktemp("model"), count).ops for count in (2, 6))
    many.subtract(few)
    return {kind: count / 4 for kind, count in many.items() if count}


def test_a_table_adds_no_ops_where_one_op_serves_all(per_table):
    for kind in ("Assert", "StringFormat", "RestoreV2", "SaveV2", "ScalarSummary",
                 "DisableCopyOnRead", "TpuEmbeddingPrepareIds"):
        assert kind not in per_table


def test_a_table_adds_few_ops(per_table):
    assert sum(per_table.values()) <= 62, per_table


def test_no_garbage_is_collected_until_the_session_is_ready(tmp_path):
    graph = train(tmp_path, 1)
    assert not graph.collects_at_begin
    assert graph.collects_in_step


def test_reports_of_readiness_name_what_is_not_initialized_and_add_one_op_for_all():
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        for name, is_resource, collection in (
                ("a", True, v1.GraphKeys.GLOBAL_VARIABLES), ("b", False, "variables"),
                ("c", True, v1.GraphKeys.LOCAL_VARIABLES)):
            v1.get_variable(name, [2], use_resource=is_resource, collections=[collection])
        add_ready_ops()
        add_ready_ops()
        [ready] = graph.get_collection(v1.GraphKeys.READY_OP)
        [ready_for_local] = graph.get_collection(v1.GraphKeys.READY_FOR_LOCAL_INIT_OP)
        assert session.run(ready).tolist() == [b"a", b"b", b"c"]
        assert session.run(ready_for_local).tolist() == [b"a", b"b"]
        session.run(v1.global_variables_initializer())
        assert session.run(ready).tolist() == [b"c"]
        assert session.run(ready_for_local).tolist() == []
        assert Counter(op.type for op in graph.get_operations())["VarIsInitializedOp"] == 2
