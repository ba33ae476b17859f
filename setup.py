# SPDX-License-Identifier: Apache-2.0
"""Metadata of the package, with requirements that follow the TensorFlow found.

tf-keras is released once per minor version of TensorFlow and requires exactly that one, so
a fixed requirement may change the TensorFlow of the environment. pip therefore gets
requirements written while it builds the package for an environment: the TensorFlow that is
there is kept, and the tf-keras that belongs to it is asked for. Any other builder, as
`python -m build`, makes a wheel for environments not known yet, with requirements that allow
every supported TensorFlow, whatever is installed where it is built.

`python -m release wheel` hands over compiled libraries, by two environment variables:
TPU_ESTIMATOR_EMBEDDING_LIBRARIES, the directory that they are in, and
TPU_ESTIMATOR_EMBEDDING_PLATFORM, the platform that the wheel is for. Otherwise, where the
environment's TensorFlow has its headers and there is a C++ compiler, the native kernels are
compiled against it, into a wheel for this platform. Else the wheel is for any platform, and the
kernels are compiled when they are first used.
"""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build import build

# By its path, because nothing can import the package while it is being installed.
VERSIONS = runpy.run_path(
    str(pathlib.Path(__file__).parent / "tpu_estimator_embedding" / "versions.py"))
OLDEST_MINOR: tuple[int, int] = VERSIONS["OLDEST_TENSORFLOW"]
LAST_WITH_ESTIMATOR: tuple[int, int] = VERSIONS["LAST_WITH_ESTIMATOR"]
TENSORFLOW_DISTRIBUTIONS: tuple[str, ...] = VERSIONS["TENSORFLOW_DISTRIBUTIONS"]
TENSORFLOW_RANGE: str = VERSIONS["TENSORFLOW_RANGE"]
ESTIMATOR: str = VERSIONS["ESTIMATOR_REQUIREMENT"]
STABLE_ESTIMATOR: str = VERSIONS["STABLE_ESTIMATOR_REQUIREMENT"]
LIBRARY_BOUNDS: tuple[Any, ...] = VERSIONS["LIBRARY_BOUNDS"]

KERNELS = pathlib.Path("tpu_estimator_embedding", "kernels")
LIBRARIES = "TPU_ESTIMATOR_EMBEDDING_LIBRARIES"
PLATFORM = "TPU_ESTIMATOR_EMBEDDING_PLATFORM"

LIST_DISTRIBUTIONS = """
import importlib.metadata
for distribution in importlib.metadata.distributions():
    print(distribution.name, distribution.version)
"""

# Version 26 needs NumPy 2, which TensorFlow 2.15 does not accept; 23 runs with both.
PYARROW = "pyarrow<24"

DOCS = [
    "sphinx",  # builds the documentation
    "furo",  # its theme, which reads well on narrow screens
    "libcst",  # parses the programs of the migration guide, whose pages show what `migrate` writes
]

INTERACTIVE = [
    "plotly>=6",  # its bundle is embedded in reports: figures with hover, zoom and toggling
    "itables>=2.4",  # DataTables' bundle likewise: a table that sorts and filters
]

EXTRAS = {
    "test": [
        "pytest",  # runs the tests and the doctests
        "hypothesis",  # writes the cases of the property tests
        "pytest-xdist>=3.8",  # runs them on all cores, in their order
        "libcst",  # parses what `migrate` rewrites
        "kubernetes>=37",  # its models are the schema that an example is checked against
        "pyyaml",  # reads that example
        "build",  # makes the sdist and the wheel that tests look into
        "auditwheel>=6.8",  # checks the wheel that has the kernels
        "uv",  # installs that wheel, as pip does
        PYARROW,  # what extra `parquet` needs
        "matplotlib",  # what extra `plots` needs
        "optuna",  # what extra `search` needs
        *INTERACTIVE,
        "websocket-client",  # speaks to the browser that tests a report; of kubernetes, too
        "axe-core-python",  # brings the accessibility checker of reports, where npm cannot
        "keras-rs",  # a stage of the migration, beside Keras 3
        "tf-slim==1.1.0",  # what tf.contrib.slim and tf.contrib.layers became; its last release
    ],
    "migrate": [
        "libcst",  # rewrites source code and keeps its formatting
    ],
    "parquet": [
        PYARROW,  # writes tables of a checkpoint to Parquet; the format's reference library
    ],
    "orbax": [
        "tensorstore",  # reads and writes the arrays of Orbax's checkpoints; Orbax's own library
    ],
    "jax": [  # what a program of the migration's last stage runs on, and its tests
        "keras-rs",  # the layer with the tables, and Keras 3
        "jax[cpu]",  # one of the backends
        "orbax-checkpoint",  # saves on that backend
    ],
    "docs": DOCS,
    "plots": [
        "matplotlib",  # draws the figures of the benchmarks, and norms in a checkpoint
    ],
    "interactive": INTERACTIVE,
    "search": [
        "optuna",  # chooses the settings of a sweep, and stops hopeless runs
    ],
    "release": [  # what `python -m release` runs
        "build",  # makes the sdist and the wheel
        "auditwheel>=6.8",  # checks that the wheel runs on every system of its platform
        "twine",  # checks that an index accepts the metadata
        *DOCS,
    ],
    "mlflow": [
        "mlflow",  # a store that teams look at; mlflow-skinny lacks what a local one needs
    ],
    "bench": [
        "matplotlib",  # draws the figures
        "torch==2.13.*",  # a peer: EmbeddingBag; and the release that this fbgemm is built for
        "fbgemm-gpu-cpu==1.8.*",  # the fastest peer on CPUs
    ],
}


