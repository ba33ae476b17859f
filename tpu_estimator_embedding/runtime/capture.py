# SPDX-License-Identifier: Apache-2.0
"""Captures the TPUEstimator of a program, by running the program until it constructs it."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding.runtime.estimator_methods import replaced

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

SetUp = Callable[[], None]


class NoEstimatorError(Exception):
    """The program ended before the captured call."""


@dataclasses.dataclass(frozen=True)
class Captured:
    """The TPUEstimator of a program that was stopped in one of its methods.

    Attributes:
        estimator: the constructed TPUEstimator.
        constructor_arguments: name -> value that the program passed, or the default.
        method_arguments: the same for the method in which the program was stopped; empty for
            the constructor.
    """

    estimator: "TPUEstimator"
    constructor_arguments: Mapping[str, Any]
    method_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spec(self) -> "EmbeddingConfigSpec | None":
        """The EmbeddingConfigSpec, or None."""
        return self.constructor_arguments["embedding_config_spec"]


def capture(run: Callable[[SetUp], None], set_up: SetUp, method: str = "__init__") -> Captured:
    """Runs a program until it has constructed its TPUEstimator, or calls one of its methods.

    An estimator without tables is skipped if the program then creates another one.

    Args:
        run: runs the program after calling its argument, for example a partial of `run_file`
            with path and arguments.
        set_up: prepares the process, a `ProgramSetup`.
        method: method to stop at: `__init__`, `train`, `evaluate` or `predict`.

    Raises:
        NoEstimatorError: if the program ends before it reaches the method.
        BaseException: any exception of the program before that.
    """
    arguments_of: dict[TPUEstimator, dict[str, Any]] = {}

    def construct(original: Callable[..., None], estimator: "TPUEstimator",
                  arguments: dict[str, Any]) -> None:
        original(**arguments)
        arguments_of[estimator] = arguments
        if method == "__init__" and arguments["embedding_config_spec"] is not None:
            raise _Stop(Captured(estimator, arguments))

    def stop(original: Callable[..., None], estimator: "TPUEstimator",
             arguments: dict[str, Any]) -> None:
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
        return ("The program ended without constructing a TPUEstimator, so there is nothing to "
                "inspect. Pass its own arguments after `--`.")
    what = "with an embedding_config_spec" if method == "__init__" else f"that calls {method}()"
    return f"The program ended without a TPUEstimator {what}, so there are no tables to inspect."
