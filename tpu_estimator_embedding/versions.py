# SPDX-License-Identifier: Apache-2.0
"""The supported versions of other libraries, and the installed ones.

Imports the standard library only, because setup.py runs it.
"""

import importlib.metadata
import importlib.util
import sys
from typing import NamedTuple

OLDEST_TENSORFLOW = (2, 15)
NEWEST_TENSORFLOW = (2, 21)  # the newest tested version

# The last TensorFlow that installs tensorflow_estimator, and Keras 2 as `tf.keras`.
LAST_WITH_ESTIMATOR = (2, 15)

# The distributions that install the module `tensorflow`. The first three come first, because
# they may depend on one of the others.
TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-cpu",
    "tf-nightly-gpu", "tensorflow-cpu-aws", "tensorflow-intel", "tensorflow-macos",
    "tensorflow-rocm", "intel-tensorflow")

# The newest state of tensorflow_estimator, whose names other programs import.
ESTIMATOR_DISTRIBUTION = "tf-estimator-nightly"
ESTIMATOR_REQUIREMENT = f"{ESTIMATOR_DISTRIBUTION}==2.16.0.dev2024012409"

# The last release, which TensorFlow 2.15 installs. It works with all later versions too; it
# installs the same module as the nightly.
STABLE_ESTIMATOR_DISTRIBUTION = "tensorflow-estimator"
STABLE_ESTIMATOR_REQUIREMENT = f"{STABLE_ESTIMATOR_DISTRIBUTION}==2.15.0"


# The requirement if TensorFlow is not installed.
TENSORFLOW_RANGE = (f">={OLDEST_TENSORFLOW[0]}.{OLDEST_TENSORFLOW[1]},"
                    f"<{NEWEST_TENSORFLOW[0]}.{NEWEST_TENSORFLOW[1] + 1}")


class LibraryBound(NamedTuple):
    """A library whose later releases break a TensorFlow that allows them.

    Attributes:
        tensorflow: `(major, minor)` of the TensorFlow that breaks.
        distribution: the library.
        first_broken: the first release of the library that breaks it.
        symptom: the effect of that release.
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
        """Whether the installed TensorFlow and library are incompatible."""
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
    """Returns a sentence with the fix for each library that breaks the installed TensorFlow."""
    return [bound.advice for bound in LIBRARY_BOUNDS if bound.is_broken]


def _release(version: str) -> tuple[int, ...]:
    """Returns the leading numeric parts of a version."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def tensorflow_version() -> str:
    """Returns the version of the installed TensorFlow; imports TensorFlow only if necessary.

    Raises:
        ModuleNotFoundError: if TensorFlow is not installed.
    """
    if "tensorflow" not in sys.modules:
        found = installed_version(*TENSORFLOW_DISTRIBUTIONS)
        if found is not None:
            return found
    import tensorflow
    return tensorflow.__version__


def tensorflow_distribution() -> str | None:
    """Returns the distribution that installed TensorFlow, or None."""
    return next((name for name in TENSORFLOW_DISTRIBUTIONS if installed_version(name)), None)


def tensorflow_minor() -> tuple[int, int]:
    """Returns `(major, minor)` of the installed TensorFlow."""
    return minor(tensorflow_version())


def has_module(name: str) -> bool:
    """Whether `import name` would find a module, without importing it."""
    return importlib.util.find_spec(name) is not None


def installed_version(*distributions: str) -> str | None:
    """Returns the version of the first installed one of these distributions, or None."""
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
