# SPDX-License-Identifier: Apache-2.0
"""Captures the arguments of a program's TPUEstimator by running the program up to there."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tpu_estimator_embedding.runtime.estimator_methods import replaced

SetUp = Callable[[], None]


class NoEstimatorError(Exception):
    """The program ended before the captured call."""


@dataclasses.dataclass(frozen=True)
class Captured:
    """The TPUEstimator of a program that was stopped there.

    Attributes:
        estimator: as its constructor left it.
        constructor_arguments: name -> what the program passed, or the default.
        method_arguments: the same of the method where it was stopped; empty where that was
            the constructor.
    """

    estimator: Any
    constructor_arguments: Mapping[str, Any]
    method_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spec(self) -> Any:
        """The EmbeddingConfigSpec, or None."""
        return self.constructor_arguments["embedding_config_spec"]


def capture(run: Callable[[SetUp], None], set_up: SetUp, method: str = "__init__") -> Captured:
    """Runs a program until it has constructed its TPUEstimator, or calls a given method of it.

    An estimator without tables is passed over where the program goes on to make another one.

    Args:
        run: runs the program, with the preparation it is given: `run_file`, for example,
            with path and arguments filled in.
        set_up: the preparation, a `ProgramSetup`.
        method: where to stop: `__init__`, `train`, `evaluate` or `predict`.

    Raises:
        NoEstimatorError: if the program ends before.
        BaseException: whatever the program raises before.
    """
    arguments_of: dict[Any, dict[str, Any]] = {}

    def construct(original: Callable[..., Any], estimator: Any, arguments: dict[str, Any]) -> None:
        original(**arguments)
        arguments_of[estimator] = arguments
        if method == "__init__" and arguments["embedding_config_spec"] is not None:
            raise _Stop(Captured(estimator, arguments))

    def stop(original: Callable[..., Any], estimator: Any, arguments: dict[str, Any]) -> None:
        if arguments_of[estimator]["embedding_config_spec"] is None:
            return original(**arguments)
        raise _Stop(Captured(estimator, arguments_of[estimator], arguments))

    with contextlib.ExitStack() as stack:
        def set_up_and_watch() -> None:
            set_up()
            stack.enter_context(replaced("__init__", construct))
            if method != "__init__":
                stack.enter_context(replaced(method, stop))

        try:
            run(set_up_and_watch)
        except _Stop as reached:
            return reached.captured
        except SystemExit as exit_:
            if exit_.code:
                raise
    raise NoEstimatorError(_what_is_missing(method, bool(arguments_of)))


class _Stop(BaseException):
    """Ends a program; a BaseException, so that `except Exception` does not catch it."""

    def __init__(self, captured: Captured) -> None:
        super().__init__("the program is stopped here")
        self.captured = captured


def _what_is_missing(method: str, has_estimator: bool) -> str:
    if not has_estimator:
        return ("The program ended without constructing a TPUEstimator: there is nothing to look "
                "at. Its own arguments come after `--`.")
    what = "with an embedding_config_spec" if method == "__init__" else f"that calls {method}()"
    return f"The program ended without a TPUEstimator {what}: there are no tables to look at."
