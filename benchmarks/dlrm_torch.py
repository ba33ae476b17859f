# SPDX-License-Identifier: Apache-2.0
"""The DLRM of PyTorch, with FBGEMM's tables."""

import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.baselines.fbgemm_bags import new_bags
from benchmarks.dlrm import (
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    Batch,
    Settings,
    initial_table,
    initial_weights,
)


class _Dlrm(torch.nn.Module):
    """The model; a batch is numbers `[batch, 13]` and ids `[26, batch]`."""

    def __init__(self, settings: Settings):
        super().__init__()
        self._settings = settings
        self._bags = new_bags([(size, settings.dim) for size in settings.sizes], "sum",
                              LEARNING_RATE, INITIAL_ACCUMULATOR)
        for weights, size in zip(self._bags.split_embedding_weights(), settings.sizes, strict=True):
            weights.detach().copy_(torch.from_numpy(initial_table(size, settings.dim)))
        self.layers = torch.nn.ParameterList(map(torch.from_numpy, initial_weights(settings)))
        self._offsets = torch.arange(len(settings.sizes) * settings.batch_size + 1)
        vectors = len(settings.sizes) + 1
        self._pairs = torch.from_numpy(np.flatnonzero(np.tri(vectors, k=-1)))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        kernels, biases = list(self.layers)[::2], list(self.layers)[1::2]
        bottom = numbers
        for kernel, bias in zip(kernels[:2], biases[:2], strict=True):
            bottom = torch.relu(bottom @ kernel + bias)
        vectors = torch.cat([bottom, self._bags(ids.reshape(-1), self._offsets)], 1)
        stacked = vectors.reshape(len(numbers), -1, self._settings.dim)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).reshape(len(numbers), -1)
        top = torch.cat([products[:, self._pairs], vectors], 1)
        top = torch.relu(top @ kernels[2] + biases[2])
        return (top @ kernels[3] + biases[3])[:, 0]


def train(settings: Settings, training: Sequence[Batch],
          evaluation: Sequence[Batch]) -> tuple[float, np.ndarray]:
    """Returns seconds after the first loop, and the log odds of the evaluation."""
    model = _Dlrm(settings)
    optimizer = torch.optim.Adagrad(
        model.layers.parameters(), LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR,
        eps=0.0)
    for step, batch in enumerate(training):
        if step == settings.loop:
            start = time.perf_counter()
        numbers, ids, labels = map(torch.from_numpy, batch)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(numbers, ids.long()), labels)
        optimizer.zero_grad()
        loss.backward()  # updates the tables, too
        optimizer.step()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        return seconds, np.concatenate(
            [model(torch.from_numpy(numbers), torch.from_numpy(ids).long()).numpy()
             for numbers, ids, _ in evaluation])
