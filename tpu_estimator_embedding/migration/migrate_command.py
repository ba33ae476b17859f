# SPDX-License-Identifier: Apache-2.0
"""The verb `migrate`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import os
import pathlib
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.migration import codes, report, stages
from tpu_estimator_embedding.runtime.program_runner import split_arguments

if TYPE_CHECKING:
    from tpu_estimator_embedding.migration.rewrite import MigratedFile

_PROGRAM = "tpu-estimator-embedding migrate"
_VERIFY = "tpu-estimator-embedding verify"
_CONFIG_FILE = "embedding_config.py"  # which programs of the later stages import
FAILED = 1
_USAGE = "%(prog)s [options] PROGRAM.py|DIRECTORY ... [-- ARGS ...]"
# Relative tolerance of --verify: stage 1 runs the same ops, the others sum in another order, and
# Keras 3 has other formulas of the same loss and of AUC.
_RTOL = {"imports": 0.0, "keras3": 1e-4}
_LATER_RTOL = 1e-5
DESCRIPTION = """\
Rewrites programs that use tf.estimator, TPUEstimator and tf.contrib.tpu so that
they import this package and need no patched TensorFlow. Prints a diff unless
`--output` or `--write` is given, and a report of what is left to do by hand.

From --to tf2 on, the new program imports its tables from embedding_config.py. To
write that file, PROGRAM runs with ARGS until its model_fn was called."""
_EPILOG = """\
examples:
  %(prog)s train.py                        print the diff
  %(prog)s --write trainer/                rewrite a package, keep .orig files
  %(prog)s --output new --report r.json trainer/
  %(prog)s main.py trainer/ --to tf2 --output new
                                           a program and the packages that it imports
  %(prog)s trainer/task.py trainer/ --to tf2 --output new
                                           one that runs as `python -m trainer.task`
  %(prog)s train.py --to tf2 --output new -- --data logs/
                                           a training loop, with the tables that the
                                           program configures
  %(prog)s train.py --to tf2 --output new --verify -- --data logs/
                                           compare the two programs step by step

