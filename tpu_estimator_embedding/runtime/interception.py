# SPDX-License-Identifier: Apache-2.0
"""Puts functions in the place of methods while a block runs a user's program."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Called as `call(original, *args, **kwargs)` instead of a method.
Call = Callable[..., Any]
# Called as `call(original, estimator, arguments)` instead of a method of TPUEstimator: `original`
# is the bound method; `arguments` has all of its arguments by name, including defaults.
EstimatorCall = Callable[[Callable[..., Any], Any, dict[str, Any]], Any]


@contextlib.contextmanager
def intercepted(owner: type, calls: Mapping[str, Call], *,
                autograph: bool = True) -> Iterator[None]:
    """Replaces methods of a class, and of its subclasses that do not override them.

    A subclass that overrides a method reaches the replacement through `super()`. However the block
    ends, the class has its own methods again.

    Args:
        owner: the class.
        calls: method -> what is called instead, with the original as its first argument.
        autograph: whether AutoGraph converts what is called in a `tf.function`.
    """
    with contextlib.ExitStack() as stack:
        for name, call in calls.items():
            is_own, own = name in vars(owner), vars(owner).get(name)
            setattr(owner, name, _replacement(getattr(owner, name), call, autograph))
            if is_own:
                stack.callback(setattr, owner, name, own)
            else:
                stack.callback(delattr, owner, name)
        yield


@contextlib.contextmanager
def estimators_intercepted(calls: Mapping[str, EstimatorCall]) -> Iterator[None]:
    """Replaces methods of `TPUEstimator` and of its subclasses.

    Args:
        calls: method -> what is called instead; it may change the arguments. `__init__` receives
            the configuration of a program.
    """
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator
    with intercepted(TPUEstimator, {name: _by_name(call) for name, call in calls.items()}):
        yield


def _replacement(original: Callable[..., Any], call: Call, autograph: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def replacement(*args: object, **kwargs: object) -> object:
        return call(original, *args, **kwargs)

    if autograph:
        return replacement
    from tpu_estimator_embedding.ops.autograph import not_converted
    return not_converted(replacement)


def _by_name(call: EstimatorCall) -> Call:
    def called(original: Callable[..., Any], *args: object, **kwargs: object) -> object:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        estimator = arguments.pop("self")
        return call(functools.partial(original, estimator), estimator, arguments)

    return called
