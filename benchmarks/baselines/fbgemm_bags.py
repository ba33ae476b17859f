# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's table-batched embedding bags on the CPU, which TorchRec uses."""

from collections.abc import Sequence

import fbgemm_gpu  # noqa: F401  (registers the operators)
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    COMBINERS,
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)

_POOLING = {"sum": PoolingMode.SUM, "mean": PoolingMode.MEAN}


def new_bags(shapes: Sequence[tuple[int, int]], combiner: str, learning_rate: float,
             initial_accumulator: float) -> SplitTableBatchedEmbeddingBagsCodegen:
    """Returns tables that Adagrad updates in the backward pass.

    Args:
        shapes: rows and columns of each table.
        combiner: "sum" or "mean".
        learning_rate, initial_accumulator: of Adagrad.
    """
    bags = SplitTableBatchedEmbeddingBagsCodegen(
        [(*shape, EmbeddingLocation.HOST, ComputeDevice.CPU) for shape in shapes],
        optimizer=EmbOptimType.EXACT_ADAGRAD, learning_rate=learning_rate, eps=0.0,
        pooling_mode=_POOLING[combiner], device=torch.device("cpu"))
    for states in bags.split_optimizer_states():
        states[0].fill_(initial_accumulator)
    return bags


class Baseline:
    """One module for the tables of each combiner, because a module has one pooling mode."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        if threads:
            torch.set_num_threads(threads)
        self._workload = workload
        tables = {combiner: [table for table in range(workload.num_tables)
                             if workload.combiner(table) == combiner] for combiner in COMBINERS}
        self._groups = [_Group(workload, numbers, batches) for numbers in tables.values()
                        if numbers]
        self._num_batches = len(batches)

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        return timed_steps(self._train, first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        of_number = {number: weights.detach().numpy().copy() for group in self._groups
                     for number, weights in zip(
                         group.numbers, group.module.split_embedding_weights(), strict=True)}
        return [of_number[number] for number in range(self._workload.num_tables)]

    def close(self) -> None:
        """Frees the tables."""
        self._groups = []

    def _train(self, batch: int) -> None:
        activations = [group.module(*group.inputs[batch]) for group in self._groups]
        torch.autograd.backward(activations, [group.gradient for group in self._groups])


class _Group:
    """The tables of one combiner, their module and its input."""

    def __init__(self, workload: Workload, numbers: list[int], batches: Sequence[Batch]):
        self.numbers = numbers
        self.module = new_bags([(workload.rows, workload.dim) for _ in numbers],
                               workload.combiner(numbers[0]), LEARNING_RATE, INITIAL_ACCUMULATOR)
        for weights in self.module.split_embedding_weights():
            weights.detach().fill_(INITIAL_VALUE)
        self.inputs = [self._input(batch) for batch in batches]
        gradients = make_gradients(workload)
        self.gradient = torch.from_numpy(np.concatenate(
            [gradients[number] for number in numbers], axis=1))

    def _input(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        ids = [batch.ids[number] for number in self.numbers]
        starts = np.cumsum([0, *(len(part) for part in ids)])
        offsets = [batch.splits[number][:-1] + start
                   for number, start in zip(self.numbers, starts, strict=False)]
        return (torch.from_numpy(np.concatenate(ids)),
                torch.from_numpy(np.concatenate([*offsets, starts[-1:]])))