exit status: 0 nothing is left to do by hand, 2 hand work is left (with --strict
also decisions), 1 a file cannot be read or written, or --verify found a
difference"""


class _Explain(argparse.Action):
    """Prints the explanation of a code, instead of everything else."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: object, option_string: str | None = None) -> NoReturn:
        try:
            print(codes.explanation(str(values)))
        except ValueError as error:
            parser.error(str(error))
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.usage, parser.epilog = _USAGE, _EPILOG
    parser.add_argument("paths", nargs="+", metavar="PROGRAM", help="files and directories")
    stages.add_stage(parser, default="imports",
                           help="the stage to migrate to (default: %(default)s)")
    parser.add_argument("--dense-optimizer", choices=["legacy", "keras"], default="legacy",
                        help="with --to tf2 or layers: keep the optimizer of tf.train for dense "
                        "variables, or take one of tf_keras with the same hyperparameters, whose "
                        "difference the report states (default: %(default)s)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--diff", action="store_true", help="print a diff (the default)")
    output.add_argument("--write", action="store_true",
                        help="rewrite the files; each original is kept next to it as .orig")
    output.add_argument("--output", metavar="DIR", help="write the new files below DIR")
    dialect = parser.add_mutually_exclusive_group()
    dialect.add_argument("--tf1", action="store_true", dest="is_tf1", default=None,
                         help="`import tensorflow` means TensorFlow 1.x (default: where a file "
                         "uses names that only TensorFlow 1.x has)")
    dialect.add_argument("--no-tf1", action="store_false", dest="is_tf1",
                         help="`import tensorflow` means TensorFlow 2")
    parser.add_argument("--capture", action=argparse.BooleanOptionalAction,
                        help="run PROGRAM, the only file among the paths, with ARGS, and write "
                        "embedding_config.py next to it (default: from --to tf2 on, where the new "
                        "program needs that file and it is not there)")
    parser.add_argument("--capture-steps", type=int, choices=[0, 1],
                        help="where PROGRAM stops: 0 when its TPUEstimator is constructed, 1 when "
                        "model_fn was called, which names the tables in checkpoints (default: 1 "
                        "from --to tf2 on, else 0)")
    parser.add_argument("--strict", action="store_true",
                        help="also exit with status 2 for decisions")
    parser.add_argument("--verify", action="store_true",
                        help="with --output, run PROGRAM and what was written with ARGS, and "
                        "compare them as `verify` does; otherwise, or if work is left to do by "
                        "hand, `migrate` prints the command")
    parser.add_argument("--report", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--explain", action=_Explain, metavar="CODE",
                        help="print what a code of the report means and what to do, and stop")


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options; what stands behind `--` is the program's."""
    own, of_program = split_arguments(arguments)
    args = parser.parse_args(own, argparse.Namespace(program_arguments=of_program))
    is_later = args.to != "imports"
    if args.program_arguments and args.capture is not True and not args.verify and (
            args.capture is False or not is_later):
        parser.error("arguments after -- are the program's, and need --capture, --verify or a "
                     "stage after --to imports")
    if args.dense_optimizer == "keras" and args.to not in ("tf2", "layers"):
        parser.error("--dense-optimizer keras needs --to tf2 or --to layers")
    if args.capture_steps is None:
        args.capture_steps = int(is_later)
    elif args.capture is False or not (args.capture or is_later):
        parser.error("--capture-steps needs --capture")
    if args.verify and not args.output:
        parser.error("--verify needs --output: both programs must exist")
    if args.verify and args.output and is_later and args.capture is False and not (
            pathlib.Path(args.output, _CONFIG_FILE).exists()):
        parser.error(f"--verify at the stage {args.to} needs --capture, which writes "
                     f"{_CONFIG_FILE}, or that file in --output")
    for option, is_given in (("--capture", args.capture), ("--verify", args.verify)):
        if is_given and _program_of(args) is None:
            parser.error(f"{option} needs exactly one program file among the paths, got "
                         f"{args.paths}")
    return args


def run(args: argparse.Namespace) -> int:
    """Rewrites, prints the report and returns the exit status."""
    if importlib.util.find_spec("libcst") is None:
        print(f"{_PROGRAM}: LibCST, which parses programs, is not installed: "
              "pip install 'tpu_estimator_embedding[migrate]'", file=sys.stderr)
        return FAILED
    try:
        _check_programs(args)
        _check_outputs(args)
    except (OSError, ValueError) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return FAILED
    try:
        files = _migrate(args)
        found = report.Report.of((finding for file in files for finding in file.findings),
                                 is_strict=args.strict)
        _put_out(args, files)
        if args.report:
            pathlib.Path(args.report).write_text(found.to_json(), encoding="utf-8")
    except BrokenPipeError:
        raise  # of stdout, see `cli.main`
    except OSError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return FAILED
    print(found.to_text(), end="", file=sys.stderr)
    program = _program_of(args)
    if args.to != "imports" and not any(one.code.startswith("TEE4") for one in found.findings):
        print(f"No file that was given constructs a TPUEstimator, so --to {args.to} is the same as "
              "--to imports. If another one does, give that file or its directory, too.",
              file=sys.stderr)
    if args.output and program:
        stage, found_codes = args.to, {finding.code for finding in found.findings}
        if "TEE402" in found_codes and "TEE401" not in found_codes:  # no model_fn was split
            stage = "imports"
            print("What was written is of the stage imports, because of TEE402 above.",
                  file=sys.stderr)
        arguments = _verify_arguments(program, args, stage, is_tf1=_is_tf1(args, files))
        if args.verify and not found.left:
            return found.exit_status if _verify(arguments) == 0 else FAILED
        when = "--verify compared nothing, because hand work is left. Then" if args.verify else (
            "To compare the programs step by step,")
        print(f"{when} run {_VERIFY} {shlex.join(arguments)}", file=sys.stderr)
    return found.exit_status


