# SPDX-License-Identifier: Apache-2.0
"""Captures the TPUEstimator of a program, by running the program until it constructs it."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding.runtime.estimator_methods import replaced
from tpu_estimator_embedding.runtime.program_runner import NotStartedError

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


def capture(run: Callable[[SetUp], None], set_up: SetUp, method: str = "__init__",
            program: str = "the program") -> Captured:
    """Runs a program until it has constructed its TPUEstimator, or calls one of its methods.

    An estimator without tables is skipped if the program then creates another one.

    Args:
        run: runs the program after calling its argument, for example a partial of `run_file`
            with path and arguments.
        set_up: prepares the process, a `ProgramSetup`.
        method: method to stop at: `__init__`, `train`, `evaluate` or `predict`.
        program: its name in messages.

    Raises:
        NoEstimatorError: if the program ends or fails before it reaches the method.
        NotStartedError: if it cannot be started.
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
        except NotStartedError:
            raise
        except (SystemExit, Exception) as error:
            if not is_exit_0(error):
                goal = ("constructed its TPUEstimator" if not arguments_of else
                        f"made {_wanted(method)}")
                raise ended_early(error, program, goal) from None
    raise NoEstimatorError(_what_is_missing(method, bool(arguments_of)))


class _Stop(BaseException):
    """Ends a program; a BaseException, so that `except Exception` does not catch it."""

    def __init__(self, captured: Captured) -> None:
        super().__init__("the program is stopped here")
        self.captured = captured


def is_exit_0(error: BaseException) -> bool:
    """Whether a program ended as one does that comes to its end."""
    return isinstance(error, SystemExit) and not error.code


def ended_early(error: BaseException, program: str, goal: str) -> NoEstimatorError:
    """Returns what to raise for a program that ended by an exception; shows its traceback.

    Args:
        error: the exception.
        program: its name.
        goal: what it had not yet done, after "before it had".
    """
    end = f"before it had {goal}, so there is nothing to inspect."
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = sys.__excepthook__  # `run_file` has set one for the program
        return NoEstimatorError(f"{program} failed {end}")
    status, said = (error.code, "") if isinstance(error.code, int) else (
        1, f" and the message {error.code!r}")
    return NoEstimatorError(f"{program} ended with exit status {int(status)}{said} {end} Pass its "
                            "own arguments after `--`.")


def _wanted(method: str) -> str:
    what = "with an embedding_config_spec" if method == "__init__" else f"that calls {method}()"
    return f"a TPUEstimator {what}"


def _what_is_missing(method: str, has_estimator: bool) -> str:
    if not has_estimator:
        return ("The program ended without constructing a TPUEstimator, so there is nothing to "
                "inspect. Pass its own arguments after `--`.")
    return (f"The program ended without {_wanted(method)}, so there are no tables to "
            "inspect.")
