# SPDX-License-Identifier: Apache-2.0
"""The supported versions of other libraries, and the installed ones.

Imports the standard library only, because setup.py runs it.
"""

import importlib.metadata
import importlib.util
import sys
from typing import NamedTuple

OLDEST_TENSORFLOW = (2, 15)
NEWEST_TENSORFLOW = (2, 21)  # the newest one tested

# TensorFlow brought tensorflow_estimator, and Keras 2 as its `tf.keras`, up to this version.
LAST_WITH_ESTIMATOR = (2, 15)

# Everything that installs the module `tensorflow`. The first three stand first, because
# they may install one of the others as a dependency of their own.
TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-cpu",
    "tf-nightly-gpu", "tensorflow-cpu-aws", "tensorflow-intel", "tensorflow-macos",
    "tensorflow-rocm", "intel-tensorflow")
ESTIMATOR_DISTRIBUTION = "tf-estimator-nightly"
ESTIMATOR_REQUIREMENT = f"{ESTIMATOR_DISTRIBUTION}==2.16.0.dev2024012409"


def _range(after: tuple[int, int], newest: tuple[int, int]) -> str:
    return f">={after[0]}.{after[1] + 1},<{newest[0]}.{newest[1] + 1}"


# Where there is no TensorFlow yet: one that has no tensorflow-estimator of its own.
TENSORFLOW_RANGE = _range(LAST_WITH_ESTIMATOR, NEWEST_TENSORFLOW)


class LibraryBound(NamedTuple):
    """A library whose later releases break a TensorFlow that allows them.

    Attributes:
        tensorflow: `(major, minor)` of the TensorFlow that breaks.
        distribution: the library.
        first_broken: the first release of it that breaks.
        symptom: what happens with that release.
    """

    tensorflow: tuple[int, int]
    distribution: str
    first_broken: str
    symptom: str

    @property
    def requirement(self) -> str:
        """The requirement for pip.

        >>> LIBRARY_BOUNDS[0].requirement
        'protobuf<7'
        """
        return f"{self.distribution}<{self.first_broken}"

    @property
    def is_broken(self) -> bool:
        """Whether the TensorFlow and the library installed are such a pair."""
        return (self.tensorflow == tensorflow_minor()
                and _release(self.installed) >= _release(self.first_broken))

    @property
    def installed(self) -> str:
        """The version of the library; "0" if it is not installed."""
        return installed_version(self.distribution) or "0"

    @property
    def advice(self) -> str:
        """The problem and its fix."""
        return (f"With {self.distribution} {self.installed} and TensorFlow "
                f"{tensorflow_version()}, {self.symptom}: pip install '{self.requirement}'")


LIBRARY_BOUNDS = (
    LibraryBound((2, 20), "protobuf", "7",
                 "every training of an Estimator ends with \"MessageToString() got an unexpected "
                 "keyword argument 'float_format'\""),
)


def minor(version: str) -> tuple[int, int]:
    """Returns `(major, minor)`.

    >>> minor("2.16.0.dev2024012409")
    (2, 16)
    """
    major, rest = version.split(".", 1)
    return int(major), int(rest.partition(".")[0])


def library_problems() -> list[str]:
    """Says which installed libraries break the installed TensorFlow, and what to do."""
    return [bound.advice for bound in LIBRARY_BOUNDS if bound.is_broken]


def _release(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version up to the first part that is none."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def tensorflow_version() -> str:
    """Returns the version of the TensorFlow that is installed; imports it only if it must.

    Raises:
        ModuleNotFoundError: if there is none.
    """
    if "tensorflow" not in sys.modules:
        found = installed_version(*TENSORFLOW_DISTRIBUTIONS)
        if found is not None:
            return found
    import tensorflow
    return tensorflow.__version__


def tensorflow_distribution() -> str | None:
    """Returns the name of the distribution that has installed TensorFlow, if one has."""
    return next((name for name in TENSORFLOW_DISTRIBUTIONS if installed_version(name)), None)


def tensorflow_minor() -> tuple[int, int]:
    """Returns `(major, minor)` of the TensorFlow that is installed."""
    return minor(tensorflow_version())


def has_module(name: str) -> bool:
    """Whether `import name` would find something; imports nothing."""
    return importlib.util.find_spec(name) is not None


def installed_version(*distributions: str) -> str | None:
    """Returns the version of the first of these distributions that is installed."""
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