def _check_programs(args: argparse.Namespace) -> None:
    notebooks = [path for path in args.paths if path.endswith(".ipynb")]
    checks.check(not notebooks, "paths", "Python files and directories", notebooks,
                 "Write a notebook as a program first: jupyter nbconvert --to script NOTEBOOK.")
    if args.to != "imports":
        own = [str(path) for path in dict.fromkeys(_config_files(args))
               if b"def feature_config(" not in path.read_bytes()]
        checks.check(not own, "paths", f"have no module {_CONFIG_FILE} of their own", own,
                     f"--to {args.to} writes tables and features to that name: rename the module.")


def _config_files(args: argparse.Namespace) -> Iterator[pathlib.Path]:
    """Yields the files beside the program, and in the directories, that are named so."""
    from tpu_estimator_embedding.migration import programs
    for given in map(pathlib.Path, args.paths):
        if given.is_dir():
            yield from (path for path, _ in programs.find([given], args.output)
                        if path.name == _CONFIG_FILE)
        elif (path := given.with_name(_CONFIG_FILE)).is_file():
            yield path


def _check_outputs(args: argparse.Namespace) -> None:
    checks.check_can_be_directory("--output", args.output)
    if args.report and not (args.output and pathlib.Path(args.report).absolute().is_relative_to(
            pathlib.Path(args.output).absolute())):  # whose folders are made
        checks.check_can_be_file("--report", args.report)


def _program_of(args: argparse.Namespace) -> pathlib.Path | None:
    """Returns the program that runs: the only file among the arguments, beside its packages."""
    files = [path for path in map(pathlib.Path, args.paths) if not path.is_dir()]
    return files[0] if len(files) == 1 else None


def _name_of(program: pathlib.Path, args: argparse.Namespace) -> pathlib.PurePath:
    """Returns where below --output a program is written."""
    from tpu_estimator_embedding.migration import programs
    return dict(programs.find(args.paths, args.output))[program]


def _is_tf1(args: argparse.Namespace, files: Sequence[MigratedFile]) -> bool:
    """Whether the program, or the first file, is of TensorFlow 1.x."""
    program = _program_of(args)
    first = next((file for file in files if file.path == program), files[0])
    return bool(args.is_tf1) or any(finding.code == "TEE110" for finding in first.findings)


def _verify_arguments(program: pathlib.Path, args: argparse.Namespace, stage: str, *,
                      is_tf1: bool) -> list[str]:
    """Returns the arguments of `verify` that compare the program with one of a stage."""
    rtol = _RTOL.get(stage, _LATER_RTOL)
    return [*(["--tf1"] if is_tf1 else []), *([f"--rtol={rtol:g}"] if rtol else []),
            f"--to={stage}", os.fspath(program),
            os.path.join(args.output, _name_of(program, args)),
            *(["--", *args.program_arguments] if args.program_arguments else [])]


def _verify(arguments: Sequence[str]) -> int:
    from tpu_estimator_embedding.migration.verify import verify_command
    parser = argparse.ArgumentParser(prog=_VERIFY)
    verify_command.add_arguments(parser)
    return verify_command.run(verify_command.parse(parser, arguments))


