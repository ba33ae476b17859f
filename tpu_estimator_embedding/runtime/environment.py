# SPDX-License-Identifier: Apache-2.0
"""The requirements of this package, what is installed, and how to fix problems."""

import dataclasses
import platform
from collections import Counter

from tpu_estimator_embedding.compat import versions

_TENSORFLOW_COMMAND = f"pip install 'tensorflow{versions.TENSORFLOW_RANGE}'"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: what was checked.
        found: what is installed.
        advice: the problem and its fix; empty if there is no problem.
        is_needed: whether the package cannot work without it, so that `install` raises an error.
    """

    subject: str
    found: str
    advice: str = ""
    is_needed: bool = True


def requirements() -> list[Finding]:
    """Checks all requirements of `install` without changing anything.

    >>> [finding.subject for finding in requirements()]
    ['Python', 'TensorFlow', 'Keras', 'Estimator']
    """
    findings = [Finding("Python", platform.python_version()), _tensorflow()]
    if not findings[-1].advice or not findings[-1].is_needed:
        findings += [_keras(), _estimator(), *_libraries()]
    return findings


def resources() -> list[Finding]:
    """Reports which kernels the engine uses."""
    import tensorflow as tf
    devices = Counter(device.device_type for device in tf.config.list_physical_devices())
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(devices.items()))
    return [_kernels(), _huge_pages(), Finding("Devices", counts)]


def _kernels() -> Finding:
    from tpu_estimator_embedding.kernels import load
    try:
        kernels = load.kernels()
    except (ValueError, RuntimeError) as error:  # a wrong environment variable
        return Finding("Kernels", "none", str(error))
    why = f" ({kernels.reason}; `{load.COMMAND}` compiles faster ones)" if kernels.reason else ""
    return Finding("Kernels", kernels.description + why)


def _huge_pages() -> Finding:
    from tpu_estimator_embedding.kernels import settings
    try:
        return Finding("Huge pages", settings.huge_pages())
    except ValueError as error:
        return Finding("Huge pages", "none", str(error))


def _tensorflow() -> Finding:
    if not versions.has_module("tensorflow"):
        return Finding("TensorFlow", "none", f"It is not installed: {_TENSORFLOW_COMMAND}")
    version = versions.tensorflow_version()
    oldest, newest = versions.OLDEST_TENSORFLOW, versions.NEWEST_TENSORFLOW
    advice, is_needed = "", True
    if versions.tensorflow_minor() < oldest:
        advice = (f"TensorFlow {version} is older than {_dotted(oldest)}: "
                  f"{_TENSORFLOW_COMMAND}")
    elif versions.tensorflow_minor() > newest:
        advice = (f"TensorFlow {version} is newer than {_dotted(newest)}, the newest tested "
                  f"version. If something fails: {_TENSORFLOW_COMMAND}")
        is_needed = False
    return Finding("TensorFlow", version, advice, is_needed)


def _keras() -> Finding:
    from tpu_estimator_embedding.compat import legacy_keras
    return Finding("Keras", legacy_keras.found(), legacy_keras.problem())


def _estimator() -> Finding:
    plain = versions.installed_version("tensorflow-estimator")
    nightly = versions.installed_version(versions.ESTIMATOR_DISTRIBUTION)
    names = [f"{name} {version}" for name, version in (
        (versions.ESTIMATOR_DISTRIBUTION, nightly), ("tensorflow-estimator", plain)) if version]
    return Finding("Estimator", " and ".join(names) or "none", _estimator_advice(plain, nightly))


def _estimator_advice(plain: str | None, nightly: str | None) -> str:
    minor = versions.tensorflow_minor()
    if versions.has_module("tensorflow_estimator"):
        if nightly or not plain or minor <= versions.LAST_WITH_ESTIMATOR:
            return ""
        return (f"tensorflow-estimator {plain} does not work with TensorFlow {_dotted(minor)}: "
                f"pip uninstall -y tensorflow-estimator && "
                f"pip install {versions.ESTIMATOR_REQUIREMENT}")
    requirement = (versions.ESTIMATOR_REQUIREMENT if minor > versions.LAST_WITH_ESTIMATOR
                   else f"'tensorflow-estimator~={_dotted(minor)}.0'")
    return f"tensorflow_estimator is not installed: pip install {requirement}"


def _libraries() -> list[Finding]:
    return [Finding(bound.distribution, bound.installed, bound.advice)
            for bound in versions.LIBRARY_BOUNDS if bound.is_broken]


def _dotted(minor: tuple[int, int]) -> str:
    return ".".join(map(str, minor))
