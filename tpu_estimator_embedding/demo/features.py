# SPDX-License-Identifier: Apache-2.0
"""The fields of a click log."""

import dataclasses

LABEL = "clicked"
PRICE = "price"  # the one number that is no id


@dataclasses.dataclass(frozen=True)
class ClickFeature:
    """Ids of one kind in a click.

    Attributes:
        name: key in a record.
        vocabulary_size: ids are [0, vocabulary_size); low ranks are far more frequent.
        dimension: width of the embedding.
        max_ids: most ids in one record; a record has at least one.
        effect: how much the ids move the odds of a click.
        combiner: how several ids become one activation.
        weight_key: key of the weights of the ids, or None.
        is_sequence: whether the order of the ids counts, the last one most.
        table: name of a table that several features share, or None.
    """

    name: str
    vocabulary_size: int
    dimension: int
    max_ids: int = 1
    effect: float = 1.0
    combiner: str = "mean"
    weight_key: str | None = None
    is_sequence: bool = False
    table: str | None = None

    @property
    def hidden_table(self) -> str:
        """The vocabulary that the ids belong to."""
        return self.table or self.name


FEATURES = (
    ClickFeature("user", 50_000, 16, effect=0.8),
    ClickFeature("item", 20_000, 16, effect=1.0, table="items"),
    ClickFeature("recent_items", 20_000, 16, max_ids=6, effect=0.6, table="items"),
    ClickFeature("category", 500, 8, effect=1.0),
    ClickFeature("city", 5_000, 8, effect=0.6),
    ClickFeature("device", 20, 4, effect=0.6),
    ClickFeature("hour", 24, 4, effect=0.4),
    ClickFeature("keywords", 10_000, 16, max_ids=8, effect=1.2, combiner="sqrtn"),
    ClickFeature("interests", 2_000, 8, max_ids=5, effect=1.2, weight_key="interest_weights"),
    ClickFeature("pages", 1_000, 8, max_ids=8, effect=1.2, is_sequence=True),
)
