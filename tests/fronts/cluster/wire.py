# SPDX-License-Identifier: Apache-2.0
"""A program that trains workload W on servers, and prints what crosses between tasks in a step.

    python -m tests.fronts.cluster.wire NUM_SERVERS STRATEGY
"""

import json
import re
import socket
import sys

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from benchmarks.batches import make_batches
from benchmarks.workloads import LEARNING_RATE, W
from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

WORKER = "/job:worker/task:0/device:CPU:0"


def start_servers(num_servers):
    """Starts the tasks in this process; returns the worker's address."""
    sockets = [socket.socket() for _ in range(1 + num_servers)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    worker, *servers = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    cluster = {"worker": [worker], "ps": servers}
    for number in range(num_servers):
        tf.distribute.Server(cluster, "ps", number)
    return tf.distribute.Server(cluster, "worker", 0).target


def waiting_ids(plan):
    """Returns the ids of a batch as they come out of a queue, and the op that fills it."""
    batch = make_batches(W, 1)[0]
    datas = {f"f{table}": RaggedEnqueueData(tf.constant(ids), tf.constant(splits))
             for table, (ids, splits) in enumerate(zip(*batch, strict=True))}
    ids = prepare_replicas(plan, [(datas, tf.constant(W.batch_size))], training=True,
                           on_servers=True)
    queue = TensorQueue(ids, capacity=1)
    fill, taken = queue.enqueue(ids), queue.dequeue()
    with tf.control_dependencies([queue.enqueue(taken)]):
        return fill, tf.nest.map_structure(
            lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf, taken)


def sent_tensors(run_metadata):
    """Returns (name of the op, bytes if they are known) of what crosses between tasks."""
    for graph in run_metadata.partition_graphs:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            ends = [node.attr[end].s for end in ("send_device", "recv_device")]
            if node.op not in ("_Send", "_HostSend") or ends[0] == ends[1]:
                continue
            name = re.sub(r"^edge_\d+_", "", node.attr["tensor_name"].s.decode())
            source = nodes[node.input[0].split(":")[0]]
            is_constant = source.op == "Const"  # empty for an edge that is only an order
            yield name, (tensor_util.MakeNdarray(source.attr["value"].tensor).nbytes
                         if is_constant else None)


def main(num_servers, strategy):
    tf.compat.v1.disable_eager_execution()
    target = start_servers(num_servers)
    plan = EmbeddingPlan.build(
        [TablePlan(f"t{table}", W.rows, W.dim, tf.constant_initializer(0.01),
                   W.combiner(table), RowOptimizer(SGD(), LEARNING_RATE))
         for table in range(W.num_tables)],
        [FeaturePlan(f"f{table}", f"t{table}") for table in range(W.num_tables)],
        num_hosts=num_servers, partition_strategy=strategy)
    devices = [f"/job:ps/task:{host}/device:CPU:0" for host in range(num_servers)]
    with tf.device(WORKER):
        fill, ids = waiting_ids(plan)
    engine = PartitionedEmbedding(
        plan, create_variables(plan, default_names(plan), servers=devices))
    with tf.device(WORKER):
        stacked = engine.lookup(ids)
        step = tf.compat.v1.placeholder(tf.int64, [])  # so that no schedule is a constant
        with tf.control_dependencies(list(stacked.values())):
            update = engine.apply_gradients(
                ids, {name: 0.5 * values for name, values in stacked.items()}, step)
    with tf.compat.v1.Session(target) as session:
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(fill)
        metadata = tf.compat.v1.RunMetadata()
        session.run(update, {step: 0}, run_metadata=metadata,
                    options=tf.compat.v1.RunOptions(output_partition_graphs=True))
        sent = list(sent_tensors(metadata))
        unknown = [session.graph.get_operation_by_name(name).outputs[0]
                   for name, size in sent if size is None]
        sizes = [value.nbytes for value in session.run(unknown, {step: 0})]
    known = [size for _, size in sent if size is not None]
    print(json.dumps({"tensors": len([size for size in known + sizes if size]),
                      "orders": len([size for size in known + sizes if not size]),
                      "bytes": sum(known) + sum(sizes)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