def target_python() -> str:
    """Returns the interpreter of the environment that the package is built for.

    pip builds with that very interpreter, or (`--use-feature venv-isolation`) in a venv
    that it makes from it and whose pyvenv.cfg says so.
    """
    if not os.path.basename(sys.prefix).startswith("pip-build-env-"):
        return sys.executable
    settings = pathlib.Path(sys.prefix, "pyvenv.cfg").read_text(encoding="utf-8")
    command = re.search(r"^command = (.*) -m venv ", settings, re.MULTILINE)
    return command.group(1) if command else sys.executable


def run_in_environment(*arguments: str, python: str | None = None) -> str:
    """Returns what the interpreter of the environment prints.

    It runs without the variables by which pip hides the environment from a build.
    """
    hiding = ("PYTHONPATH", "PYTHONNOUSERSITE")
    environment = {name: value for name, value in os.environ.items() if name not in hiding}
    return subprocess.run([python or target_python(), "-P", *arguments], env=environment,
                          check=True, capture_output=True, text=True).stdout


def is_built_for_this_environment() -> bool:
    """Whether the wheel is for the environment found: pip's is, for `pip install` makes it."""
    return "PIP_BUILD_TRACKER" in os.environ and LIBRARIES not in os.environ


def found_versions(python: str) -> dict[str, str]:
    """Returns name -> version of what is installed where `python` lives."""
    lines = run_in_environment("-c", LIST_DISTRIBUTIONS, python=python).splitlines()
    pairs = [line.rsplit(" ", 1) for line in reversed(lines)]  # the first one found counts
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def tensorflow_requirements(found: dict[str, str]) -> list[str]:
    """Returns what to require of TensorFlow, Keras and Estimator, given what is installed."""
    name = next((name for name in TENSORFLOW_DISTRIBUTIONS if name in found), None)
    if name is None:
        return [f"tensorflow{TENSORFLOW_RANGE}", f"tf-keras{TENSORFLOW_RANGE}", ESTIMATOR,
                *(bound.requirement for bound in LIBRARY_BOUNDS)]
    major, minor = (int(number) for number in found[name].split(".")[:2])
    if (major, minor) < OLDEST_MINOR:
        sys.exit(f"`{name}` must be 2.15 or later, got {found[name]!r}. Run "
                 f"`pip install --upgrade {name}` first, or install into a fresh environment.")
    requirements = [f"{name}=={found[name]}"]
    if name == "tensorflow":  # tf-keras would put `tensorflow` on top of any other
        requirements.append(f"tf-keras~={major}.{minor}.0")
    # The last one brings the estimator itself. Either estimator installs the same files, so the
    # stable one stays where it is.
    if (major, minor) > LAST_WITH_ESTIMATOR:
        is_stable = "tensorflow-estimator" in found and "tf-estimator-nightly" not in found
        requirements.append(STABLE_ESTIMATOR if is_stable else ESTIMATOR)
    return requirements + [bound.requirement for bound in LIBRARY_BOUNDS
                           if bound.tensorflow == (major, minor)]


