# SPDX-License-Identifier: Apache-2.0
"""What the report of a sweep concludes: ties, settings without effect, empty evaluations."""

import pathlib

import pytest

from tpu_estimator_embedding.experiments import conclusions
from tpu_estimator_embedding.experiments.results import Results, RunResult
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import grid

NAN = float("nan")


def results_of(*values, metric="auc", **axes):
    settings = grid(**(axes or {"multipliers": range(len(values))}))
    return Results(pathlib.Path("sweep"), tuple(
        RunResult(Run(pathlib.Path("sweep"), setting, 0), None, {
            metric: [(10, value)], "training/examples/sec": [(10, float(place))]}, None, {})
        for place, (setting, value) in enumerate(zip(settings, values, strict=True))), metric)


@pytest.mark.parametrize("values, metric, sentence", [
    ((0.5, 0.75), "auc", "The highest mean auc is that of multiplier=1."),
    ((0.5, 0.75), "loss", "The lowest mean loss is that of multiplier=0."),
    ((0.5, 0.75, 0.75), "auc", "The highest mean auc is shared by multiplier=1 and multiplier=2."),
    ((0.5, 0.5, 0.5), "auc", "The mean auc of all settings is the same."),
    ((NAN, 0.5, 0.25), "loss", "The lowest mean loss is that of multiplier=2."),
    ((NAN, 0.5), "loss", "The lowest mean loss is that of multiplier=1."),
    ((NAN, NAN), "loss", "2 of 2 runs were successful.")])
def test_best_settings_are_named(values, metric, sentence):
    assert conclusions.opening(results_of(*values, metric=metric)).endswith(sentence)


@pytest.mark.parametrize("values, axes, names", [
    ((0.5, 0.75), {}, []),
    ((0.5, 0.5), {}, ["multiplier"]),
    ((NAN, NAN), {}, ["multiplier"]),
    ((0.5,), {}, []),
    ((1, 2, 1, 2), {"multipliers": [0, 1], "tables": {"a": [0, 1]}}, ["multiplier"]),
    ((1, 1, 2, 2), {"multipliers": [0, 1], "tables": {"a": [0, 1]}}, ["table:a"]),
    ((1, 1, 1, 2), {"multipliers": [0, 1], "clipping_limits": [1, 2]}, [])])
def test_setting_without_effect_is_named(values, axes, names):
    warnings = conclusions.warnings_of(results_of(*values, **axes))
    assert [warning.partition(" has no effect here: ")[0] for warning in warnings] == names
    assert ["multipliers of tables" in warning for warning in warnings] == [
        name == "multiplier" and "tables" in axes for name in names]
