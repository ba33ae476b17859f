# SPDX-License-Identifier: Apache-2.0
"""Subclasses of BatchNormalization that programs for TPUs wrote, called as they were written.

They average the moments over replicas in a method `_moments(inputs, reduction_axes, keep_dims)`,
which Keras calls since 2.13 with one more argument, a mask that is None unless the layer has one.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tpu_estimator_embedding.types import Tensor

_METHOD, _ARGUMENT = "_moments", "mask"


def _adapt(cls: Any, **options: Any) -> None:
    base: Any = _base(cls)
    super(base, cls).__init_subclass__(**options)
    method = vars(cls).get(_METHOD)
    if inspect.isfunction(method) and not _takes_mask(method):
        setattr(cls, _METHOD, _without_mask(method))


init_subclass: Any = classmethod(_adapt)


def _base(cls: type) -> type:
    """Returns the class that has the patch."""
    return next(each for each in cls.__mro__
                if vars(each).get("__init_subclass__") is init_subclass)


def _takes_mask(method: Callable[..., Any]) -> bool:
    parameters = inspect.signature(method).parameters.values()
    return any(each.name == _ARGUMENT or each.kind is inspect.Parameter.VAR_KEYWORD
               for each in parameters)


def _without_mask(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def moments(layer: Any, *arguments: Any, mask: Tensor | None = None, **named: Any) -> Any:
        if mask is not None:
            named[_ARGUMENT] = mask  # which Python refuses, as it does in Keras
        return method(layer, *arguments, **named)

    return moments
