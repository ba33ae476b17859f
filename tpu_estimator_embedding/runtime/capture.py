# SPDX-License-Identifier: Apache-2.0
"""Captures the TPUEstimator of a program, by running the program until it constructs it."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tpu_estimator_embedding.runtime.interception import estimators_intercepted
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


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ran that was to be stopped in a method of its TPUEstimator.

    Attributes:
        captured: where it was stopped; None if it ended before.
        constructed: its TPUEstimators so far.
        error: with which it ended before; None if it came to its end.
    """

    captured: Captured | None
    constructed: tuple[Captured, ...]
    error: BaseException | None


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
    outcome = run_until(run, set_up, method)
    if outcome.captured is not None:
        return outcome.captured
    if outcome.error is not None:
        goal = ("constructed its TPUEstimator" if not outcome.constructed else
                f"made {_wanted(method)}")
        raise ended_early(outcome.error, program, goal)
    raise NoEstimatorError(_what_is_missing(method, bool(outcome.constructed)))


def run_until(run: Callable[[SetUp], None], set_up: SetUp, method: str) -> Outcome:
    """Runs a program until a method of a TPUEstimator with tables is called.

    Args:
        run, set_up: as for `capture`.
        method: any method of TPUEstimator; after `__init__` the program is stopped.

    Raises:
        NotStartedError: if it cannot be started.
    """
    constructed: dict[TPUEstimator, Captured] = {}
    reached: list[Captured] = []

    def stop(captured: Captured) -> NoReturn:
        reached.append(captured)
        raise _Stop("the program is stopped here")

    def construct(original: Callable[..., None], estimator: "TPUEstimator",
                  arguments: dict[str, Any]) -> None:
        original(**arguments)
        constructed[estimator] = Captured(estimator, arguments)
        if method == "__init__" and constructed[estimator].spec is not None:
            stop(constructed[estimator])

    def call(original: Callable[..., Any], estimator: "TPUEstimator",
             arguments: dict[str, Any]) -> Any:
        if constructed[estimator].spec is None:
            return original(**arguments)
        stop(dataclasses.replace(constructed[estimator], method_arguments=arguments))

    error: BaseException | None = None
    with contextlib.ExitStack() as stack:
        def set_up_and_watch() -> None:
            set_up()
            stack.enter_context(estimators_intercepted({method: call, "__init__": construct}))

        stack.enter_context(_streams_kept())
        try:
            run(set_up_and_watch)
        except NotStartedError:
            raise
        except (_Stop, SystemExit, Exception) as raised:
            error = None if isinstance(raised, SystemExit) and not raised.code else raised
    return Outcome(reached[0] if reached else None, tuple(constructed.values()), error)


@contextlib.contextmanager
def _streams_kept() -> Iterator[None]:
    """Gives a program streams that it may close or replace, and then restores the own ones."""
    streams = sys.stdout, sys.stderr
    given = [_same_file(stream) for stream in streams]
    sys.stdout, sys.stderr = given
    try:
        yield
    finally:
        for stream in given:
            with contextlib.suppress(ValueError, OSError):  # which the program has closed
                stream.flush()
        sys.stdout, sys.stderr = streams


def _same_file(stream: TextIO) -> TextIO:
    """Returns a separate stream into the same file; the stream itself if it has none."""
    try:
        stream.flush()
        return os.fdopen(os.dup(stream.fileno()), "w", buffering=1, encoding=stream.encoding,
                         errors=stream.errors)
    except (AttributeError, OSError, ValueError):
        return stream


class _Stop(BaseException):
    """Ends a program; a BaseException, so that `except Exception` does not catch it."""


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
                "inspect: this is for its tables, not for those of the TF2 classes. Pass the "
                "program's own arguments after `--`.")
    return (f"The program ended without {_wanted(method)}, so there are no tables to "
            "inspect.")
