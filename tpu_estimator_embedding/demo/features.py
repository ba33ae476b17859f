# SPDX-License-Identifier: Apache-2.0
"""The fields of a click log."""

import dataclasses

LABEL = "clicked"
PRICE = "price"  # the only numeric feature


@dataclasses.dataclass(frozen=True)
class ClickFeature:
    """A feature with ids in a click log.

    Attributes:
        name: key in a record.
        vocabulary_size: ids are in [0, vocabulary_size); their frequencies follow a power law.
        dimension: width of the embedding.
        max_ids: maximum number of ids in a record; a record has at least one.
        effect: factor of the ids' score in the log odds of a click.
        combiner: how several ids are combined into one activation.
        weight_key: key of the weights of the ids, or None.
        is_sequence: whether the order of the ids matters; later ids have more weight.
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
        """The name of the vocabulary of the ids."""
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
