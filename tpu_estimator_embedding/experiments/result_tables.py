# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep as text, CSV and JSON."""

import csv
import io
import statistics
from typing import Any

from tpu_estimator_embedding.experiments.files import write_json, write_text
from tpu_estimator_embedding.experiments.results import Results, mean_and_spread

Rows = list[list[str]]

_SETTING_FIELDS = ("multiplier", "learning_rate", "clipping_limit")


def summary_rows(results: Results) -> Rows:
    """Returns a headline and a row for every setting; `runs` is the number of seeds."""
    headline = ["setting", results.metric]
    if results.target is not None:
        sign = "≤" if results.lower_is_better else "≥"
        headline.append(f"steps to {sign} {results.target:g}")
    rows = [[*headline, "examples/s", "runs"]]
    for summary in results.summaries():
        row = [summary.setting.label, mean_and_spread(summary.values)]
        if results.target is not None:
            steps = summary.steps_to_target
            row.append(f"{statistics.fmean(steps):,.0f}" if steps else "-")
        rates = summary.examples_per_second
        row.append(rounded(statistics.fmean(rates)) if rates else "-")
        rows.append([*row, _count(len(results.of(summary.setting)), summary.errors)])
    return rows


def rounded(number: float) -> str:
    """Formats a speed: repetitions differ in the third digit already.

    >>> rounded(116538.4), rounded(7.258)
    ('117,000', '7')
    """
    return f"{float(f'{number:.3g}'):,.0f}"


def format_rows(rows: Rows) -> str:
    """Returns rows as columns of fixed width."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(
        cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows)


def write_tables(results: Results) -> None:
    """Writes `results.csv` and `results.json`, a row and an object for each run."""
    records = [_record(results, result) for result in results.runs]
    write_text(results.directory / "results.csv", _csv(records))
    write_json(results.directory / "results.json", {
        "metric": results.metric, "target": results.target,
        "settings": [{
            "setting": summary.setting.texts, "values": summary.values,
            "mean": statistics.fmean(summary.values) if summary.values else None,
            "spread": statistics.stdev(summary.values) if len(summary.values) > 1 else None,
            "steps_to_target": summary.steps_to_target,
            "examples_per_second": summary.examples_per_second, "errors": summary.errors}
            for summary in results.summaries()],
        "runs": [{**record, "curves": result.curves, "tables": result.tables}
                 for record, result in zip(records, results.runs, strict=True)]})


def _record(results: Results, result: Any) -> dict[str, Any]:
    fields = dict.fromkeys((*_SETTING_FIELDS, *(
        name for each in results.runs for name in each.run.setting.texts)), "")
    record: dict[str, Any] = fields | result.run.setting.texts
    record |= {"seed": result.run.seed, "error": result.error or "", "step": result.step,
               "examples_per_second": result.examples_per_second}
    if results.target is not None:
        record["steps_to_target"] = result.steps_to(results.metric, results.target)
    record |= {name: result.final(name) for name in results.metric_names}
    return {**record, "directory": str(result.run.directory.relative_to(results.directory))}


def _csv(records: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: f"{value:.7g}" if isinstance(value, float) else value
                       for name, value in record.items()} for record in records])
    return text.getvalue()


def _count(runs: int, errors: list[str]) -> str:
    if not errors:
        return str(runs)
    return f"{runs - len(errors)} of {runs}; {'; '.join(dict.fromkeys(errors))}"
