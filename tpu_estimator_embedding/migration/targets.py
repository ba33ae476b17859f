# SPDX-License-Identifier: Apache-2.0
"""The replacements of qualified names of the legacy API at stage 1."""

import dataclasses
import functools
import re

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.compat.contrib import contents, reasons
from tpu_estimator_embedding.migration.legacy_names import NAMES, TOP_LEVEL, V2_DIFFERS
from tpu_estimator_embedding.patches.patch_table import GRADIENT_FUNCTIONS

PACKAGE = "tpu_estimator_embedding"

# Spellings of TensorFlow and of tensorflow_estimator, the longest first; whether V1 names.
_ROOTS = tuple(sorted({
    "tensorflow._api.v2.compat.v1": True, "tensorflow.compat.v1": True,
    "tensorflow._api.v1": True, "tensorflow_core": True, "tensorflow_core.compat.v1": True,
    "tensorflow._api.v2.compat.v2": False, "tensorflow._api.v2": False,
    "tensorflow.compat.v2": False, "tensorflow": False,
    "tensorflow_estimator": True, "tensorflow_estimator._api.v1": True,
    "tensorflow_estimator.python.estimator.api._v1": True,
    "tensorflow_estimator.python.estimator.api._v2": False,
}.items(), key=lambda item: -len(item[0])))

# Private modules that tf_tpu has under their own names.
_TPU_MODULES = (
    "async_checkpoint", "bfloat16", "error_handling", "feature_column", "feature_column_v2",
    "functional", "session_support", "topology", "tpu", "tpu_config", "tpu_context",
    "tpu_embedding", "tpu_embedding_gradient", "tpu_estimator", "tpu_feed", "tpu_function",
    "tpu_optimizer", "tpu_sharding", "tpu_system_metadata", "training_loop", "util")
_TPU_FOLDERS = ("python.tpu", "contrib.tpu.python.tpu", "python.estimator.tpu")

# Modules of tensorflow_estimator whose public names `tf.estimator` shows.
_ESTIMATOR_MODULES = {
    **dict.fromkeys(("", "estimator", "estimator_lib", "exporter", "model_fn", "run_config",
                     "training", "canned.head"), "tf_estimator"),
    **dict.fromkeys(("export", "export.export", "export.export_lib", "export.export_output"),
                    "tf_estimator.export"),
    **dict.fromkeys(("inputs", "inputs.inputs", "inputs.numpy_io", "inputs.pandas_io"),
                    "tf_estimator.inputs"),
}

# Namespace -> its home in this package.
_NAMESPACES = {
    **{path: f"tf_{path}" for path in (
        "estimator", "estimator.tpu", "estimator.tpu.experimental", "estimator.experimental",
        "estimator.export", "estimator.inputs", "tpu", "tpu.experimental")},
    "tpu.experimental.embedding": "mid_level",
    "contrib.tpu": "tf_tpu",
    "python.tpu": "tf_tpu",
    "contrib.tpu.python.tpu": "tf_tpu",
    "python.tpu.ops.tpu_ops": "tf_tpu.tpu_ops",
    "contrib.tpu.python.ops.tpu_ops": "tf_tpu.tpu_ops",
    **{f"{folder}.{module}": f"tf_tpu.{module}"
       for folder in _TPU_FOLDERS for module in _TPU_MODULES},
    **{f"python.estimator.{module}".rstrip("."): home
       for module, home in _ESTIMATOR_MODULES.items()},
}

# Single names in a namespace that stays TensorFlow's.
SINGLE_NAMES = {
    **{name: row.imports for name, row in NAMES.items()
       if name.startswith(("distribute.", "config."))},
    **{f"{module}.TPUClusterResolver": "TPUClusterResolver" for module in (
        "contrib.cluster_resolver", "python.distribute.cluster_resolver.tpu_cluster_resolver",
        "contrib.cluster_resolver.python.training.tpu_cluster_resolver")},
    "python.tpu.device_assignment": "",  # whose name in tf_tpu is that of its function
    "python.tpu.device_assignment.device_assignment": "tf_tpu.device_assignment",
    "python.tpu.device_assignment.DeviceAssignment": "tf_tpu.experimental.DeviceAssignment",
}

