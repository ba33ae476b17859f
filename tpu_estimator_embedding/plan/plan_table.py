# SPDX-License-Identifier: Apache-2.0
"""How an `EmbeddingPlan` prints: one line of totals, then one line per table."""

from collections.abc import Sequence

from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

_COLUMNS = ("table", "rows", "dim", "combiner", "optimizer", "slots", "rows per host", "bytes",
            "features")
_RIGHT_ALIGNED = {"rows", "dim", "rows per host", "bytes"}


def format_plan(plan: EmbeddingPlan) -> str:
    """Returns the plan as a table of fixed-width columns."""
    rows = [_COLUMNS, *(_table_row(plan, table) for table in plan.tables)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join([_headline(plan), *(_format_row(row, widths) for row in rows)])


def format_bytes(count: float) -> str:
    """Returns a byte count with the largest binary unit that keeps it above one.

    >>> format_bytes(512), format_bytes(3 * 1024 * 1024)
    ('512 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _headline(plan: EmbeddingPlan) -> str:
    counts = [(len(plan.tables), "table"), (len(plan.features), "feature"),
              (plan.num_hosts, "host")]
    parts = [f"{count} {noun}" + ("" if count == 1 else "s") for count, noun in counts]
    parts.append(f"partition {plan.partition_strategy!r}")
    if plan.pipelined:
        parts.append("pipelined")
    if plan.gradient_multiplier_fn:
        parts.append("gradient multiplier")
    return f"Embedding plan: {', '.join(parts)}, {format_bytes(plan.bytes)}"


def _table_row(plan: EmbeddingPlan, table: TablePlan) -> tuple[str, ...]:
    features = plan.features_of(table.name)
    per_host = sorted(set(plan.rows_per_host(table)), reverse=True)
    return (
        table.name, str(table.vocabulary_size), str(table.dimension), str(table.combiner),
        str(table.optimizer or "-"), ", ".join(table.slot_initial_values) or "-",
        "/".join(str(rows) for rows in per_host), format_bytes(table.bytes),
        ", ".join(_feature_label(feature) for feature in features))


def _feature_label(feature: FeaturePlan) -> str:
    length = f"[{feature.max_sequence_length}]" if feature.max_sequence_length else ""
    weights = f"*{feature.weight_key}" if feature.weight_key else ""
    return f"{feature.name}{length}{weights}"


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text.rjust(width) if name in _RIGHT_ALIGNED else text.ljust(width)
             for name, text, width in zip(_COLUMNS, row, widths, strict=True)]
    return "  ".join(cells).rstrip()
