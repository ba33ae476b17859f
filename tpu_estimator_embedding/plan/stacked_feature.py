# SPDX-License-Identifier: Apache-2.0
"""Features of a plan whose tables are stacks.

>>> from tpu_estimator_embedding.plan.table_stacking import (
...     SparseCores, StackableTable, stack_tables)
>>> [stack] = stack_tables([StackableTable("a", 100, 8, samples=16)], SparseCores())
>>> StackedFeature(stack, "a", "mean", num_samples=16).row(5)  # shard 1 of 4 holds it in row 1
33
"""

import dataclasses

from tpu_estimator_embedding.plan.table_stacking import Ids, StackedTableLayout, TableStack


@dataclasses.dataclass(frozen=True)
class StackedFeature:
    """A feature that looks up one table of a stack.

    Attributes:
        stack: the stack, a table of the plan.
        table: the table in the stack whose rows the ids are.
        combiner: how the rows of a sample are combined: "sum", "mean" or "sqrtn".
        num_samples: number of samples of the feature per unit of the batch size. Features of a
            stack may have different numbers of samples; the batch size is then 1.
    """

    stack: TableStack
    table: str
    combiner: str
    num_samples: int

    @property
    def layout(self) -> StackedTableLayout:
        """The layout of the table's rows in the stack."""
        return self.stack.table(self.table)

    @property
    def vocabulary_size(self) -> int:
        """Rows of the table."""
        return self.layout.vocabulary_size

    def row(self, ids: Ids) -> Ids:
        """Returns the rows of the stack that hold the ids: an int, an array or a tensor."""
        return self.stack.row(self.table, ids)
