# SPDX-License-Identifier: Apache-2.0
"""What the `checkpoint` commands print.

>>> print(format_table(["table", "rows"], [["words", "1,000"], ["b", "7"]]))
table   rows
words  1,000
b          7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpu_estimator_embedding.checkpoint.contents import PARAMETERS

if TYPE_CHECKING:  # a command loads only what it runs
    from tpu_estimator_embedding.checkpoint.comparison import Comparison, TensorComparison
    from tpu_estimator_embedding.checkpoint.conversion import Conversion
    from tpu_estimator_embedding.checkpoint.inspection import CheckpointReport, TableReport

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; the first column is left-aligned, all others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join("  ".join(
        cell.rjust(width) if index else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in (head, *rows))


def format_size(size: float) -> str:
    """Formats a number of bytes with a suitable unit.

    >>> format_size(172), format_size(2 << 30)
    ('172 B', '2.0 GiB')
    """
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def describe_report(report: CheckpointReport, *, with_variables: bool) -> str:
    """Returns the output of `inspect`."""
    step = "no global step" if report.global_step is None else f"step {report.global_step}"
    lines = [f"{report.path}: {report.form}, {step}, {format_size(report.size)}, "
             f"tables: {len(report.tables)}, other variables: {len(report.variables)}"]
    if report.tables:
        lines += ["", format_table(
            ["table", "rows", "dim", "partition", "optimizer", "size", "norm: min", "mean", "max",
             "never trained", "not finite"], list(map(_table_row, report.tables)))]
    if with_variables and report.variables:
        lines += ["", format_table(["variable", "shape"], [
            [name, str(list(shape))] for name, shape in report.variables.items()])]
    return "\n".join(lines)


def _table_row(table: TableReport) -> list[str]:
    hosts = f"{table.partition_strategy} × {table.num_hosts}"
    row = [table.name, f"{table.rows:,}", str(table.dimension), hosts, table.optimizer or "-",
           format_size(table.size)]
    statistics = table.statistics
    if statistics is None:
        return [*row, *["-"] * 5]
    untrained = statistics.never_trained
    return [*row, *(f"{norm:.4g}" for norm in (
        statistics.min_norm, statistics.mean_norm, statistics.max_norm)),
        "-" if untrained is None else f"{untrained:,}", f"{statistics.not_finite:,}"]


def describe_conversion(conversion: Conversion) -> str:
    """Returns the output of `convert` and `reshard`."""
    contents = conversion.contents
    lines = [f"{conversion.output}: {format_size(contents.size)} from {contents.path} "
             f"({contents.form}), tables: {len(contents.tables)}, other variables: "
             f"{len(contents.variables) - len(conversion.left_out)}"]
    lines += [f"  {name}: {table.vocabulary_size:,} × {table.dimension}, "
              f"{table.optimizer or 'no slots'}" for name, table in sorted(contents.tables.items())]
    lines += [f"  kept from the template: {name}" for name in conversion.kept]
    lines += [f"  LEFT OUT, the template has no place for it: {name}"
              for name in conversion.left_out]
    if conversion.is_newest:
        lines.append(f"  {conversion.output.with_name('checkpoint')} now names it")
    return "\n".join(lines)


def describe_comparison(comparison: Comparison) -> str:
    """Returns the output of `compare`: differences, largest first, and the verdict."""
    different = [tensor for tensor in comparison.tensors if tensor.worst_row is not None]
    lines = [f"only in A: {name}" for name in comparison.only_in_a]
    lines += [f"only in B: {name}" for name in comparison.only_in_b]
    if different:
        lines.append(format_table(
            ["table or variable", "rows", "rows that differ", "largest difference", "worst row"],
            list(map(_comparison_row, sorted(
                different, key=lambda tensor: -tensor.differing_rows)))))
    equal = len(comparison.tensors) - len(different)
    verdict = "They agree" if comparison.agree else "They differ"
    return "\n".join([*lines, f"{verdict}: {equal} of {len(comparison.tensors)} tables, slots and "
                      "variables are equal bit for bit."])


def _comparison_row(tensor: TensorComparison) -> list[str]:
    slot = "" if tensor.slot in (None, PARAMETERS) else f", {tensor.slot}"
    return [f"{tensor.name}{slot}", f"{tensor.rows:,}", f"{tensor.differing_rows:,}",
            f"{tensor.max_difference:.4g}", str(tensor.worst_row)]
