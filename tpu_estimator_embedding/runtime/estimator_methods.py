# SPDX-License-Identifier: Apache-2.0
"""Intercepts the method calls of the TPUEstimator that a program creates."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

# Called as `call(original, estimator, arguments)` instead of a method: `original` is the bound
# method; `arguments` has all of its arguments by name, including defaults.
Replacement = Callable[[Callable[..., Any], Any, dict[str, Any]], Any]


@contextlib.contextmanager
def replaced(method: str, call: Replacement) -> Iterator[None]:
    """Replaces a method of `TPUEstimator` and of its subclasses with `call`.

    A subclass that overrides the method reaches `call` through `super()`.

    Args:
        method: name of the method; `__init__` receives the configuration of a program.
        call: called instead of the method; it may change the arguments.
    """
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator
    original = getattr(TPUEstimator, method)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def replacement(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        estimator = arguments.pop("self")
        return call(functools.partial(original, estimator), estimator, arguments)

    setattr(TPUEstimator, method, replacement)
    try:
        yield
    finally:
        setattr(TPUEstimator, method, original)
