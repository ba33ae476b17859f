# SPDX-License-Identifier: Apache-2.0
"""Keywords that TensorFlow removed or wrongly documents, and their replacements."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tpu_estimator_embedding import checks

_Called = TypeVar("_Called", bound=Callable[..., Any])


def former_keywords(**replacements: str) -> Callable[[_Called], _Called]:
    """Makes a function or class name the replacement of a removed keyword.

    The signature does not change. Other wrong keywords raise Python's own TypeError.

    Args:
        **replacements: keyword -> end of the sentence "`keyword` must be …".

    Returns:
        A decorator; the decorated callable raises TypeError when called with such a keyword.

    >>> @former_keywords(colour="replaced by `color`")
    ... def paint(color=None):
    ...     return color
    >>> paint(color="red")
    'red'
    >>> paint(colour="red")
    Traceback (most recent call last):
    TypeError: `colour` must be replaced by `color`, got 'red'.
    """

    def decorate(target: Any) -> Any:
        if isinstance(target, type):
            cls: Any = target
            cls.__init__ = decorate(cls.__init__)
            return cls

        @functools.wraps(target)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for keyword, replacement in replacements.items():
                if keyword in kwargs:
                    raise TypeError(checks.complaint(keyword, replacement, kwargs[keyword]))
            return target(*args, **kwargs)

        return checked

    return decorate
