# SPDX-License-Identifier: Apache-2.0
"""What a sweep's results say in sentences: which setting is best, and what they cannot say."""

import json
import math
import statistics

from tpu_estimator_embedding.experiments.results import Results, RunResult


def opening(results: Results) -> str:
    """Returns how many runs were successful, and the settings with the best mean."""
    ended = [result for result in results.runs if not result.error]
    text = f"{len(ended)} of {len(results.runs)} runs were successful."
    means = {summary.setting.label: statistics.fmean(summary.values)
             for summary in results.summaries() if summary.values}
    ranked = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    if not ranked:
        return text
    best = (min if results.lower_is_better else max)(ranked.values())
    labels = [label for label, mean in ranked.items() if mean == best]
    if len(labels) == len(means) > 1:
        return f"{text} The mean {results.metric} of all settings is the same."
    extreme = "lowest" if results.lower_is_better else "highest"
    verb = "is that of" if len(labels) == 1 else "is shared by"
    return f"{text} The {extreme} mean {results.metric} {verb} {' and '.join(labels)}."


def warnings_of(results: Results) -> list[str]:
    """Returns sentences about metrics that measured nothing, and settings that change nothing."""
    warnings = [_without_effect(name, results) for name in _names_without_effect(results)]
    empty = [result.run for result in results.runs if result.run.empty_evaluations]
    if empty:
        warnings.append(
            f"In {len(empty)} of {len(results.runs)} runs an evaluation read no batch, so its "
            "metrics are nan, and are not compared. Where batches drop their remainder, the input "
            f"must have at least as many samples as one batch. The first log: {empty[0].log}")
    return warnings


def _names_without_effect(results: Results) -> list[str]:
    """Names of settings of which all values gave exactly the same results, all else equal."""
    ended = [result for result in results.runs
             if not result.error and (result.curves or result.tables)]
    return [name for name in dict.fromkeys(
        name for result in ended for name in result.run.setting.texts)
        if _has_no_effect(name, ended)]


def _has_no_effect(name: str, runs: list[RunResult]) -> bool:
    by_others: dict[object, dict[str | None, str]] = {}
    for result in runs:
        others = dict(result.run.setting.texts)
        value = others.pop(name, None)
        by_others.setdefault((frozenset(others.items()), result.run.seed), {})[value] = (
            _what_came_out(result))
    compared = [found for found in by_others.values() if len(found) > 1]
    return bool(compared) and all(len(set(found.values())) == 1 for found in compared)


def _what_came_out(result: RunResult) -> str:
    """All that a run computed, without its speed, as text, in which nan is nan."""
    curves = {name: points for name, points in result.curves.items() if not name.endswith("/sec")}
    return json.dumps([curves, result.tables], sort_keys=True)


def _without_effect(name: str, results: Results) -> str:
    has_tables = all(result.run.setting.tables.items for result in results.runs)
    why = (" The multipliers of tables replace it where their keys match."
           if name == "multiplier" and has_tables else "")
    return (f"{name} has no effect here: runs that differ only in it have exactly the same "
            f"results.{why}")
