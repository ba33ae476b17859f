# SPDX-License-Identifier: Apache-2.0
"""Finds hot rows of a table, and the rows with the most similar directions."""

import dataclasses

import numpy as np

from tpu_estimator_embedding.checkpoint.contents import Table
from tpu_estimator_embedding.checkpoint.names import GROWING_SLOTS


@dataclasses.dataclass(frozen=True)
class HotRow:
    """A frequently trained row and its nearest neighbours.

    Attributes:
        id: id of the row.
        neighbours: (id, cosine similarity) pairs, the nearest first.
    """

    id: int
    neighbours: list[tuple[int, float]]


def hot_rows(table: Table, count: int = 3, neighbours: int = 5) -> list[HotRow]:
    """Returns the rows with the largest accumulated gradients, or the largest norms.

    The table is read twice, a block of rows at a time.

    Args:
        table: a table of a checkpoint.
        count: number of rows.
        neighbours: number of neighbours of each row.
    """
    activity = next((tensor for slot, tensor in table.slots.items() if slot in GROWING_SLOTS),
                    table.rows)
    norms = np.concatenate([np.linalg.norm(activity.read_rows(start, stop), axis=1)
                            for start, stop in activity.row_blocks()])
    ids = [int(row) for row in np.argsort(-np.nan_to_num(norms), kind="stable")[:count]]
    wanted = np.stack([_directions(table.rows.read_rows(row, row + 1))[0] for row in ids])
    cosines = np.concatenate([_directions(table.rows.read_rows(start, stop)) @ wanted.T
                              for start, stop in table.rows.row_blocks()])
    found = []
    for place, row in enumerate(ids):
        of_row = cosines[:, place]
        of_row[row] = -np.inf
        nearest = np.argsort(-of_row, kind="stable")[:min(neighbours, len(of_row) - 1)]
        found.append(HotRow(row, [(int(other), float(of_row[other])) for other in nearest]))
    return found


def _directions(rows: np.ndarray) -> np.ndarray:
    rows = np.nan_to_num(rows.astype(np.float32))
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