def _migrate(args: argparse.Namespace) -> list[MigratedFile]:
    from tpu_estimator_embedding.migration import programs
    from tpu_estimator_embedding.migration.rewrite import MigratedFile, rewrite_files
    found, program = programs.find(args.paths, args.output), _program_of(args)
    for skipped, reason in programs.left_out(args.paths).items():
        if not args.output or skipped.resolve() != pathlib.Path(args.output).resolve():
            print(f"left out: {skipped}, {reason}. To include it, pass its path, too.",
                  file=sys.stderr)
    given = {pathlib.Path(path) for path in args.paths}
    files = [_reported_if_unreadable(file) if file.path in given else file
             for file in rewrite_files(found, args.is_tf1, args.to, args.dense_optimizer, program)]
    path, name = next((one for one in found if one[0] == program), found[0])
    present = {file.path: _captured_modules(
        file, args.output, [(path, name)] if program else []) for file in files}
    lacks_config = {file.path: args.to != "imports" and _imports(file, _CONFIG_FILE)
                    and not present[file.path] for file in files}
    if args.capture or (args.capture is None and program and any(lacks_config.values())):
        from tpu_estimator_embedding.runtime.quiet_start import quiet_start
        with quiet_start(verbose=False, level="quiet"):
            from tpu_estimator_embedding.migration import captured_file  # which loads TensorFlow
        is_tf1 = _is_tf1(args, files)
        files.append(captured_file.capture_file(path, name, args.program_arguments, is_tf1=is_tf1,
                                                steps=args.capture_steps, stage=args.to))
    else:
        files = [_reported_without_config(file, is_of_program=program is not None)
                 if lacks_config[file.path] else file for file in files]
        if args.to != "imports":
            _say_what_is_kept(present.values())
    from tpu_estimator_embedding.migration import to_keras3
    if any(_imports(file, to_keras3.RUNTIME) for file in files):
        new = path.with_name(to_keras3.RUNTIME)
        files.append(MigratedFile(new, name.with_name(to_keras3.RUNTIME), b"",
                                  to_keras3.runtime(), ()))
    return files


def _reported_if_unreadable(file: MigratedFile) -> MigratedFile:
    """Adds a finding to a program that is not Python, which only those with TensorFlow have yet.

    Directories may have such files that are of no concern.
    """
    from tpu_estimator_embedding.migration import source_file
    if file.findings:
        return file
    try:
        source_file.check_is_python(file.before, os.fspath(file.path))
    except source_file.UnreadableError as error:
        return dataclasses.replace(file, findings=(error.finding,))
    return file


def _imports(file: MigratedFile, written: str) -> bool:
    """Whether a file imports a module that is written beside the program."""
    return f"import {pathlib.Path(written).stem}".encode() in file.after


def _captured_modules(file: MigratedFile, output: str | None,
                      programs: Sequence[tuple[pathlib.Path, pathlib.PurePath]]
                      ) -> list[pathlib.Path]:
    """Returns the captured modules that a file can import, beside it or programs."""
    if not _imports(file, _CONFIG_FILE):
        return []
    places = [place for path, name in ((file.path, file.name), *programs)
              for place in (path, *([pathlib.Path(output, name)] if output else []))]
    return [path for place in places if (path := place.with_name(_CONFIG_FILE)).exists()]


def _say_what_is_kept(modules: Iterable[Sequence[pathlib.Path]]) -> None:
    for path in dict.fromkeys(itertools.chain.from_iterable(modules)):
        print(f"kept: {path}. If the program's tables have changed since, remove it, and migrate "
              "writes it again.", file=sys.stderr)


def _reported_without_config(file: MigratedFile, *, is_of_program: bool) -> MigratedFile:
    from tpu_estimator_embedding.migration.report import Finding
    return dataclasses.replace(file, findings=(*file.findings, Finding(
        os.fspath(file.path), 0, 0, "TEE308", f"the tables and features of the Estimator, which "
        f"the program imports from {_CONFIG_FILE}: run the tool with --capture"
        f"{'' if is_of_program else ', and give the file that is run before the directories'}")))


def _put_out(args: argparse.Namespace, files: Sequence[MigratedFile]) -> None:
    from tpu_estimator_embedding.migration import programs
    if args.write:
        for path in programs.write_in_place(files):
            print(f"written: {path}")
    elif args.output:
        number = len(programs.write_to(args.output, files))
        print(f"written: {number} {'file' if number == 1 else 'files'} below {args.output}")
    else:
        sys.stdout.flush()
        for line in programs.diff(files):
            sys.stdout.buffer.write(line)
        sys.stdout.flush()
