# SPDX-License-Identifier: Apache-2.0
"""Makes `tf.keras` Keras 2, because Estimators do not work with Keras 3.

Up to TensorFlow 2.15 it is Keras 2. Since 2.16 `tf.keras` is a lazy loader that selects a Keras
when it is first used: the package tf_keras, which is Keras 2, if TF_USE_LEGACY_KERAS is set,
otherwise Keras 3. Importing TensorFlow does not select one, except for `import tensorflow.keras`,
whose path TensorFlow sets while it is imported.
"""

import importlib
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tpu_estimator_embedding import settings, versions
from tpu_estimator_embedding.patches import patch, patch_table

VARIABLE = settings.TF_USE_LEGACY_KERAS.variable
_TRUE = ("1", "true", "True")  # as TensorFlow reads booleans
_set_here: set[str] = set()  # VARIABLE, if it was not set before

# The names that TensorFlow loads from the selected Keras.
_LOADERS = {"tensorflow": ("keras", "losses", "metrics", "optimizers", "initializers"),
            "tensorflow._api.v2.compat.v1": ("keras", "layers"),
            "tensorflow._api.v2.compat.v2": ("keras", "losses", "metrics", "optimizers",
                                             "initializers"),
            "tensorflow.compat.v1": ("keras", "layers"),
            "tensorflow.compat.v2": ("keras", "losses", "metrics", "optimizers",
                                     "initializers")}


def use() -> None:
    """Makes `tf.keras` the package tf_keras; further calls change nothing.

    Changes nothing on TensorFlow 2.15, whose `tf.keras` is Keras 2.

    Raises:
        RuntimeError: see `problem`; nothing is changed then.
    """
    if sentence := problem():
        raise RuntimeError(sentence)
    if not _is_needed():
        return
    if settings.TF_USE_LEGACY_KERAS.read() is None:
        _set_here.add(VARIABLE)
    os.environ[VARIABLE] = "1"
    import tensorflow as tf  # the first import now selects tf_keras
    if not any("tf_keras" in path.split(os.sep) for path in tf.__path__):
        for row in patch_table.KERAS:
            patch.apply(row)


def import_patches() -> tuple[patch.Patch, ...]:
    """The patches that must be applied while tensorflow_estimator is imported."""
    if not _is_needed():
        return ()
    losses = patch.Patch("tensorflow", "losses", "tf_keras.api._v2.keras.losses",
                         "tensorflow_estimator reads Keras 2 from here", replaces=True)
    return *patch_table.KERAS[:3], losses  # tf.keras and those of tf.compat.v1 and v2


def forget() -> None:
    """Removes the variable if `use` has set it."""
    while _set_here:
        os.environ.pop(_set_here.pop(), None)


class _Seeds(random.Random):
    """Takes the bound 1e9 of Keras 2.15, a float, which Python 3.12 rejects."""

    def randint(self, a: float, b: float) -> int:
        return super().randint(int(a), int(b))


@contextmanager
def seed_initializers(seed: int | None) -> Iterator[None]:
    """Draws the seeds of Keras 2 initializers from `seed`, as their ops did in TensorFlow 1.x.

    An initializer without a seed, such as that of `tf.layers.dense` or of a Keras layer, otherwise
    takes one from Python's `random`, so that every run of a program starts from other values. A
    program that has called `tf.keras.utils.set_random_seed` keeps its seeds.
    """
    state = importlib.import_module(f"{package()}.src.backend")._SEED_GENERATOR
    if seed is None or getattr(state, "generator", None):
        yield
        return
    ours = state.generator = _Seeds(seed)
    try:
        yield
    finally:
        if state.generator is ours:  # not that of set_random_seed, called in the meantime
            state.generator = None


def package() -> str:
    """Returns the package of `tf.keras` where Estimators work; on 2.15, either has Keras 2."""
    return "tf_keras" if _is_needed() or _is_chosen() else "keras"


def problem() -> str:
    """Returns why `tf.keras` cannot be tf_keras and the fix; empty if it can."""
    if (sentence := package_problem()) or not _is_needed():
        return sentence
    if used := keras_3_names():
        return (f"Keras 3 is already in use as {used[0]}, and Estimators need Keras 2. Move "
                f"`tpu_estimator_embedding.install()` above the first line that uses "
                f"{used[0]}; right below `import tpu_estimator_embedding` at the top of the "
                f"program is best.")
    given = settings.TF_USE_LEGACY_KERAS.read()
    if given is not None and given not in _TRUE:
        return (f"`{VARIABLE}` must be 1, got {given!r}: Estimators need "
                f"Keras 2. Unset it, or set it to 1.")
    return ""


def package_problem() -> str:
    """Returns which Keras 2 package is missing or wrong and the fix; empty if none is."""
    major, minor = versions.tensorflow_minor()
    if not _is_needed():
        return _problem_with_own_keras(f"{major}.{minor}")
    tensorflow = f"TensorFlow {versions.tensorflow_version()}"
    command = f"pip install {_no_deps()}'tf-keras~={major}.{minor}.0'"
    version = versions.installed_version("tf-keras", "tf-keras-nightly")
    if version is None:
        return (f"{tensorflow} needs tf-keras for Estimators, and it is not installed: "
                f"{command}")
    if versions.minor(version) != (major, minor):
        return (f"tf-keras {version} does not match {tensorflow}; their minor versions must agree: "
                f"{command}")
    return ""


def _no_deps() -> str:
    """Returns `--no-deps` beside another distribution, over which tf-keras would install."""
    distribution = versions.tensorflow_distribution()
    return "" if distribution in (None, "tensorflow") else "--no-deps "


def found() -> str:
    """Returns which Keras `tf.keras` is, or would be when it is first used."""
    if not _is_needed() and not _is_chosen():
        return f"keras {versions.installed_version('keras', 'keras-nightly')}"
    version = versions.installed_version("tf-keras", "tf-keras-nightly")
    return f"tf-keras {version}" if version else "none"


def _problem_with_own_keras(minor: str) -> str:
    version = versions.installed_version("keras", "keras-nightly") or ""
    if version.startswith("3.") and not _is_chosen():
        return (f"Keras {version} does not match TensorFlow {minor}, and Estimators need Keras 2: "
                f"pip install 'keras~={minor}.0'")
    return ""


def keras_3_names() -> list[str]:
    """Returns the names that TensorFlow has loaded from Keras 3, without loading more."""
    return [f"tf{module.removeprefix('tensorflow').replace('._api.v2', '')}.{name}"
            for module, names in _LOADERS.items() for name in names
            if module in sys.modules and _is_keras_3(_attribute(module, name))]


def _is_needed() -> bool:
    return versions.tensorflow_minor() > versions.LAST_WITH_ESTIMATOR


def _is_chosen() -> bool:
    return settings.TF_USE_LEGACY_KERAS.read() in _TRUE


def _attribute(module: str, name: str) -> object:
    # Reads `vars` of the wrapped module, because reading a wrapper's attribute may load Keras.
    return vars(getattr(sys.modules[module], "_tfmw_wrapped_module", sys.modules[module])).get(name)


def _is_keras_3(loader: object) -> bool:
    # Reads the loader's own fields, because reading any other attribute would select a Keras.
    fields = getattr(loader, "__dict__", {})
    return (fields.get("_tfll_keras_version") == "keras_3"
            or f"{os.sep}_tf_keras{os.sep}" in (fields.get("__file__") or ""))
