# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding checkpoint`: runs the commands."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tpu_estimator_embedding.checkpoint.command_arguments import (
    DESCRIPTION,
    add_arguments,
    read_pairs,
    read_range,
)

if TYPE_CHECKING:  # slow imports that most commands do not need
    from tpu_estimator_embedding.checkpoint.conversion import Conversion
    from tpu_estimator_embedding.checkpoint.reading import Reading
    from tpu_estimator_embedding.checkpoint.resizing import Resize

__all__ = ["DESCRIPTION", "add_arguments", "run"]

PROGRAM = "tpu-estimator-embedding checkpoint"

DONE, DIFFERENT, FAILED = 0, 1, 2


def run(options: argparse.Namespace) -> int:
    """Runs one of the commands and returns the exit status."""
    try:
        return _COMMANDS[options.command](options)
    except (ValueError, OSError, ImportError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return FAILED


def _inspect(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import inspection
    from tpu_estimator_embedding.checkpoint.report import histogram, report_text
    if options.histogram:
        histogram.check_histogram(options.histogram)
    report = inspection.inspect(
        options.checkpoint, from_=options.from_, names=_names(options), reading=_reading(options),
        values=not options.quick, progress=True)
    if options.histogram:
        histogram.save_histogram(report, options.histogram)
    print(json.dumps(report.to_dict(), indent=2) if options.json
          else report_text.describe_report(report, with_variables=options.all))
    return DONE


def _convert(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import conversion
    if (options.hosts is None) != (options.partition is None):
        raise ValueError("`--hosts` and `--partition` must be given together.")
    return _report(conversion.convert(
        options.checkpoint, options.output, options.to, from_=options.from_,
        names=_names(options), template=options.template, reading=_reading(options),
        layout=None if options.hosts is None else (options.hosts, options.partition),
        resize=_resize(options), global_step=options.global_step,
        without_slots=options.without_slots, progress=True))


def _reshard(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import conversion
    return _report(conversion.reshard(
        options.checkpoint, options.output, options.hosts, options.partition,
        reading=_reading(options), progress=True))


def _compare(options: argparse.Namespace) -> int:
    import dataclasses

    from tpu_estimator_embedding.checkpoint import comparison
    from tpu_estimator_embedding.checkpoint.report import report_text
    reading = _reading(options)
    result = comparison.compare(
        options.checkpoint, options.other, rtol=options.rtol, atol=options.atol,
        names=_names(options), reading_a=reading,
        reading_b=dataclasses.replace(reading, from_hosts=options.from_hosts_b),
        tables_only=options.tables_only, progress=True)
    print(json.dumps({**dataclasses.asdict(result), "agree": result.agree}, indent=2)
          if options.json else report_text.describe_comparison(result))
    return DONE if result.agree else DIFFERENT


def _extract(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import extraction
    count = extraction.extract(
        options.checkpoint, options.table, options.output, slots=options.slots,
        rows=None if options.rows is None else read_range(options.rows), from_=options.from_,
        names=_names(options), reading=_reading(options), progress=True)
    print(f"{options.output}: {count:,} rows")
    return DONE


def _report(conversion: Conversion) -> int:
    from tpu_estimator_embedding.checkpoint.report import report_text
    print(report_text.describe_conversion(conversion))
    return DIFFERENT if conversion.left_out else DONE


def _reading(options: argparse.Namespace) -> Reading:
    from tpu_estimator_embedding.checkpoint import reading
    return reading.Reading(
        tables=tuple(options.tables.split(",")) if options.tables else None,
        from_hosts=options.from_hosts, objects=tuple(options.object),
        optimizers=read_pairs("--optimizer", "TABLE=OPTIMIZER", options.optimizer))


def _names(options: argparse.Namespace) -> Mapping[str, str] | None:
    from tpu_estimator_embedding.checkpoint import names
    return names.read_names(pathlib.Path(options.names)) if options.names else None


def _resize(options: argparse.Namespace) -> Mapping[str, Resize]:
    from tpu_estimator_embedding.checkpoint import resizing
    return resizing.resizes(
        read_pairs("--resize", "TABLE=ROWS", options.resize),
        read_pairs("--initializer", "TABLE=INITIALIZER", options.initializer),
        read_pairs("--slot-value", "TABLE/SLOT=VALUE", options.slot_value))


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "inspect": _inspect, "convert": _convert, "reshard": _reshard, "compare": _compare,
    "extract": _extract}
