# SPDX-License-Identifier: Apache-2.0
"""What a TPU embedding step computes, as plain loops over samples and ids, in float64.

Imports nothing of the package and nothing of TensorFlow, so that an error there cannot
hide here. A batch is, for every feature, a list of samples, and a sample a list of
`Entry`s: no sparse tensors, no stacking, no hosts.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.spec.oracle_optimizers import initial_slots, moves_untouched_rows, update_row


class Entry(NamedTuple):
    """One id of one sample. `position` only matters to sequence features."""

    id: int
    weight: float = 1.0
    position: int = 0


Batch = dict[str, list[list[Entry]]]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """A rule of `oracle_optimizers` by name, and what surrounds it."""

    kind: str
    learning_rate: float | Callable[[int], float] = 0.1
    hyperparameters: dict = dataclasses.field(default_factory=dict)
    accumulate: bool = True
    gradient_limits: tuple = (None, None)
    weight_limits: tuple = (None, None)
    decay: float = 0.0
    multiply_decay_by_learning_rate: bool = False


@dataclasses.dataclass(frozen=True)
class Feature:
    name: str
    table: str
    length: int = 0


class Table:
    """The rows and slots of one table, `[vocabulary, dim]` float64 each."""

    def __init__(self, name, values, combiner, optimizer):
        self.name, self.combiner, self.optimizer = name, combiner, optimizer
        self.values = np.array(values, np.float64)
        self.slots = {slot: np.full_like(self.values, value) for slot, value in
                      initial_slots(optimizer.kind, optimizer.hyperparameters).items()}


class Oracle:
    """Tables that look up and learn one batch at a time."""

    def __init__(self, tables, features, multiplier=None, num_cores=1, table_multipliers=None):
        self.tables = {table.name: table for table in tables}
        self.features = {feature.name: feature for feature in features}
        self.multiplier = multiplier or (lambda step: 1.0)
        self.table_multipliers = table_multipliers or {}  # table name -> function of the step
        self.num_cores = num_cores

    def activations(self, batch: Batch) -> dict[str, np.ndarray]:
        """`[batch, dim]` for each feature, `[batch, length, dim]` for a sequence."""
        result = {}
        for name, samples in batch.items():
            feature = self.features[name]
            table = self.tables[feature.table]
            rows = np.zeros([len(samples), max(1, feature.length), table.values.shape[1]])
            for sample, row, id, coefficient in contributions(feature, table.combiner, samples):
                rows[sample, row] += coefficient * table.values[id]
            result[name] = rows if feature.length else rows[:, 0]
        return result

    def apply(self, batch: Batch, gradients: dict[str, np.ndarray], step: int) -> None:
        """Updates the tables with the gradients of the activations of `batch`."""
        for table in self.tables.values():
            sums = self._row_gradients(table, batch, gradients, step)
            if moves_untouched_rows(table.optimizer.kind, table.optimizer.hyperparameters):
                self._move_untouched_rows(table, {id for core in sums for id in core}, step)
            if table.optimizer.accumulate:
                sums = [add_cores(sums)]
            for id in sorted({id for core in sums for id in core}):
                for core in cores_from(id, len(sums)):
                    if id in sums[core]:
                        update_touched_row(table, id, sums[core][id], step)

    def _row_gradients(self, table, batch, gradients, step) -> list[dict[int, np.ndarray]]:
        """For each core, id -> summed gradient of what its share of the batch looked up."""
        cores = [{} for _ in range(self.num_cores)]
        multiplier = self.table_multipliers.get(table.name, self.multiplier)(step)
        for name, samples in batch.items():
            feature = self.features[name]
            if feature.table != table.name:
                continue
            upstream = np.asarray(gradients[name], np.float64)
            upstream = upstream if feature.length else upstream[:, np.newaxis]
            share = max(1, len(samples) // self.num_cores)
            for sample, row, id, coefficient in contributions(feature, table.combiner, samples):
                gradient = coefficient * multiplier * upstream[sample, row]
                core = cores[sample // share]
                core[id] = core.get(id, 0.0) + gradient
        return cores

    def _move_untouched_rows(self, table, touched, step):
        for id in set(range(len(table.values))) - touched:
            slots = {name: slot[id] for name, slot in table.slots.items()}
            store(table, id, *update_row(
                table.optimizer.kind, table.optimizer.hyperparameters,
                np.zeros_like(table.values[id]), table.values[id], slots,
                learning_rate(table.optimizer, step), step))


def contributions(feature, combiner, samples):
    """Yields (sample, row, id, coefficient): what goes into which row, how strongly.

    A negative id is padding. A sequence has one row for each position below its length,
    everything else one row for each sample.
    """
    for sample, entries in enumerate(samples):
        rows = {}
        for entry in entries:
            row = entry.position if feature.length else 0
            if entry.id >= 0 and row < max(1, feature.length):
                rows.setdefault(row, []).append(entry)
        for row, kept in rows.items():
            divisor = denominator(combiner, [entry.weight for entry in kept])
            for entry in kept:
                yield sample, row, entry.id, entry.weight / divisor if divisor else 0.0


def denominator(combiner, weights):
    if combiner == "mean":
        return sum(weights)
    if combiner == "sqrtn":
        return np.sqrt(sum(weight * weight for weight in weights))
    return 1.0


def add_cores(cores):
    total = {}
    for core in cores:
        for id, gradient in core.items():
            total[id] = total.get(id, 0.0) + gradient
    return total


def cores_from(id, num_cores):
    """The core a row lives on, then the others in turn."""
    return [(id + k) % num_cores for k in range(num_cores)]


def learning_rate(optimizer, step):
    rate = optimizer.learning_rate
    return rate(step) if callable(rate) else rate


def update_touched_row(table, id, gradient, step):
    """Clip, decay, rule, clip, in this order."""
    optimizer = table.optimizer
    rate = learning_rate(optimizer, step)
    gradient = clip(gradient, optimizer.gradient_limits)
    row = table.values[id]
    row = row - optimizer.decay * row * (
        rate if optimizer.multiply_decay_by_learning_rate else 1.0)
    slots = {name: slot[id] for name, slot in table.slots.items()}
    row, slots = update_row(optimizer.kind, optimizer.hyperparameters, gradient, row, slots,
                            rate, step)
    store(table, id, clip(row, optimizer.weight_limits), slots)


def store(table, id, row, slots):
    table.values[id] = row
    for name, values in slots.items():
        table.slots[name][id] = values


def clip(values, limits):
    low, high = limits
    return np.clip(values, -np.inf if low is None else low, np.inf if high is None else high)


def train(oracle, batches, gradients_of, pipelined=False):
    """Trains on every batch; returns the activations that each step saw.

    Pipelined, a batch is looked up before the update of the batch before it.

    Args:
        gradients_of: called with the step and its activations.
    """
    seen, pending = [], None
    for step, batch in enumerate(batches):
        if pending and not pipelined:
            oracle.apply(*pending)
        seen.append(oracle.activations(batch))
        if pending and pipelined:
            oracle.apply(*pending)
        pending = batch, gradients_of(step, seen[-1]), step
    if pending:
        oracle.apply(*pending)
    return seen


def cut(values, num_hosts, strategy):
    """The parts into which hosts cut the rows, by dealing the ids out one after another."""
    num_parts = min(len(values), num_hosts)
    if strategy == "mod":
        hands = [[] for _ in range(num_parts)]
        for id in range(len(values)):
            hands[id % num_parts].append(id)
    else:
        hands, first = [], 0
        for part in range(num_parts):
            size = len(values) // num_parts + (part < len(values) % num_parts)
            hands.append(list(range(first, first + size)))
            first += size
    return [np.asarray(values)[ids] for ids in hands]
