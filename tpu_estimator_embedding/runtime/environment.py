# SPDX-License-Identifier: Apache-2.0
"""The requirements of this package, what is installed, and how to fix problems."""

import dataclasses
import platform
from collections import Counter

from tpu_estimator_embedding import settings, versions

_TENSORFLOW_COMMAND = f"pip install 'tensorflow{versions.TENSORFLOW_RANGE}'"
_ONEDNN = settings.TF_ENABLE_ONEDNN_OPTS.variable
_ONEDNN_ALLOCATOR = settings.TF_ONEDNN_USE_SYSTEM_ALLOCATOR.variable


@dataclasses.dataclass(frozen=True)
class Diagnosis:
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


def requirements() -> list[Diagnosis]:
    """Checks all requirements of `install` without changing anything.

    >>> [finding.subject for finding in requirements()]
    ['Python', 'TensorFlow', 'Keras', 'Estimator']
    """
    findings = [Diagnosis("Python", platform.python_version()), _tensorflow()]
    if not findings[-1].advice or not findings[-1].is_needed:
        findings += [_keras(), _estimator(), *_libraries()]
    return findings


def resources() -> list[Diagnosis]:
    """Reports what decides the speed: kernels, memory, and TensorFlow's matrix products."""
    import tensorflow as tf
    devices = Counter(device.device_type for device in tf.config.list_physical_devices())
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(devices.items()))
    return [_kernels(), _huge_pages(), _arenas(), _onednn(),
            Diagnosis("Devices", counts)]


def _kernels() -> Diagnosis:
    from tpu_estimator_embedding.kernels import load
    try:
        kernels = load.kernels()
    except (ValueError, RuntimeError) as error:  # a wrong environment variable
        return Diagnosis("Kernels", "none", str(error))
    why = f" ({kernels.reason}; `{load.COMMAND}` compiles faster ones)" if kernels.reason else ""
    source = f", {kernels.source}" if kernels.source else ""
    return Diagnosis("Kernels", kernels.description + source + why)


def _huge_pages() -> Diagnosis:
    try:
        is_off = settings.HUGE_PAGES.read() == "off"
        return Diagnosis("Huge pages",
                         f"off, by {settings.HUGE_PAGES.variable}" if is_off else "on")
    except ValueError as error:
        return Diagnosis("Huge pages", "none", str(error))


def _arenas() -> Diagnosis:
    from tpu_estimator_embedding.kernels import arenas
    return Diagnosis("Memory", f"arenas of glibc, from which threads allocate: {arenas.share()}")


def _onednn() -> Diagnosis:
    """Reports whether oneDNN computes the dense layers.

    TensorFlow leaves it off on processors without instructions for neural networks. It rounds
    differently, so the user decides. With it, TensorFlow's allocator keeps 8 bytes for every 256
    that it reserves for large tensors, and it reserves more than it is asked for.
    """
    from tensorflow.python.util import _pywrap_util_port
    if _pywrap_util_port.IsMklEnabled():
        allocator = settings.TF_ONEDNN_USE_SYSTEM_ALLOCATOR.read() or ""
        uses_system = allocator.lower() in ("1", "true")
        return Diagnosis("oneDNN", "on, with the system's allocator" if uses_system else (
            f"on; {_ONEDNN_ALLOCATOR}=1 saves 4 % or more of the memory of tables, and makes steps "
            "somewhat slower"))
    by_program = f", by {_ONEDNN}" if settings.TF_ENABLE_ONEDNN_OPTS.read() else ""
    return Diagnosis("oneDNN", f"off{by_program}; {_ONEDNN}=1 makes dense layers faster, with "
                               "other rounding")


def _tensorflow() -> Diagnosis:
    if not versions.has_module("tensorflow"):
        return Diagnosis("TensorFlow", "none", f"It is not installed: {_TENSORFLOW_COMMAND}")
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
    return Diagnosis("TensorFlow", version, advice, is_needed)


def _keras() -> Diagnosis:
    from tpu_estimator_embedding.compat import legacy_keras
    return Diagnosis("Keras", legacy_keras.found(), legacy_keras.problem())


def _estimator() -> Diagnosis:
    distributions = (versions.STABLE_ESTIMATOR_DISTRIBUTION, versions.ESTIMATOR_DISTRIBUTION)
    found = [f"{name} {version}" for name in distributions
             if (version := versions.installed_version(name))]
    return Diagnosis("Estimator", " and ".join(found) or "none", _estimator_advice())


def _estimator_advice() -> str:
    nightly = versions.installed_version(versions.ESTIMATOR_DISTRIBUTION)
    release = versions.installed_version(versions.STABLE_ESTIMATOR_DISTRIBUTION)
    is_later = versions.tensorflow_minor() > versions.LAST_WITH_ESTIMATOR
    if not versions.has_module("tensorflow_estimator"):
        wanted = (versions.ESTIMATOR_REQUIREMENT if is_later
                  else versions.STABLE_ESTIMATOR_REQUIREMENT)
        return f"tensorflow_estimator is not installed: pip install {wanted}"
    if is_later and release and not nightly and versions.minor(release) < (2, 15):
        return (f"tensorflow-estimator {release} is older than 2.15: "
                f"pip install {versions.STABLE_ESTIMATOR_REQUIREMENT}")
    return ""


def _libraries() -> list[Diagnosis]:
    return [Diagnosis(bound.distribution, bound.installed, bound.advice)
            for bound in versions.LIBRARY_BOUNDS if bound.is_broken]


def _dotted(minor: tuple[int, int]) -> str:
    return ".".join(map(str, minor))
