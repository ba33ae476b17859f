# SPDX-License-Identifier: Apache-2.0
"""`python -m release`: builds what is published."""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from release import tensorflow_headers, wheel
from tpu_estimator_embedding.kernels.compiler import CompilationError

_EXAMPLES = """\
examples:
  python -m release wheel                        all versions of TensorFlow (8 minutes of one core)
  python -m release wheel --tensorflow 2.21.0    a wheel to try, for one version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        made = wheel.build(args.tensorflow, args.output, args.headers)
    except (wheel.WheelError, CompilationError, tensorflow_headers.DownloadError) as error:
        print(f"python -m release {args.command}: {error}", file=sys.stderr)
        return 1
    print(wheel.contents(made))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m release", description=__doc__, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "wheel", help="build the wheel with the kernels for every TensorFlow",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--output", type=pathlib.Path, default=pathlib.Path("dist"),
                         help="directory for the wheel (default: dist)")
    command.add_argument("--tensorflow", nargs="+", metavar="VERSION",
                         default=tensorflow_headers.RELEASES,
                         help="releases of TensorFlow to compile for, one of each minor version")
    command.add_argument("--headers", type=pathlib.Path, default=tensorflow_headers.cache(),
                         help="directory for headers and libraries of TensorFlow, downloaded "
                              "where missing (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
