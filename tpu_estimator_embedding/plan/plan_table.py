# SPDX-License-Identifier: Apache-2.0
"""The printed form of an `EmbeddingPlan`: one line of totals, then one line per table."""

from collections.abc import Sequence

from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.plan.format_bytes import format_bytes

_COLUMNS = ("table", "rows", "dim", "combiner", "optimizer", "slots", "rows per host", "bytes",
            "features", "multiplier")
_RIGHT_ALIGNED = {"rows", "dim", "rows per host", "bytes"}


def format_plan(plan: EmbeddingPlan) -> str:
    """Returns the plan as a table of fixed-width columns."""
    rows = [_COLUMNS, *(_table_row(plan, table) for table in plan.tables)]
    if not any(table.multiplier for table in plan.tables):
        rows = [row[:-1] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join([_headline(plan), *(_format_row(row, widths) for row in rows)])


def _headline(plan: EmbeddingPlan) -> str:
    counts = [(len(plan.tables), "table"), (len(plan.features), "feature"),
              (plan.num_hosts, "host")]
    parts = [f"{count} {noun}" + ("" if count == 1 else "s") for count, noun in counts]
    parts.append(f"partition {plan.partition_strategy!r}")
    if plan.pipelined:
        parts.append("pipelined")
    if plan.gradient_multiplier_fn:
        schedule = plan.gradient_multiplier_fn
        is_printable = isinstance(schedule, Schedule)
        parts.append(f"gradient multiplier {schedule}" if is_printable else "gradient multiplier")
    return f"Embedding plan: {', '.join(parts)}, {format_bytes(plan.bytes)}"


def _table_row(plan: EmbeddingPlan, table: TablePlan) -> tuple[str, ...]:
    features = plan.features_of(table.name)
    per_host = sorted(set(plan.rows_per_host(table)), reverse=True)
    return (
        table.name, str(table.vocabulary_size), str(table.dimension), str(table.combiner),
        str(table.optimizer or "-"), ", ".join(table.slot_initial_values) or "-",
        "/".join(str(rows) for rows in per_host), format_bytes(table.bytes),
        ", ".join(_feature_label(feature) for feature in features), str(table.multiplier or "-"))


def _feature_label(feature: FeaturePlan) -> str:
    length = f"[{feature.max_sequence_length}]" if feature.max_sequence_length else ""
    weights = f"*{feature.weight_key}" if feature.weight_key else ""
    return f"{feature.name}{length}{weights}"


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text.rjust(width) if name in _RIGHT_ALIGNED else text.ljust(width)
             for name, text, width in zip(_COLUMNS, row, widths, strict=False)]
    return "  ".join(cells).rstrip()
