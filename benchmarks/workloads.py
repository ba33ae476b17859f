# SPDX-License-Identifier: Apache-2.0
"""The workloads: number and sizes of tables, and ids per sample."""

import dataclasses

_BYTES_PER_VALUE = 4
COMBINERS = ("sum", "mean")


@dataclasses.dataclass(frozen=True)
class Workload:
    """Tables with one feature each, trained with Adagrad.

    Attributes:
        name: name in tables and files.
        rows: number of rows of each table.
        dim: number of float32 values per row.
        batch_size: samples per step.
        ids_per_sample: for each table, the number of ids per sample.
        touched_rows: if given, ids are drawn uniformly from this number of rows, spread over
            each table; otherwise they follow a Zipf law over all rows.
    """

    name: str
    rows: int
    dim: int
    batch_size: int
    ids_per_sample: tuple[int, ...]
    touched_rows: int = 0

    @property
    def num_tables(self) -> int:
        """Number of tables, which is the number of features."""
        return len(self.ids_per_sample)

    @property
    def bytes(self) -> int:
        """Bytes of all tables and their slot."""
        return 2 * self.num_tables * self.rows * self.dim * _BYTES_PER_VALUE

    def combiner(self, table: int) -> str:
        """The combiner of a table: alternates between sum and mean."""
        return COMBINERS[table % len(COMBINERS)]


W = Workload("W", rows=100_000, dim=32, batch_size=4096, ids_per_sample=(1, 10) * 13)
W1 = dataclasses.replace(W, name="W1", rows=1_000_000)
W2 = Workload("W2", rows=1_000_000, dim=64, batch_size=16_384, ids_per_sample=(1,))
TINY = Workload("tiny", rows=40, dim=8, batch_size=12, ids_per_sample=(1, 3, 2))

# Small steps, where what surrounds the kernels counts.
SMALL = tuple(
    Workload(f"{features}x{batch_size}", rows=10_000, dim=16, batch_size=batch_size,
             ids_per_sample=(1,) * features)
    for features in (1, 26) for batch_size in (64, 512))

ALL = {workload.name: workload for workload in (W, W1, W2, *SMALL, TINY)}
MEASURED = (W, W1, W2, *SMALL)

LEARNING_RATE = 0.05
INITIAL_VALUE = 0.01  # initial value of all rows
INITIAL_ACCUMULATOR = 0.1
