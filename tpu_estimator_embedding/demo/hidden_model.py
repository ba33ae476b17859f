# SPDX-License-Identifier: Apache-2.0
"""The model that generates the clicks of the demo, which training estimates.

    log odds of a click = bias + Σ_f effect_f · combine_f(score of each id of f) - price

Every id has a hidden score, drawn once from the seed. The ids of a record are weighted by its
weights, or by position in a sequence. Id frequencies follow a power law, as on real sites: a few
ids are very frequent, most are rare.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tpu_estimator_embedding.demo.features import FEATURES, ClickFeature

_BIAS = -1.0
_EXPONENT = 1.05  # exponent of the power law


class IdLists(NamedTuple):
    """The ids of all records, concatenated.

    Attributes:
        ids: `[n]` int64.
        lengths: `[records]` int64, at least 1, n in total.
        weights: `[n]` float32.
    """

    ids: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray


class Clicks(NamedTuple):
    """Records of a click log, column by column.

    Attributes:
        id_lists: feature name -> ids.
        price: `[records]` float32.
        clicked: `[records]` int64, 0 or 1.
        probability: `[records]` float64, probability of a click; not part of a log.
    """

    id_lists: Mapping[str, IdLists]
    price: np.ndarray
    clicked: np.ndarray
    probability: np.ndarray


@dataclasses.dataclass(frozen=True)
class HiddenModel:
    """Draws records and their clicks.

    Attributes:
        scores: vocabulary -> `[vocabulary_size]`, standard normal.
        id_of_rank: vocabulary -> `[vocabulary_size]`, ids by descending frequency.

    >>> clicks = HiddenModel.from_seed(1).draw(np.random.default_rng(2), 1000)
    >>> int(clicks.id_lists["keywords"].lengths.max()), clicks.clicked.shape
    (8, (1000,))
    """

    scores: Mapping[str, np.ndarray]
    id_of_rank: Mapping[str, np.ndarray]

    @classmethod
    def from_seed(cls, seed: int) -> "HiddenModel":
        """Draws a model, deterministically for a seed."""
        rng = np.random.default_rng([seed, 0])
        sizes = {feature.hidden_table: feature.vocabulary_size for feature in FEATURES}
        return cls(scores={name: rng.standard_normal(size) for name, size in sizes.items()},
                   id_of_rank={name: rng.permutation(size) for name, size in sizes.items()})

    def draw(self, rng: np.random.Generator, count: int) -> Clicks:
        """Returns `count` records."""
        id_lists = {feature.name: self._draw_ids(rng, feature, count) for feature in FEATURES}
        price = rng.exponential(0.5, count).astype(np.float32)
        log_odds = _BIAS - price + sum(
            feature.effect * self._combined_score(feature, id_lists[feature.name])
            for feature in FEATURES)
        probability = 1 / (1 + np.exp(-log_odds))
        clicked = (rng.random(count) < probability).astype(np.int64)
        return Clicks(id_lists, price, clicked, probability)

    def _draw_ids(self, rng: np.random.Generator, feature: ClickFeature, count: int) -> IdLists:
        lengths = rng.integers(1, feature.max_ids + 1, count)
        total = int(lengths.sum())
        ranks = np.searchsorted(_cumulative_power_law(feature.vocabulary_size), rng.random(total))
        ids = self.id_of_rank[feature.hidden_table][ranks]
        weights = np.ones(total, np.float32)
        if feature.weight_key:
            weights = rng.uniform(0.2, 2.0, total).astype(np.float32)
        return IdLists(ids, lengths, weights)

    def _combined_score(self, feature: ClickFeature, id_lists: IdLists) -> np.ndarray:
        records = np.repeat(np.arange(len(id_lists.lengths)), id_lists.lengths)
        weights = id_lists.weights
        if feature.is_sequence:
            weights = 0.5 ** _positions_from_the_end(id_lists.lengths)
        scores = self.scores[feature.hidden_table][id_lists.ids]
        power = 2 if feature.combiner == "sqrtn" else 1
        total_weight = np.bincount(records, weights ** power) ** (1 / power)
        return np.bincount(records, weights * scores) / total_weight


def _cumulative_power_law(size: int) -> np.ndarray:
    shares = np.arange(1, size + 1) ** -_EXPONENT
    cumulative = np.cumsum(shares) / shares.sum()
    cumulative[-1] = 1.0  # a draw just below 1 must not exceed the last rank
    return cumulative


def _positions_from_the_end(lengths: np.ndarray) -> np.ndarray:
    ends = np.repeat(np.cumsum(lengths), lengths)
    return ends - 1 - np.arange(len(ends))
