# SPDX-License-Identifier: Apache-2.0
"""`python -m release`: builds what is published."""

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from release import checks, links, site, tensorflow_headers, wheel
from tpu_estimator_embedding.kernels.compiler import CompilationError

_EXAMPLES = """\
examples:
  python -m release wheel                        all versions of TensorFlow (8 minutes of one core)
  python -m release wheel --tensorflow 2.21.0    a wheel to try, for one version
  python -m release docs                         the documentation, beside that of earlier versions
  python -m release check                        may what is in dist be published?
"""
_ERRORS = (wheel.WheelError, CompilationError, tensorflow_headers.DownloadError, site.SiteError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        return args.run(args)
    except _ERRORS as error:
        print(f"python -m release {args.command}: {error}", file=sys.stderr)
        return 1


def _wheel(args: argparse.Namespace) -> int:
    made = wheel.build(args.tensorflow, args.output, args.headers)
    print(wheel.contents(made))
    return 0


def _docs(args: argparse.Namespace) -> int:
    pages = site.build(args.output, args.base)
    broken = links.broken(args.output)
    for line in broken:
        print(f"broken link: {line}", file=sys.stderr)
    print(pages / "index.html")
    return int(bool(broken))


def _check(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        release = checks.Release(args.dist, pathlib.Path(scratch))
        names = args.only or list(checks.CHECKS)
        failed = checks.run(release, names)
    if failed:
        print(f"{len(failed)} of {len(names)} checks failed: {', '.join(failed)}")
    else:
        print(f"{len(names)} checks passed")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m release", description=__doc__, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("wheel", help="build the wheel with the kernels for every "
                                  "TensorFlow")
    command.set_defaults(run=_wheel)
    command.add_argument("--output", type=pathlib.Path, default=pathlib.Path("dist"),
                         help="directory for the wheel (default: %(default)s)")
    command.add_argument("--tensorflow", nargs="+", metavar="VERSION",
                         default=tensorflow_headers.RELEASES,
                         help="releases of TensorFlow to compile for, one of each minor version")
    command.add_argument("--headers", type=pathlib.Path, default=tensorflow_headers.cache(),
                         help="directory for headers and libraries of TensorFlow, downloaded "
                              "where missing (default: %(default)s)")
    command = commands.add_parser("docs", help="build the documentation as a site, and check its "
                                  "links")
    command.set_defaults(run=_docs)
    command.add_argument("--output", type=pathlib.Path, default=pathlib.Path("site"),
                         help="directory of the site (default: %(default)s)")
    command.add_argument("--base", default="/", help="path of the site on its web server, for "
                         "404.html (default: %(default)s)")
    command = commands.add_parser("check", help="check what is to be published: versions, "
                                  "changelog, distributions, metadata, documentation, "
                                  "installation, examples")
    command.set_defaults(run=_check)
    command.add_argument("--dist", type=pathlib.Path, default=pathlib.Path("dist"),
                         help="directory with the wheel and the source distribution (default: "
                              "%(default)s)")
    command.add_argument("--only", nargs="+", choices=checks.CHECKS, metavar="NAME",
                         help=f"only some of the checks: {', '.join(checks.CHECKS)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