# Namespaces in which every name is known: whole modules under a new name.
_WHOLE = re.compile(r"tf_tpu\.(?!experimental$)\w+")

_ONLY_IN_CONTRIB_TPU = frozenset((
    "AsyncCheckpointSaverHook", "device_assignment", "repeat", "while_loop", "TPUContext"))


@dataclasses.dataclass(frozen=True)
class Target:
    """The replacement of a legacy name.

    Attributes:
        parts: the number of parts of the dotted name that it replaces.
        home: dotted, relative to this package, or in full for a name that TensorFlow has
            elsewhere today or that this package does not export; empty if there is none.
        is_namespace: whether it is a module.
        advice: what to do, if there is no replacement.
    """

    parts: int
    home: str
    is_namespace: bool = False
    advice: str = ""


def in_full(home: str) -> str:
    """Returns a home with the package that it is in.

    >>> in_full("tf_estimator.ModeKeys")
    'tpu_estimator_embedding.tf_estimator.ModeKeys'
    """
    return home if home.split(".")[0] in ("tensorflow", PACKAGE) else f"{PACKAGE}.{home}"


def is_attribute(home: str) -> bool:
    """Whether a home is below `tf_tpu` or `tf_estimator`, where no import statement reaches it.

    >>> is_attribute("tf_tpu.tpu_embedding"), is_attribute("tf_tpu")
    (True, False)
    """
    return home.startswith(("tf_tpu.", "tf_estimator."))


@functools.cache
def target_of(path: str, is_tf1: bool) -> Target | None:
    """Returns the replacement of a qualified name; None if it is not of the legacy API.

    >>> target_of("tensorflow.compat.v1.estimator.tpu.TPUEstimator", False).home
    'TPUEstimator'
    >>> target_of("tensorflow.estimator.ModeKeys.TRAIN", False)
    Target(parts=3, home='tf_estimator.ModeKeys', is_namespace=False, advice='')
    >>> target_of("tensorflow.estimator.DNNClassifier", False).home
    'tf_estimator.v2.DNNClassifier'
    """
    root, is_v1 = next(((root, is_v1) for root, is_v1 in _ROOTS
                        if path == root or path.startswith(f"{root}.")), ("", False))
    if not root:
        return None
    parts = path[len(root) + 1:].split(".") if path != root else []
    if root == "tensorflow_estimator" and parts[:1] not in (["estimator"], ["python"]):
        return None
    found = _below_root(tuple(parts), is_v1 or is_tf1)
    return found and dataclasses.replace(found, parts=found.parts + root.count(".") + 1)


def _below_root(parts: tuple[str, ...], is_v1: bool) -> Target | None:
    for count in range(len(parts), 0, -1):
        path = ".".join(parts[:count])
        if path in SINGLE_NAMES:
            return Target(count, SINGLE_NAMES[path], advice=f"Import the names of `{path}`.")
        if path in _NAMESPACES:
            home = _NAMESPACES[path]
            is_v1 = is_v1 or path.startswith("python.")  # its modules have both classes
            if count == len(parts):
                return Target(count, _dialect(home, is_v1), is_namespace=True)
            return _leaf(path, home, parts, count, is_v1)
    if parts == ("contrib",):
        return Target(1, "", is_namespace=True, advice="import its names from their current "
                      "modules; TensorFlow no longer has contrib.")
    if parts[:1] == ("contrib",):
        return _in_contrib(parts)
    return None


