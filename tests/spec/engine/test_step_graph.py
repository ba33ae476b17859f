# SPDX-License-Identifier: Apache-2.0
"""The cost of a training step: no copy of a table, and no op for each feature of each table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graphs import ancestors
from tests.runners import to_plan
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Table
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.stacked_activations import split_activations
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names

pytestmark = pytest.mark.usefixtures("tf_kernels")  # whose ops it counts

ROWS, DIMENSION, BATCH_SIZE = 1000, 4, 3
LAZY = [name for name in CASES if name != "Adam, not lazy"]


class Step:
    """A graph that looks up, takes gradients of a loss and updates."""

    def __init__(self, num_tables, features_per_table, *, case="Adagrad", num_hosts=1,
                 strategy="mod", dimension=DIMENSION):
        self.plan = new_plan(num_tables, features_per_table, CASES[case], dimension,
                             num_hosts=num_hosts, partition_strategy=strategy)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.engine = PartitionedEmbedding(
                self.plan, create_variables(self.plan, default_names(self.plan)))
            before = self._size()
            datas = {feature.name: EnqueueData(
                tf.compat.v1.placeholder(tf.int64, [None]),
                tf.compat.v1.placeholder(tf.int64, [None, 2])) for feature in self.plan.features}
            self.feeds = {}
            for data in datas.values():
                self.feeds[data.embedding_indices] = [1, ROWS - 1, 1, 7]
                self.feeds[data.sample_indices] = [[0, 0], [0, 1], [2, 0], [2, 3]]
            ids = prepare_ids(self.plan, datas, BATCH_SIZE, training=True)
            self.ops_of_ids = self._size() - before
            before = self._size()
            stacked = self.engine.lookup(ids)
            self.ops_of_lookup = self._size() - before
            self.activations = split_activations(self.plan, stacked, BATCH_SIZE)
            loss = tf.add_n([tf.nn.l2_loss(value) for value in self.activations.values()])
            gradients = dict(zip(stacked, tf.gradients(loss, list(stacked.values())),
                                 strict=True))
            before = self._size()
            self.update = self.engine.apply_gradients(ids, gradients, tf.constant(0))
            self.ops_of_update = self._size() - before

    def run_traced(self):
        """Runs two steps; returns the metadata of the second."""
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE,
                                          output_partition_graphs=True)
        fetches = [self.update, self.activations]
        with self.graph.as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(fetches, self.feeds)
            session.run(fetches, self.feeds, options, metadata)
        return metadata

    def _size(self):
        return len(self.graph.get_operations())


def new_plan(num_tables, features_per_table, optimizer, dimension, **options):
    tables = [Table(f"t{k}", np.zeros([ROWS, dimension]), "mean", optimizer)
              for k in range(num_tables)]
    features = [Feature(f"f{k}_{table.name}", table.name)
                for table in tables for k in range(features_per_table)]
    return to_plan(tables, features, **options)


def operations_on_variables(graph_def):
    """Returns the types of executed ops that are given the handle of a variable."""
    types = {node.name: node.op for node in graph_def.node}
    return [node.op for node in graph_def.node
            if any(types.get(name.split(":")[0].lstrip("^")) == "VarHandleOp"
                   for name in node.input if not name.startswith("^"))]


def shapes_of_outputs(metadata):
    """Returns the shapes of everything that any executed op gave out."""
    return {tuple(dim.size for dim in output.tensor_description.shape.dim)
            for device in metadata.step_stats.dev_stats for node in device.node_stats
            for output in node.output}


@pytest.mark.parametrize("case", LAZY)
def test_no_training_step_copies_a_table(case):
    """A table is only gathered from and scattered to, after the graph is optimized too."""
    dimension = 1 if case == "FrequencyEstimator" else DIMENSION
    metadata = Step(2, 3, case=case, dimension=dimension).run_traced()
    used = [op for graph in metadata.partition_graphs for op in operations_on_variables(graph)]
    assert set(used) == {"ResourceGather", "ResourceScatterUpdate"}
    shapes = shapes_of_outputs(metadata)
    assert (3 * BATCH_SIZE, dimension) in shapes  # the trace has tensors in it
    assert (ROWS, dimension) not in shapes


def test_this_test_sees_a_copy_where_there_is_one():
    """Adam that is not lazy moves every row, which takes a read and a write of the table."""
    metadata = Step(1, 1, case="Adam, not lazy").run_traced()
    used = [op for graph in metadata.partition_graphs for op in operations_on_variables(graph)]
    assert used.count("ReadVariableOp") == used.count("AssignVariableOp") == 3
    assert (ROWS, DIMENSION) in shapes_of_outputs(metadata)


@pytest.mark.parametrize("num_hosts", [1, 3])
@pytest.mark.parametrize("case", ["Adagrad", "Adam, not lazy"])
def test_no_variable_of_a_part_is_written_before_all_of_it_are_read(case, num_hosts):
    """Else an update could take the new row with the old slot, or the reverse."""
    step = Step(1, 2, case=case, num_hosts=num_hosts)
    update = ancestors(step.update)
    reads, writes = ([op for op in update if op.type in types] for types in (
        ("ResourceGather", "ReadVariableOp"), ("ResourceScatterUpdate", "AssignVariableOp")))
    assert len(reads) > len(writes) > 0
    for write in writes:
        of_same_part = {read for read in reads if part_of(read) == part_of(write)}
        assert of_same_part <= ancestors(write)


def part_of(op):
    """The last piece of the name of the variable that an op reads or writes."""
    return op.inputs[0].op.name.rsplit("/", 1)[-1]


def test_a_tf_function_that_trains_reads_no_whole_table():
    plan = new_plan(2, 2, CASES["Adam"], DIMENSION)
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))

    @tf.function
    def train(indices, samples):
        datas = {feature.name: EnqueueData(indices, samples) for feature in plan.features}
        ids = prepare_ids(plan, datas, BATCH_SIZE, training=True)
        stacked = engine.lookup(ids)
        engine.apply_gradients(ids, stacked, 0)
        return split_activations(plan, stacked, BATCH_SIZE)

    graph = train.get_concrete_function(tf.TensorSpec([None], tf.int64),
                                        tf.TensorSpec([None, 2], tf.int64)).graph
    on_variables = [op.type for op in graph.get_operations()
                    if any(tensor.dtype == tf.resource for tensor in op.inputs)]
    assert set(on_variables) == {"ResourceGather", "ResourceScatterUpdate"}


SIZES = [(tables, features) for tables in (1, 2, 4) for features in (1, 2, 5)]


@pytest.fixture(scope="module", params=[1, 3])
def steps(request):
    return {size: Step(*size, num_hosts=request.param) for size in SIZES}


@pytest.mark.long
def test_ops_of_lookup_and_update_grow_with_tables_only(steps):
    """Ops of the step itself do not depend on the number of features at all."""
    for part in ("ops_of_lookup", "ops_of_update"):
        counts = {size: getattr(step, part) for size, step in steps.items()}
        per_table = counts[2, 1] - counts[1, 1]
        once = counts[1, 1] - per_table
        assert per_table > 0
        assert counts == {(tables, features): once + per_table * tables
                          for tables, features in SIZES}


@pytest.mark.long
def test_ops_of_ids_grow_with_tables_and_features_but_not_with_their_product(steps):
    """ops = once + per_table * tables + per_feature * (features of all tables together)."""
    counts = {size: step.ops_of_ids for size, step in steps.items()}
    per_feature = (counts[1, 5] - counts[1, 2]) // 3
    # The first feature of a table needs no stacking, so the growth begins with the second.
    per_table = counts[2, 2] - counts[1, 2] - 2 * per_feature
    once = counts[1, 2] - per_table - 2 * per_feature
    for (tables, features), count in counts.items():
        if features > 1:
            assert count == once + per_table * tables + per_feature * tables * features


@pytest.mark.long
def test_executed_ops_grow_no_faster_than_built_ones():
    """The optimized graph of a step: a feature more adds the same to 1 table as to 4."""
    counts = {}
    for size in ((1, 2), (1, 3), (4, 2), (4, 3)):
        [graph] = [graph for graph in Step(*size).run_traced().partition_graphs if graph.node]
        counts[size] = len(graph.node)
    one_more_on_each_of_four = counts[4, 3] - counts[4, 2]
    one_more = counts[1, 3] - counts[1, 2]
    assert one_more_on_each_of_four <= 4 * one_more
    assert counts[4, 2] < 4 * counts[1, 2]
