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
