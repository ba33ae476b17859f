# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow that the ops are compiled against: its paths and flags.

Imports only the standard library, not TensorFlow, so that pip can run this file in the interpreter
that it installs for::

    python tensorflow_build.py     # prints the fields as JSON, or null
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import sys
from types import ModuleType

# The flags in tf.sysconfig of every wheel from 2.15 to 2.21. Code that has imported TensorFlow
# reads them there, and treats a library that was compiled with other flags as stale.
_FLAGS = ("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64")


@dataclasses.dataclass(frozen=True)
class TensorFlowBuild:
    """One installed TensorFlow.

    Attributes:
        version: of the installed distribution, "2.21.0".
        directory: the directory of the module, which holds headers and libraries.
        flags: what code that includes its headers is compiled with, without `-I`.
        is_release: whether it is a release of TensorFlow as its project built it: all releases of
            one minor version load the same libraries.
    """

    version: str
    directory: str
    flags: tuple[str, ...] = _FLAGS
    is_release: bool = False

    @property
    def abi(self) -> str:
        """The version that a library belongs to: of a release "2.21", of other builds all of it.

        >>> TensorFlowBuild("2.18.1", "/tensorflow", is_release=True).abi
        '2.18'
        """
        if self.is_release and self.flags == _FLAGS:
            return ".".join(self.version.split(".")[:2])
        return self.version

    @property
    def include(self) -> str:
        """The directory of the headers."""
        return str(pathlib.Path(self.directory, "include"))

    @property
    def framework_library(self) -> pathlib.Path:
        """The shared object that ops are linked to."""
        return pathlib.Path(self.directory, "libtensorflow_framework.so.2")

    @property
    def has_headers(self) -> bool:
        """Whether ops can be compiled against it."""
        return (pathlib.Path(self.include, "tensorflow/core/framework/op_kernel.h").exists()
                and self.framework_library.exists())

    @property
    def identity(self) -> str:
        """Identifies what a library belongs to, even among builds of one version."""
        if self.abi != self.version:
            return f"{self.abi} {' '.join(self.flags)}"
        size = self.framework_library.stat().st_size
        return f"{self.version} {size} {' '.join(self.flags)}"


def find() -> TensorFlowBuild | None:
    """Returns the TensorFlow that `import tensorflow` would import here, or None.

    >>> find().has_headers
    True
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = pathlib.Path(list(spec.submodule_search_locations)[0])
    distribution = _distribution_in(directory.parent)
    if distribution is None:
        return None
    return TensorFlowBuild(distribution.version, str(directory),
                           is_release=_is_release(distribution))


def of_imported(tensorflow: ModuleType) -> TensorFlowBuild | None:
    """Returns the same of a TensorFlow that is imported, with the flags that it states."""
    found = find()
    if found is None:
        return None
    flags = tuple(flag for flag in tensorflow.sysconfig.get_compile_flags()
                  if not flag.startswith("-I"))
    return dataclasses.replace(found, flags=flags)


def _distribution_in(directory: pathlib.Path) -> importlib.metadata.Distribution | None:
    """Returns the distribution of TensorFlow that is installed there."""
    for distribution in importlib.metadata.distributions(path=[str(directory)]):
        name = _normalized(distribution)
        files = ("tensorflow", "tf-nightly", "intel-tensorflow")
        if name in files or name.startswith(("tensorflow-cpu", "tensorflow-gpu", "tf-nightly-",
                                             "tensorflow-rocm", "tensorflow-intel")):
            return distribution
    return None


def _is_release(distribution: importlib.metadata.Distribution) -> bool:
    """Whether it is a wheel of the project: builds of others are for no `manylinux` platform."""
    wheel = distribution.read_text("WHEEL") or ""
    return (_normalized(distribution) in ("tensorflow", "tensorflow-cpu")
            and re.fullmatch(r"\d+\.\d+\.\d+(\.post\d+)?", distribution.version) is not None
            and re.search(r"^Tag: .*-manylinux", wheel, re.MULTILINE) is not None)


def _normalized(distribution: importlib.metadata.Distribution) -> str:
    return (distribution.name or "").lower().replace("_", "-")


if __name__ == "__main__":
    build = find()
    json.dump(build and dataclasses.asdict(build), sys.stdout)
