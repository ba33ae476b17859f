# SPDX-License-Identifier: Apache-2.0
"""The draws have the shape of click logs, and labels that follow the equation."""

import numpy as np
import pytest

from tpu_estimator_embedding.demo.click_logs import HiddenModel
from tpu_estimator_embedding.demo.features import FEATURES

MODEL = HiddenModel.from_seed(7)
CLICKS = MODEL.draw(np.random.default_rng(1), 20_000)


def test_features_are_of_every_kind():
    by_name = {feature.name: feature for feature in FEATURES}
    assert len(FEATURES) >= 8
    assert by_name["user"].max_ids == 1
    assert by_name["keywords"].max_ids > 1
    assert by_name["interests"].weight_key
    assert by_name["pages"].is_sequence
    assert by_name["item"].table == by_name["recent_items"].table


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_ids_are_in_the_vocabulary_and_lists_as_long_as_said(feature):
    ids, lengths, weights = CLICKS.id_lists[feature.name]
    assert ids.min() >= 0
    assert ids.max() < feature.vocabulary_size
    assert (lengths.min(), lengths.max()) == (1, feature.max_ids)
    assert len(ids) == len(weights) == lengths.sum()


def test_ids_follow_a_power_law():
    ids = CLICKS.id_lists["user"].ids
    counts = np.sort(np.bincount(ids))[::-1]
    assert counts[0] / counts[9] == pytest.approx(10 ** 1.05, rel=0.2)


def test_ids_that_share_a_vocabulary_are_frequent_alike():
    top = [np.bincount(CLICKS.id_lists[name].ids).argmax() for name in ("item", "recent_items")]
    assert top[0] == top[1]


def test_probability_is_the_equation_for_one_record():
    clicks = MODEL.draw(np.random.default_rng(3), 1)
    log_odds = -1.0 - clicks.price[0]
    for feature in FEATURES:
        ids, _, weights = clicks.id_lists[feature.name]
        scores = MODEL.scores[feature.hidden_table][ids]
        if feature.is_sequence:
            weights = 0.5 ** np.arange(len(ids))[::-1]
        total = np.sqrt((weights**2).sum()) if feature.combiner == "sqrtn" else weights.sum()
        log_odds += feature.effect * (weights * scores).sum() / total
    assert clicks.probability[0] == pytest.approx(1 / (1 + np.exp(-log_odds)))


def test_clicks_happen_as_often_as_the_probability_says():
    likely = CLICKS.probability > 0.5
    for part in (likely, ~likely):
        expected = CLICKS.probability[part].mean()
        assert CLICKS.clicked[part].mean() == pytest.approx(expected, abs=0.02)


def test_another_seed_is_another_model():
    assert not np.array_equal(HiddenModel.from_seed(8).scores["user"], MODEL.scores["user"])
    assert np.array_equal(HiddenModel.from_seed(7).scores["user"], MODEL.scores["user"])
