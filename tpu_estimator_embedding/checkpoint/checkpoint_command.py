# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding checkpoint`: its arguments, and the functions that it calls."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint import formats
from tpu_estimator_embedding.json_text import json_text

if TYPE_CHECKING:  # slow imports that most commands do not need
    from tpu_estimator_embedding.checkpoint.conversion import Conversion
    from tpu_estimator_embedding.checkpoint.reading import Reading
    from tpu_estimator_embedding.checkpoint.resizing import Resize

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = """\
Inspects, converts, compares and extracts checkpoints with embedding tables. No
command loads TensorFlow; memory holds a few blocks of rows, regardless of table
sizes. An output gets its name once it is complete; no existing file is overwritten.
"""

PROGRAM = "tpu-estimator-embedding checkpoint"

DONE, DIFFERENT, FAILED = 0, 1, 2

_EXAMPLES = {
    "inspect": ["model_dir", "tpu/model.ckpt-100 --from-hosts 4 --histogram norms.png"],
    "convert": ["model_dir tf2/ckpt-1 --to tf2",
                "tf2/ckpt-9 new_dir/model.ckpt-900 --to v1 --global-step 900",
                "model_dir grown/model.ckpt-100 --resize words=200000"],
    "reshard": ["tpu/model.ckpt-100 new/model.ckpt-100 --from-hosts 4 \\\n"
                "      --hosts 3 --partition div"],
    "compare": ["model_dir tf2/ckpt-1 --rtol 1e-5"],
    "extract": ["model_dir words.parquet --table words"],
}

