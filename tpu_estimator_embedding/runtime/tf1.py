# SPDX-License-Identifier: Apache-2.0
"""Makes `import tensorflow` provide the names and the behaviour of TensorFlow 1.x.

The result is that of `import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()`, for programs
that were written before `compat.v1` existed. It applies to `tensorflow` and to its submodules, in
every form of import.
"""

import importlib.util
import operator
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.patches.module_view import ModuleView
from tpu_estimator_embedding.patches.patch import Patch

_REASON = "--tf1: the names of TensorFlow 1.x"
_V1 = "tensorflow.compat.v1"
_AUTOGRAPH = "tensorflow.python.autograph."

# Packages that are written for the `tensorflow` that is installed. Some of their modules, and
# imports inside of their functions, are only executed when the program runs.
_UNAFFECTED = frozenset({
    "tensorflow", "tf_keras", "keras", "tensorflow_estimator", "tpu_estimator_embedding"})


def table() -> tuple[Patch, ...]:
    """Returns the rows of the table of patches, without importing TensorFlow."""
    paths = ("estimator", "keras", *_submodules())
    return (_row("tensorflow", f"{__name__}:tensorflow"),
            *(_row(f"{root}.{path}", f"{__name__}:{root}.{path}")
              for root in ("tensorflow", _V1) for path in paths))


def use() -> None:
    """Makes `tensorflow` the `compat.v1` API, without V2 behaviour; call it after `install`.

    It also applies to libraries that were imported before, when they import a name later. It does
    not apply to TensorFlow, Keras, tensorflow_estimator and this package.
    """
    import tensorflow.compat.v1 as v1
    from tensorflow.python.util import deprecation
    with deprecation.silence():  # the program did not make the call below
        v1.disable_v2_behavior()
    for row in table():
        patch.apply(row)


class _TensorFlow1(ModuleView):
    """`compat.v1` for the program, and the installed TensorFlow for the packages that need it.

    Args:
        original: the module `tensorflow`.
        v1: the module `tensorflow.compat.v1`.
    """

    def __init__(self, original: ModuleType, v1: ModuleType) -> None:
        # `compat` stays, for `import tensorflow.compat.v2`; the path of the original lets Python
        # find private modules.
        super().__init__("tensorflow", lambda: v1, {
            "_original": original, **{name: getattr(original, name) for name in (
                "compat", "__file__", "__loader__", "__package__", "__path__", "__spec__",
                "__version__")}})

    def __getattr__(self, name: str) -> Any:
        if _is_unaffected(sys._getframe().f_back):
            return getattr(self._original, name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets `tensorflow.tools` after `import tensorflow.tools`.
        is_import = value is sys.modules.get(f"tensorflow.{name}", self)
        if is_import or _is_unaffected(sys._getframe().f_back):
            setattr(self._original, name, value)
        else:
            super().__setattr__(name, value)


def _is_unaffected(frame: FrameType | None) -> bool:
    """Whether the code of a frame belongs to a package that needs the installed TensorFlow."""
    while frame and str(frame.f_globals.get("__name__")).startswith(_AUTOGRAPH):
        frame = frame.f_back  # it calls `getattr` for a function that it has converted
    module = str(frame.f_globals.get("__name__")) if frame else ""
    return module.partition(".")[0] in _UNAFFECTED


def __getattr__(name: str) -> Any:
    """Returns the module to be imported as `name`, created on first use."""
    if name.partition(".")[0] != "tensorflow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import tensorflow
    import tensorflow.compat.v1 as v1
    if name == "tensorflow":
        globals()[name] = _TensorFlow1(tensorflow, v1)
        return globals()[name]
    module = operator.attrgetter(name.removeprefix(f"{_V1}.").removeprefix("tensorflow."))(v1)
    folder = _folder().joinpath(*name.split(".")[1:])
    if not (folder / "__init__.py").exists():
        return module
    # A package of the implementation has this name too; its modules must remain importable.
    return ModuleView(name, lambda: module, {"__path__": [str(folder)]})


def _row(name: str, source: str) -> Patch:
    return Patch("", name, source, _REASON, is_module=True, replaces=True)


def _submodules() -> list[str]:
    """Returns the paths of the modules below `tensorflow.compat.v1`, parents first."""
    root = _folder() / "_api" / "v2" / "compat" / "v1"
    paths = (file.parent.relative_to(root).parts for file in root.glob("*/**/__init__.py"))
    return sorted(".".join(path) for path in paths if path[0] not in ("__internal__", "compat"))


def _folder() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    return Path(spec.origin).parent if spec and spec.origin else Path()
