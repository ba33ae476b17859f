# SPDX-License-Identifier: Apache-2.0
"""Makes `import tensorflow` provide the names and the behaviour of TensorFlow 1.x.

The result is that of `import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()`, for programs
that were written before `compat.v1` existed.
"""

from types import ModuleType
from typing import Any

from tpu_estimator_embedding.compat import patch
from tpu_estimator_embedding.compat.module_view import ModuleView
from tpu_estimator_embedding.compat.patch import Patch

_REASON = "--tf1: the names of TensorFlow 1.x"

TABLE = (
    Patch("", "tensorflow", f"{__name__}:tensorflow", _REASON, is_module=True, replaces=True),
    *(Patch("", f"tensorflow.{name}", f"tensorflow.compat.v1:{name}", _REASON, is_module=True,
            replaces=True)
      for name in ("estimator", "keras")))


def use() -> None:
    """Makes `tensorflow` the `compat.v1` API, without V2 behaviour; call it after `install`.

    TensorFlow's own modules, and libraries that were imported before, are not affected.
    """
    import tensorflow.compat.v1 as v1
    from tensorflow.python.util import deprecation
    with deprecation.silence():  # the program did not make the call below
        v1.disable_v2_behavior()
    for row in TABLE:
        patch.apply(row)


def __getattr__(name: str) -> Any:
    """Returns the view named `tensorflow`, created on first use."""
    if name != "tensorflow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _view()
    return globals()[name]


def _view() -> ModuleType:
    import tensorflow as original
    import tensorflow.compat.v1 as v1
    # `compat` stays, for `import tensorflow.compat.v2`; the path of the original lets Python find
    # private modules.
    view = ModuleView("tensorflow", lambda: v1, {"compat": original.compat})
    vars(view).update({name: getattr(original, name) for name in (
        "__file__", "__loader__", "__package__", "__path__", "__spec__", "__version__")})
    return view
