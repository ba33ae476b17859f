# SPDX-License-Identifier: Apache-2.0
"""`import tensorflow` with the names and the behaviour of TensorFlow 1.x.

It is what `import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()` gives, for programs
that were written before there was a `compat.v1`.
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
    """Makes `tensorflow` the `compat.v1` names, without V2 behaviour; after `install`.

    TensorFlow's own modules and libraries that are imported already keep the names they have.
    """
    import tensorflow.compat.v1 as v1
    from tensorflow.python.util import deprecation
    with deprecation.silence():  # of the call below, which no program has made
        v1.disable_v2_behavior()
    for row in TABLE:
        patch.apply(row)


def __getattr__(name: str) -> Any:
    """Returns the view under `tensorflow`, made when it is first asked for."""
    if name != "tensorflow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _view()
    return globals()[name]


def _view() -> ModuleType:
    import tensorflow as original
    import tensorflow.compat.v1 as v1
    # `compat` stays, because of `import tensorflow.compat.v2`; with the path of the original,
    # private modules are found.
    view = ModuleView("tensorflow", lambda: v1, {"compat": original.compat})
    vars(view).update({name: getattr(original, name) for name in (
        "__file__", "__loader__", "__package__", "__path__", "__spec__", "__version__")})
    return view
