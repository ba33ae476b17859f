# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own embedding bags."""

from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)


class Baseline:
    """`torch.nn.EmbeddingBag(sparse=True)` and `torch.optim.Adagrad`."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        if threads:
            torch.set_num_threads(threads)
        self._bags = [_bag(workload, table) for table in range(workload.num_tables)]
        self._optimizer = torch.optim.Adagrad(
            [bag.weight for bag in self._bags], LEARNING_RATE,
            initial_accumulator_value=INITIAL_ACCUMULATOR)
        self._gradients = [torch.from_numpy(gradient) for gradient in make_gradients(workload)]
        self._inputs = [[(torch.from_numpy(ids), torch.from_numpy(splits[:-1].copy()))
                         for ids, splits in zip(batch.ids, batch.splits, strict=True)]
                        for batch in batches]

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        return timed_steps(self._train, first, count, len(self._inputs))

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [bag.weight.detach().numpy().copy() for bag in self._bags]

    def close(self) -> None:
        """Frees the tables."""
        self._bags, self._optimizer = [], None

    def _train(self, batch: int) -> None:
        activations = [bag(ids, offsets) for bag, (ids, offsets) in
                       zip(self._bags, self._inputs[batch], strict=True)]
        self._optimizer.zero_grad()
        torch.autograd.backward(activations, self._gradients)
        self._optimizer.step()


def _bag(workload: Workload, table: int) -> torch.nn.EmbeddingBag:
    weights = torch.full((workload.rows, workload.dim), INITIAL_VALUE)
    return torch.nn.EmbeddingBag.from_pretrained(
        weights, freeze=False, mode=workload.combiner(table), sparse=True)
