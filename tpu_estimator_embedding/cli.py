# SPDX-License-Identifier: Apache-2.0
"""The command line: `tpu-estimator-embedding <verb>`.

Each verb imports what it needs itself, so that `--help` and `doctor` work where
TensorFlow does not.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence

PROGRAM = "tpu-estimator-embedding"

_EXAMPLES = f"""\
examples:
  {PROGRAM} doctor                     is everything here that is needed?
  {PROGRAM} build-kernels              compile the native kernels
  {PROGRAM} demo --examples 50000      write data, train, evaluate, export
  {PROGRAM} checkpoint inspect DIR     its tables, slots and state
  {PROGRAM} migrate train.py           show it with explicit imports
  {PROGRAM} run train.py --steps 100   run a program as it is
  {PROGRAM} run -m trainer.task        run a module as it is
"""

_RUN_HELP = f"""\
usage: {PROGRAM} run [--tf1] [--quiet | --verbose] PROGRAM.py [ARGS...]
       {PROGRAM} run [--tf1] [--quiet | --verbose] -m MODULE [ARGS...]

Runs an unmodified Python program as python would, after
tpu_estimator_embedding.install(): tf.estimator, TPUEstimator and their
embeddings work in it. Everything after the program's name is its own.

  --tf1      `import tensorflow` means TensorFlow 1.x, as in programs that
             write tf.Session or tf.train.AdamOptimizer without compat.v1
  --quiet    of TensorFlow's log only warnings and errors, no deprecations
  --verbose  everything in TensorFlow's log from INFO on, and deprecations
             every time, not once
"""

_RUN_LEVELS = {"--quiet": "quiet", "--verbose": "verbose"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="TPUEstimator programs with embedding tables, without a TPU "
        "and on today's TensorFlow.", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument("verb", nargs="?", choices=sorted(_VERBS),
                        help="; ".join(f"{verb}: {summary}" for verb, (_, summary)
                                       in sorted(_VERBS.items())))
    parser.add_argument("arguments", nargs=argparse.REMAINDER,
                        help=f"of the verb; `{PROGRAM} <verb> --help` lists them")
    args = parser.parse_args(argv)
    if args.version:
        return _version()
    if args.verb is None:
        parser.error("a verb is needed")
    function, _ = _VERBS[args.verb]
    return function(args.arguments)


def _version() -> int:
    import tpu_estimator_embedding
    print(tpu_estimator_embedding.__version__)
    return 0


def _run(arguments: Sequence[str]) -> int:
    # By hand, because whatever follows the program's name is not ours to interpret.
    options, rest = set(), list(arguments)
    while rest and rest[0] in ("--tf1", "-h", "--help", *_RUN_LEVELS):
        options.add(rest.pop(0))
    if options & {"-h", "--help"}:
        print(_RUN_HELP, end="")
        return 0
    levels = [level for option, level in _RUN_LEVELS.items() if option in options]
    is_module = rest[:1] == ["-m"]
    name, *rest = rest[is_module:] or [""]
    if not name or name.startswith("-") or len(levels) > 1:
        print(_RUN_HELP, end="", file=sys.stderr)
        return 2
    from tpu_estimator_embedding.runtime import program
    set_up = program.ProgramSetup("--tf1" in options, *levels)
    try:
        (program.run_module if is_module else program.run_file)(name, rest, set_up)
    except program.NotStartedError as error:
        print(f"{program.PREFIX}{error}", file=sys.stderr)
        return error.status
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog=f"{PROGRAM} doctor", description="Prints what was found, what install() patches "
        "and what to do about anything wrong. The exit status is 1 where something is wrong."
    ).parse_args(arguments)
    from tpu_estimator_embedding.runtime import doctor
    report, is_well = doctor.examine()
    print(report)
    return 0 if is_well else 1


def _demo(arguments: Sequence[str]) -> int:
    from tpu_estimator_embedding.demo import main as demo
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} demo", description="Writes click logs, then trains, evaluates, "
        "predicts and exports a model with embedding tables on them.")
    demo.add_arguments(parser)
    return demo.run(parser.parse_args(arguments))


def _build_kernels(arguments: Sequence[str]) -> int:
    from tpu_estimator_embedding.kernels import build_command
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} build-kernels",
                                     description=build_command.DESCRIPTION)
    build_command.add_arguments(parser)
    return build_command.run(parser.parse_args(arguments))


def _checkpoint(arguments: Sequence[str]) -> int:
    from tpu_estimator_embedding.checkpoint import command
    return command.run(arguments)


def _migrate(arguments: Sequence[str]) -> int:
    prog = f"{PROGRAM} migrate"
    if importlib.util.find_spec("libcst") is None:
        print(f"{prog}: LibCST, which parses programs, is not installed: "
              "pip install 'tpu_estimator_embedding[migrate]'", file=sys.stderr)
        return 1
    from tpu_estimator_embedding.migration import command
    return command.run(prog, arguments)


_VERBS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "build-kernels": (_build_kernels, "compiles the native kernels for this TensorFlow"),
    "checkpoint": (_checkpoint, "looks into checkpoints, converts and compares them"),
    "demo": (_demo, "from data that it writes itself to an exported model"),
    "doctor": (_doctor, "looks for what is missing or wrong"),
    "migrate": (_migrate, "rewrites programs to leave tf.estimator"),
    "run": (_run, "runs a program as it is"),
}
