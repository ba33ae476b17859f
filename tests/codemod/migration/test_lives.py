# SPDX-License-Identifier: Apache-2.0
"""Whole lives of migrated programs equal those of the legacy programs, or something is reported."""

import pytest

from tests.codemod.migration.lives import CHOICES, Life, compared, drawn

# Choices that a program needs a hand for -> what the report says of it.
LEFT = {
    ("LAYERS", "regularized activity"): "its loss is not in the collection",
    ("LAYERS", "regularized activity of a layer"): "its loss is not in the collection",
    ("METRIC_FN", "variables"): "`trainable_variables`",
    ("METRIC_FN", "shared variable"): "`get_variable` in a metric function",
}
LIVES = {
    "evaluation normalizes": Life((
        ("LAYERS", "normalized in evaluation"), ("LOSS", "total"), ("METRIC_FN", "step"),
        ("OPTIMIZER", "momentum"))),
    "unused variable": Life((
        ("LAYERS", "unused variable"), ("METRIC_FN", "shape"), ("OPTIMIZER", "adam"),
        ("PREDICTIONS", "step"), ("PIPELINED", "yes"))),
    "scores of other lengths": Life((
        ("LAYERS", "scope"), ("LOSS", "with regularization"), ("METRIC_FN", "scores"),
        ("LENGTHS", "other"), ("EVAL", "list"), ("PREDICTIONS", "tensor"))),
    "regularized activity": Life((
        ("LAYERS", "regularized activity"), ("LOSS", "with regularization"))),
    "losses of a scope": Life((
        ("LAYERS", "regularized by names"), ("LOSS", "of a scope"))),
    "shared variable": Life((("METRIC_FN", "shared variable"),)),
}


@pytest.fixture(name="verdicts", scope="module")
def verdicts_of_all_lives(tmp_path_factory):
    return dict(zip(LIVES, compared(list(LIVES.values()), tmp_path_factory.mktemp("lives")),
                    strict=True))


@pytest.mark.parametrize("name", LIVES)
def test_life_is_equal_or_reported(name, verdicts):
    wanted = [text for choice, text in LEFT.items() if choice in LIVES[name].choices]
    left, differences = verdicts[name].left, verdicts[name].differences
    if wanted:
        assert all(any(text in one for one in left) for text in wanted), left
        assert differences
    else:
        assert not differences, differences


@pytest.mark.soak
@pytest.mark.parametrize("stage", ["tf2", "layers"])
def test_drawn_lives_are_equal_or_reported(stage, tmp_path):
    lives = [drawn(seed) for seed in range(30)]
    found = [(life.choices, verdict) for life, verdict in zip(
        lives, compared(lives, tmp_path, stage), strict=True)
        if verdict.differences and not verdict.left]
    assert not found
    assert {slot for life in lives for slot, _ in life.choices} == CHOICES.keys()
