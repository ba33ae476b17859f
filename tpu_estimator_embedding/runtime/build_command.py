# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding build-kernels`."""

import argparse
import sys
import time

from tpu_estimator_embedding.kernels import build, library, tensorflow_build, trust
from tpu_estimator_embedding.kernels.compiler import CompilationError
from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild
from tpu_estimator_embedding.runtime import quiet_start

DESCRIPTION = ("Compiles the native kernels for the TensorFlow that is installed, loads them\n"
               "and says which instruction set runs. Nothing is compiled if they are up to date.")
EXAMPLES = """\
examples:
  tpu-estimator-embedding build-kernels            after changing TensorFlow
  tpu-estimator-embedding build-kernels --force    compile them again
  CXX=clang++ tpu-estimator-embedding build-kernels --force
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.epilog = EXAMPLES
    parser.add_argument("--force", action="store_true", help="compile even if they are up to date")
    quiet_start.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Compiles and loads the kernels; returns the exit status."""
    try:
        with quiet_start.quiet_start(args.verbose):
            import tensorflow as tf
    except ImportError as error:
        return _fail(f"the native kernels need TensorFlow: {error}. Run `tpu-estimator-embedding "
                     "doctor`.")
    tensorflow = tensorflow_build.of_imported(tf)
    if tensorflow is None:
        return _fail("the imported TensorFlow is not an installed package")
    try:
        _compile(tensorflow, args.force)
    except (CompilationError, OSError) as error:
        return _fail(f"{error}\nEverything works without native kernels, several times slower.")
    return _try(tensorflow)


def _compile(tensorflow: TensorFlowBuild, force: bool) -> None:
    found = library.find(tensorflow)
    if found and not force:
        print(f"The native kernels for TensorFlow {tensorflow.version} are up to date: {found}")
        return
    print(f"Compiling the native kernels for TensorFlow {tensorflow.version} ...",
          flush=True)
    trust.check(library.cache())
    start = time.monotonic()
    made = build.build(tensorflow, library.cache(), watch=build.progress)
    library.failure(tensorflow).unlink(missing_ok=True)
    print(f"Compiled in {time.monotonic() - start:.0f} seconds: {made}")


def _try(tensorflow: TensorFlowBuild) -> int:
    from tpu_estimator_embedding.kernels import load
    try:
        path = library.find(tensorflow)
        if path is None:
            return _fail("the compiled library was removed")
        print(f"They load and run: {load.open_library(path).description}.")
    except (ValueError, *load.LOADING_ERRORS) as error:
        return _fail(f"they do not load: {error}")
    return 0


def _fail(line: str) -> int:
    print(f"tpu-estimator-embedding build-kernels: {line}", file=sys.stderr)
    return 1
