# SPDX-License-Identifier: Apache-2.0
"""How TPUEmbeddingV2 lays tables out on SparseCores, and the limits it keeps."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class SparseCoreEmbeddingConfig:
    """Settings of TPUEmbeddingV2.

    Attributes:
        disable_table_stacking: whether every table is a stack of its own.
        max_ids_per_chip_per_sample: room for ids, per chip and sample.
        max_ids_per_table: stack name -> most ids that a SparseCore sends to a partition.
        max_unique_ids_per_table: stack name -> most distinct ones of them.
        allow_id_dropping: whether ids beyond the room are dropped, instead of an error.
        initialize_tables_on_host: where a TPU makes the first values of tables. It changes
            no number.
        enable_fast_table_initialization: how a TPU makes them. It changes no number.

    >>> SparseCoreEmbeddingConfig(disable_table_stacking=True).max_ids_per_chip_per_sample
    64
    """

    disable_table_stacking: bool = False
    max_ids_per_chip_per_sample: int = 64
    max_ids_per_table: Mapping[str, int] | None = None
    max_unique_ids_per_table: Mapping[str, int] | None = None
    allow_id_dropping: bool = False
    initialize_tables_on_host: bool = True
    enable_fast_table_initialization: bool = False
