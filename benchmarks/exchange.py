# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes that a worker and its servers exchange in a step of a table."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from benchmarks.batches import Batch, make_batches
from benchmarks.workloads import W, Workload
from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.engine.step import StepGradients, StepIds
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.ops.nests import tensors_of
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

SERVERS = (1, 2, 4, 8, 16, 32, 100)
IDS_PER_SAMPLE = (1, 2, 5, 10, 30, 100)


@dataclasses.dataclass(frozen=True)
class Bytes:
    """The bytes of a step of one table, in both directions.

    Attributes:
        sums: if its servers return sums.
        chosen: with the form that each server is sent.
    """

    sums: int
    chosen: int


def measure(progress: Callable[[], object], workload: Workload = W
            ) -> dict[int, dict[int, Bytes]]:
    """Returns ids per sample -> servers -> bytes, of a table and a batch like a workload's."""
    measured: dict[int, dict[int, Bytes]] = {}
    for ids in IDS_PER_SAMPLE:
        one_table = dataclasses.replace(workload, ids_per_sample=(ids,))
        [batch] = make_batches(one_table, 1)
        measured[ids] = {}
        for servers in SERVERS:
            measured[ids][servers] = Bytes(*(
                num_bytes(one_table, batch, servers, may_send_rows=may)
                for may in (False, True)))
            progress()
    return measured


def num_bytes(workload: Workload, batch: Batch, servers: int, *, may_send_rows: bool) -> int:
    """Returns the bytes of a step of a workload's first table, counted from its tensors."""
    # A table that every core updates independently is always exchanged as sums.
    optimizer = RowOptimizer(Adagrad(), 0.1, use_gradient_accumulation=may_send_rows)
    plan = EmbeddingPlan.build(
        [TablePlan("table", workload.rows, workload.dim, tf.zeros_initializer(),
                   workload.combiner(0), optimizer)], [FeaturePlan("feature", "table")],
        num_hosts=servers, partition_strategy="mod")
    data = RaggedEnqueueData(tf.constant(batch.ids[0]), tf.constant(batch.splits[0]))
    ids = prepare_replicas(plan, [({"feature": data}, workload.batch_size)], training=True,
                           on_servers=True)
    return sum(_sent_and_received(plan, ids, workload, host) for host in range(servers))


def text(measured: dict[int, dict[int, Bytes]]) -> str:
    """Returns a table of MB per step: as chosen, and in parentheses as sums."""
    lines = ["MB per step: as chosen (as sums)", "ids per sample  " + "".join(
        f"{f'{servers} servers':>16}" for servers in next(iter(measured.values())))]
    for ids, of_servers in measured.items():
        lines.append(f"{ids:<16}" + "".join(
            f"{f'{each.chosen / 1e6:.2f} ({each.sums / 1e6:.2f})':>16}"
            for each in of_servers.values()))
    return "\n".join(lines)


def _sent_and_received(plan: EmbeddingPlan, ids: StepIds, workload: Workload, host: int) -> int:
    [table] = plan.tables
    gradients = StepGradients({table.name: tf.zeros([workload.batch_size, workload.dim])},
                              {table.name: 0.1}, {}, tf.constant(0))
    step = ids.host_step(plan, gradients, host)
    sent = sum(tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors_of(step))
    # What the server returns has the shape of the gradients.
    return sent + step.gradients.dtype.size * int(tf.size(step.gradients))