def _leaf(path: str, home: str, parts: tuple[str, ...], count: int, is_v1: bool) -> Target:
    name = parts[count]
    whole = Target(count + 1, f"{home}.{name}")
    if home != "mid_level" and name in TOP_LEVEL and (
            name != "RunConfig" or home not in ("tf_estimator", "tf_estimator.v2")):
        return dataclasses.replace(whole, home=name)
    if _WHOLE.fullmatch(home):
        return whole
    if home == "tf_estimator" and not is_v1 and name in V2_DIFFERS:
        return dataclasses.replace(whole, home=f"tf_estimator.v2.{name}")
    if is_known(home, name):
        return whole
    below_contrib = f"{path.removeprefix('contrib.')}.{name}"
    return dataclasses.replace(whole, home="", advice=reasons.INSTEAD.get(
        below_contrib, f"`{home}` has no `{name}`."))


def is_known(home: str, name: str) -> bool:
    """Whether one of this package's namespaces has a name."""
    if home == "mid_level":
        return name in mid_level.__all__
    legacy = home.replace("tf_", "").replace("estimator.v2", "estimator")
    return bool(_WHOLE.fullmatch(home)) or f"{legacy}.{name}" in NAMES or (
        f"{home}.{name}" in _NAMESPACES.values()) or name in TOP_LEVEL or (
        home == "tf_tpu" and (f"tpu.experimental.{name}" in NAMES
                              or name in _ONLY_IN_CONTRIB_TPU))


def names_in(home: str) -> frozenset[str]:
    """Returns the known names of a namespace, for what a star import may define."""
    legacy = {"tf_tpu.tpu_embedding": "tpu_embedding"}.get(home, home.replace("tf_", ""))
    below = {name.removeprefix(f"{legacy}.") for name in NAMES if name.startswith(f"{legacy}.")}
    if home == "tf_tpu":
        below |= _ONLY_IN_CONTRIB_TPU | names_in("tf_estimator.tpu") | names_in(
            "tf_tpu.experimental")
    if home == "tf_tpu.tpu_embedding_gradient":
        below |= {*GRADIENT_FUNCTIONS}
    if home == "tf_tpu.tpu_embedding":
        below |= {name for name in TOP_LEVEL if name.endswith("Parameters")}
    return frozenset(name for name in below if "." not in name)


def _dialect(home: str, is_v1: bool) -> str:
    return "tf_estimator.v2" if home == "tf_estimator" and not is_v1 else home


def _in_contrib(parts: tuple[str, ...]) -> Target:
    below = parts[1:]
    for count in range(len(below), 0, -1):
        module = ".".join(below[:count])
        found = contents.CONTENTS.get(module)
        if found is None:
            continue
        home = next((home for home in found.homes if home.startswith("tensorflow.")), "")
        if count == len(below):
            return Target(count + 1, "" if found.names else _today(home), is_namespace=True,
                          advice=_instead(module))
        name = below[count]
        if f"{module}.{name}" in reasons.INSTEAD:
            home = ""
        own = found.names.get(name) or found.otherwise.get(name, "")
        home = own.replace(":", ".") or (home and f"{home}.{name}")
        return Target(count + 2, _today(home), advice=_instead(module, name))
    return Target(min(len(parts), 3), "", is_namespace=len(parts) == 2, advice=_instead(*below[:2]))


def _today(home: str) -> str:
    """Returns this package's home for a name that TensorFlow no longer has."""
    target = target_of(home, True) if home else None
    return target.home if target and target.home else home


def _instead(module: str, name: str = "") -> str:
    path = f"{module}.{name}"
    root = module.partition(".")[0]
    if path not in reasons.WITHOUT_CONTRIB and path not in reasons.INSTEAD and (
            name in contents.IN_SLIM.get(root, ()) or name and root == "slim"):
        others = "" if root == "framework" else (
            " Functions of tf.layers have other defaults, and other names of variables.")
        return ("tf-slim has it: `pip install tf-slim`, call `tpu_estimator_embedding.install()` "
                f"above the other imports, and write `tf_slim.{name}`.{others}")
    return (reasons.INSTEAD.get(path) or reasons.WITHOUT_CONTRIB.get(path)
            or reasons.INSTEAD.get(module.split(".")[0])
            or "TensorFlow no longer has anything of that name.")