class FreshBuild(build):
    """Builds in a separate directory: nothing left in `build/` can reach a wheel."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.directory = tempfile.TemporaryDirectory()  # goes when the build ends
        self.build_base = self.directory.name

    def run(self) -> None:
        super().run()
        directory = pathlib.Path(self.build_lib, KERNELS, "lib")
        if LIBRARIES in os.environ:
            copy_kernels(pathlib.Path(os.environ[LIBRARIES]), directory)
        else:
            compile_kernels(directory)


def copy_kernels(source: pathlib.Path, directory: pathlib.Path) -> None:
    """Copies compiled libraries into the wheel.

    Raises:
        SystemExit: if there are none.
    """
    libraries = sorted(source.glob("*.so"))
    if not libraries:
        sys.exit(f"`{LIBRARIES}` must be a directory of compiled libraries, got {str(source)!r}. "
                 "Unset it to compile the kernels for this environment.")
    directory.mkdir(parents=True, exist_ok=True)
    for library in libraries:
        shutil.copyfile(library, directory / library.name)
        (directory / library.name).chmod(0o755)


def compile_kernels(directory: pathlib.Path) -> None:
    """Compiles the kernels for the TensorFlow of the environment, where there is one.

    Raises:
        SystemExit: if TPU_ESTIMATOR_EMBEDDING_KERNELS=native asks for what cannot be done.
    """
    choice = os.environ.get("TPU_ESTIMATOR_EMBEDDING_KERNELS", "")
    if choice in ("tf", "off"):
        return
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from tpu_estimator_embedding.kernels import build, compiler, tensorflow_build
    fields = json.loads(run_in_environment(str(KERNELS / "tensorflow_build.py")))
    try:
        if fields is None:
            raise compiler.CompilationError("there is no TensorFlow in the environment yet")
        tensorflow = tensorflow_build.TensorFlowBuild(
            fields["version"], fields["directory"], tuple(fields["flags"]), fields["is_release"])
        print(f"compiling the native kernels for TensorFlow {tensorflow.version}", flush=True)
        build.build(tensorflow, directory)
    except compiler.CompilationError as error:
        if choice == "native":
            sys.exit(f"The native kernels could not be compiled: {error}")
        print(f"not compiling the native kernels now: {error}", flush=True)


def wheel_command() -> type:
    """Returns the command that makes a wheel, which old setuptools do not have."""
    from setuptools.command.bdist_wheel import bdist_wheel

    class Wheel(bdist_wheel):
        """Makes a wheel for this platform if it holds a compiled library."""

        def get_tag(self) -> tuple[str, str, str]:
            built = pathlib.Path(self.get_finalized_command("build").build_lib)
            if not any((built / KERNELS / "lib").glob("*.so")):
                return super().get_tag()
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            platform = os.environ.get(PLATFORM, here)
            return "py3", "none", platform  # it is loaded by TensorFlow, not by Python

    return Wheel


def version() -> str:
    """Returns the version as the package itself states it."""
    text = pathlib.Path("tpu_estimator_embedding/__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE).group(1)


def main() -> None:
    """Hands the metadata to setuptools."""
    setup(
        name="tpu_estimator_embedding",
        version=version(),
        description="TPUEstimator programs with embedding tables, without a TPU and on "
                    "today's TensorFlow",
        long_description=pathlib.Path("README.rst").read_text(encoding="utf-8"),
        long_description_content_type="text/x-rst",
        author="The tpu_estimator_embedding authors",
        # No URLs: the project has no address yet. The documentation is part of
        # the source distribution: README.rst, CHANGELOG.rst, CONTRIBUTING.rst and docs/.
        license="Apache-2.0",
        license_files=["LICENSE"],
        python_requires=">=3.11",
        packages=find_packages(include=["tpu_estimator_embedding", "tpu_estimator_embedding.*"]),
        package_data={"tpu_estimator_embedding": ["py.typed"],
                      "tpu_estimator_embedding.compat.contrib": ["*.toml"],
                      "tpu_estimator_embedding.kernels": ["src/*.cc", "src/*.h"],
                      "tpu_estimator_embedding.experiments": ["explorer.js"],
                      # What `migrate` writes beside programs is no module of this package.
                      "tpu_estimator_embedding.migration": ["*.toml", "emitted/*.py"]},
        include_package_data=False,
        zip_safe=False,
        entry_points={"console_scripts": [
            "tpu-estimator-embedding = tpu_estimator_embedding.cli:main"]},
        install_requires=[
            *tensorflow_requirements(
                found_versions(target_python()) if is_built_for_this_environment() else {}),
            # Checksums of checkpoints, in native code: they are over every byte of a table. Google
            # maintains it for its Cloud Storage client, with wheels for every Python.
            "google-crc32c",
            "numpy",  # arrays of ids; the version is TensorFlow's choice
            # What the checkpoint tools read and write without TensorFlow, which requires both:
            "ml-dtypes",  # bfloat16 for NumPy
            "protobuf>=4.22",  # the entries of a checkpoint's index
            "tqdm",  # progress lines
            # tf.summary.scalar and its kind, TensorFlow's own until 2.20; and the messages of
            # object graphs in checkpoints, without TensorFlow.
            "tensorboard",
        ],
        extras_require=EXTRAS,
        cmdclass={"build": FreshBuild, "bdist_wheel": wheel_command()},
        classifiers=[
            "Programming Language :: Python :: 3.11",
            "Programming Language :: Python :: 3.12",
            "Programming Language :: Python :: 3.13",
            "Typing :: Typed",
        ])


if __name__ == "__main__":
    main()