_LEFT_OUT = "done, except for the variables listed as left out"
# Command -> what its exit statuses 0 and 1 mean.
_STATUSES = {
    "inspect": ("done", ""), "convert": ("done", _LEFT_OUT), "reshard": ("done", _LEFT_OUT),
    "compare": ("they agree", "they differ"), "extract": ("done", "")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the commands and their arguments to the parser."""
    parser.epilog = "\n".join((*_example_lines(_EXAMPLES), "",
                               f"`{PROGRAM} COMMAND --help` lists options and exit statuses."))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary, add in (
            ("inspect", "describe a checkpoint and its tables", _add_inspect),
            ("convert", "convert to another format or another vocabulary", _add_convert),
            ("reshard", "change the number of hosts or the partition strategy", _add_reshard),
            ("compare", "compare two checkpoints of any formats and layouts", _add_compare),
            ("extract", "write one table to Parquet or TSV", _add_extract)):
        command = commands.add_parser(
            name, help=summary, description=f"{summary.capitalize()}.", epilog=_epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter)
        command.add_argument("checkpoint", metavar="A" if name == "compare" else "CHECKPOINT",
                             help="its path without .index, a directory, or an .npz file")
        add(command)
        _add_reading(command)


def _epilog(command: str) -> str:
    done, not_quite = _STATUSES[command]
    return "\n".join([
        *_example_lines([command]), "", "exit status:", f"  0  {done}",
        *([f"  1  {not_quite}"] if not_quite else []), "  2  error: nothing was written"])


def _example_lines(commands: Iterable[str]) -> list[str]:
    return ["examples, each after tpu-estimator-embedding:", *(
        f"  checkpoint {command} {example}" for command in commands
        for example in _EXAMPLES[command])]


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("facts that a checkpoint does not contain")
    group.add_argument("--from-hosts", type=checks.read_positive_int, metavar="H",
                       help="a TPU wrote it with partition_strategy='mod' on H hosts")
    group.add_argument("--tables", metavar="KEY,...", help="keys of the tables of a v1 checkpoint "
                       "without a layout record; default: recognized by names")
    group.add_argument("--names", metavar="FILE.json", help="names of tables in TF2, and paths "
                       'of other variables: {"dense/kernel": "model/dense/kernel"}')
    group.add_argument("--object", action="append", default=[], metavar="PATH",
                       help="path of an object with tables in a TF2 checkpoint")
    group.add_argument("--from-sparse-cores", metavar="DEVICESxCORES", help="keras-rs-jax: "
                       "devices, and SparseCores of each, that held the tables, such as 4x2")
    group.add_argument("--stacks", metavar="FILE.json", help="sizes of the tables on SparseCores: "
                       '{"TABLE": [ROWS, DIM]}, or with the stacks, {"STACK": {"TABLE": ...}}')
    group.add_argument("--optimizer", action="append", default=[], metavar="TABLE=OPTIMIZER",
                       help="needed if several optimizers have such slots, as Adagrad and "
                       "ProximalAdagrad do")


def _add_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="from_", choices=formats.NAMES,
                        help="the format that the checkpoint must have; default: any")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_from(parser)
    parser.add_argument("--quick", action="store_true", help="read no values")
    parser.add_argument("--all", action="store_true", help="also list all other variables")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--histogram", type=pathlib.Path, metavar="FILE",
                        help="draw a histogram of the row norms of every table: .png, .svg or .pdf")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="OUTPUT", help="a new name")


def _add_convert(parser: argparse.ArgumentParser) -> None:
    _add_output(parser)
    _add_from(parser)
    parser.add_argument("--to", choices=formats.NAMES, help="default: the format that it has")
    parser.add_argument("--template", metavar="CHECKPOINT", help="checkpoint of the TF2 or Keras "
                        "program that will restore the output; the output gets its structure")
    parser.add_argument("--sparse-cores", metavar="DEVICESxCORES", help="keras-rs-jax: devices, "
                        "and SparseCores of each, that the template was built for, such as 4x2")
    parser.add_argument("--hosts", type=checks.read_positive_int, metavar="M",
                        help="v1: number of hosts that share the tables")
    parser.add_argument("--partition", choices=("div", "mod"), help="v1: how the rows are split "
                        "over the hosts")
    parser.add_argument("--resize", action="append", default=[], metavar="TABLE=ROWS",
                        help="another vocabulary size")
    parser.add_argument("--initializer", action="append", default=[],
                        metavar="TABLE=INITIALIZER", help="initializer of added rows: "
                        "truncated_normal[:STDDEV] (default, 1/√dim), normal[:STDDEV], "
                        "uniform:LOW,HIGH, constant:VALUE or zeros")
    parser.add_argument("--slot-value", action="append", default=[], metavar="TABLE/SLOT=VALUE",
                        help="slot values of added rows; default: 0, or for accumulators and v the "
                        "value of rows that were never trained")
    parser.add_argument("--global-step", type=int, metavar="N", help="the step to write")
    parser.add_argument("--without-slots", action="store_true", help="leave slots of tables out")


def _add_reshard(parser: argparse.ArgumentParser) -> None:
    _add_output(parser)
    parser.add_argument("--hosts", type=checks.read_positive_int, required=True, metavar="M",
                        help="number of hosts that will share every table")
    parser.add_argument("--partition", choices=("div", "mod"), required=True)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("other", metavar="B", help="another")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative tolerance (default 0)")
    parser.add_argument("--atol", type=float, default=0.0, help="absolute tolerance (default 0)")
    parser.add_argument("--tables-only", action="store_true", help="leave other variables out")
    parser.add_argument("--from-hosts-b", type=checks.read_positive_int, metavar="H",
                        help="--from-hosts for B")
    parser.add_argument("--from-sparse-cores-b", metavar="DEVICESxCORES",
                        help="--from-sparse-cores for B; default: the same")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_extract(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="OUTPUT", help="a new name: .parquet or .tsv")
    _add_from(parser)
    parser.add_argument("--table", required=True, metavar="NAME")
    parser.add_argument("--rows", metavar="START:STOP", help="ids; default: all")
    parser.add_argument("--slots", action="store_true", help="Parquet: a column for each slot")


def read_pairs(option: str, syntax: str, texts: Sequence[str]) -> dict[str, str]:
    """Splits each text at its last `=`.

    >>> read_pairs("--resize", "TABLE=ROWS", ["words=200", "tags=10"])
    {'words': '200', 'tags': '10'}
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        checks.check(bool(name and value), option, syntax, text)
        checks.check(name not in pairs, option, f"given once for {name!r}", text)
        pairs[name] = value
    return pairs


def read_range(text: str) -> tuple[int, int]:
    """Parses `START:STOP`.

    >>> read_range("0:1000")
    (0, 1000)
    """
    start, _, stop = text.partition(":")
    checks.check(start.isdigit() and stop.isdigit(), "--rows", "START:STOP", text)
    return int(start), int(stop)


def run(options: argparse.Namespace) -> int:
    """Runs one of the commands and returns the exit status."""
    try:
        return _COMMANDS[options.command](options)
    except BrokenPipeError:
        raise  # of stdout, see `cli.main`
    except (ValueError, OSError, ImportError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return FAILED


def _inspect(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import inspection
    from tpu_estimator_embedding.checkpoint.files import check_new_figure
    from tpu_estimator_embedding.checkpoint.report import describe_report
    if options.histogram:
        check_new_figure("histogram", options.histogram)
    report = inspection.inspect(
        options.checkpoint, from_=options.from_, names=_names(options), reading=_reading(options),
        values=not options.quick, progress=True)
    if options.histogram:
        inspection.save_histogram(report, options.histogram)
    print(json_text(report.to_dict()) if options.json
          else describe_report(report, with_variables=options.all))
    return DONE


def _convert(options: argparse.Namespace) -> int:
    from tpu_estimator_embedding.checkpoint import conversion
    if (options.hosts is None) != (options.partition is None):
        raise ValueError("`--hosts` and `--partition` must be given together.")
    return _report(conversion.convert(
        options.checkpoint, options.output, options.to, from_=options.from_,
        names=_names(options), template=options.template, reading=_reading(options),
        sparse_cores=_sparse_cores(options.sparse_cores),
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

    from tpu_estimator_embedding.checkpoint import comparison, report
    reading = _reading(options)
    result = comparison.compare(
        options.checkpoint, options.other, rtol=options.rtol, atol=options.atol,
        names=_names(options), reading_a=reading,
        reading_b=dataclasses.replace(
            reading, from_hosts=options.from_hosts_b,
            sparse_cores=_sparse_cores(options.from_sparse_cores_b) or reading.sparse_cores),
        tables_only=options.tables_only, progress=True)
    print(json_text({**dataclasses.asdict(result), "agree": result.agree})
          if options.json else report.describe_comparison(result))
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
    from tpu_estimator_embedding.checkpoint import report
    print(report.describe_conversion(conversion))
    return DIFFERENT if conversion.left_out else DONE


def _reading(options: argparse.Namespace) -> Reading:
    from tpu_estimator_embedding.checkpoint import reading, sparse_core_layout
    stacks = options.stacks and sparse_core_layout.read_stacks(pathlib.Path(options.stacks))
    return reading.Reading(
        tables=tuple(options.tables.split(",")) if options.tables else None,
        from_hosts=options.from_hosts, objects=tuple(options.object),
        optimizers=read_pairs("--optimizer", "TABLE=OPTIMIZER", options.optimizer),
        sparse_cores=_sparse_cores(options.from_sparse_cores), stacks=stacks)


def _sparse_cores(text: str | None) -> tuple[int, int] | None:
    from tpu_estimator_embedding.checkpoint import sparse_core_layout
    return sparse_core_layout.read_sparse_cores(text) if text else None


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
