# SPDX-License-Identifier: Apache-2.0
"""Settings of the SparseCore layout of TPUEmbeddingV2."""

import dataclasses
import numbers
from collections.abc import Mapping

from tpu_estimator_embedding import checks


@dataclasses.dataclass(frozen=True)
class SparseCoreEmbeddingConfig:
    """The layout of tables on SparseCores, and limits on the number of ids.

    Attributes:
        disable_table_stacking: whether every table has a separate stack.
        max_ids_per_chip_per_sample: capacity for ids, per chip and sample.
        max_ids_per_table: stack name -> maximum ids that a SparseCore sends to a partition.
        max_unique_ids_per_table: stack name -> maximum distinct ids of these.
        allow_id_dropping: whether ids beyond the capacity are dropped instead of refused.
        initialize_tables_on_host: where a TPU computes initial values. It does not affect
            results.
        enable_fast_table_initialization: how a TPU computes initial values. It does not affect
            results.

    Raises:
        ValueError: if a flag is neither True nor False, or a limit is not an int of at least 1.
        TypeError: if limits are not a mapping.

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

    def __post_init__(self) -> None:
        for flag in ("disable_table_stacking", "allow_id_dropping", "initialize_tables_on_host",
                     "enable_fast_table_initialization"):
            checks.check_one_of(flag, (True, False), getattr(self, flag))
        _check_limit("max_ids_per_chip_per_sample", self.max_ids_per_chip_per_sample)
        for name in ("max_ids_per_table", "max_unique_ids_per_table"):
            limits = getattr(self, name)
            checks.check_type((Mapping, type(None)), name, "stack name -> limit, or None", limits)
            for limit in (limits or {}).values():
                _check_limit(name, limit)


def _check_limit(name: str, value: object) -> None:
    # Limits are often computed with NumPy, whose integers are no ints.
    is_positive = isinstance(value, numbers.Integral) and int(value) >= 1
    checks.check(is_positive, name, "an int of at least 1", value)
