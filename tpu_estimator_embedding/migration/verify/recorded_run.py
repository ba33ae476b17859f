# SPDX-License-Identifier: Apache-2.0
"""Runs a program through the phases of its life, in a separate process.

A legacy program, and one with explicit imports, trains a TPUEstimator; a TF2 program has its own
training loop, and one of the stage keras3 a KerasTraining.

`compare` starts it as `python -m tpu_estimator_embedding.migration.verify.recorded_run FILE`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.abc
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.migration.verify.estimator_run import SEED, EstimatorRun
from tpu_estimator_embedding.migration.verify.keras3_run import RUNTIME, Keras3Run
from tpu_estimator_embedding.migration.verify.recording import RecordingSettings, TrainedError
from tpu_estimator_embedding.migration.verify.tf2_run import StepsDoneError, TF2Run
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.runtime import program_runner
from tpu_estimator_embedding.runtime.capture import NoEstimatorError
from tpu_estimator_embedding.runtime.program_setup import ProgramSetup

_ESTIMATOR = "tpu_estimator_embedding.estimator.tpu_estimator"


class _Runs(NamedTuple):
    """What follows programs of each kind; a legacy program is of the first."""

    estimator: EstimatorRun
    tf2: TF2Run | None
    keras3: Keras3Run | None


def run(settings: RecordingSettings) -> None:
    """Runs the program; leaves its checkpoints, batches and result in the directory.

    Raises:
        NoEstimatorError: the program ends before its TPUEstimator with tables has trained.
        BaseException: whatever the program raises before.
    """
    random.seed(SEED)
    np.random.seed(SEED)
    failure = ""
    runs = _Runs(EstimatorRun(settings), TF2Run(settings) if settings.reference else None,
                 Keras3Run(settings) if settings.reference else None)
    with contextlib.ExitStack() as stack:
        try:
            program_runner.run_program(settings.program, settings.arguments,
                                       lambda: _set_up(settings, runs, stack))
        except BaseException as error:
            if not any(one.result for one in runs if one):
                raise
            failure = _failure(error)
        for one in runs:
            if one:
                one.finish()
    results = [dataclasses.replace(one.result, failure=failure)
               for one in runs if one and one.result]
    if not results:
        raise NoEstimatorError(
            f"{settings.program} ended before a TPUEstimator with an embedding_config_spec has "
            "trained" + (", or tables of TF2 have, on batches of a tf.data.Dataset" if runs.tf2
                         else "") + ". The program's arguments come after `--`.")
    results[0].save(settings.directory)


def _set_up(settings: RecordingSettings, runs: _Runs, stack: contextlib.ExitStack) -> None:
    """Sets up the process of a program, and lets runs follow what it imports."""
    of_tf2 = stack.enter_context(contextlib.ExitStack())
    if settings.is_legacy:
        ProgramSetup(settings.is_tf1)()
    for row in patch_table.SAVERS:  # its checkpoints record table layouts
        patch.apply(row)
    stack.enter_context(_after_import(
        _ESTIMATOR, lambda: stack.enter_context(runs.estimator.following())))
    if runs.tf2 and runs.keras3:
        _follow_tf2(runs.tf2, runs.keras3, stack, of_tf2)


def _follow_tf2(tf2: TF2Run, keras3: Keras3Run, stack: contextlib.ExitStack,
                of_tf2: contextlib.ExitStack) -> None:
    """Follows a program as one with its own training loop, until it imports `keras_training`."""
    def watch_keras3() -> None:
        of_tf2.close()  # the batches of `fit` and its updates are seen in other ways
        stack.enter_context(keras3.following())

    tf.random.set_seed(SEED)
    of_tf2.enter_context(tf2.following())
    stack.enter_context(_after_import(RUNTIME, watch_keras3))
    for module in tf2.trainers:
        stack.enter_context(_after_import(module, functools.partial(
            lambda name: stack.enter_context(tf2.watch_trainer(name)), module)))


@contextlib.contextmanager
def _after_import(name: str, function: Callable[[], None]) -> Iterator[None]:
    """Calls a function now if the module is imported, otherwise when it is.

    Importing it earlier than the program does may have effects: tensorflow_estimator, for
    example, decides which Keras version layers use.
    """
    if name in sys.modules:
        function()
        yield
        return
    finder = _Finder(name, function)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it was imported
            sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name, self._function = name, function

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._function()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _failure(error: BaseException | None) -> str:
    """Returns the error that ended a program; "" if verify did, or the program by itself."""
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        # TensorFlow raises new errors for those of a Dataset's Python code, with their text.
        if isinstance(error, (TrainedError, SystemExit)) or StepsDoneError.__name__ in texts[-1]:
            return ""
        error = error.__cause__ or error.__context__
    return texts[0]


if __name__ == "__main__":
    try:
        run(RecordingSettings.load(sys.argv[1]))
    except (NoEstimatorError, program_runner.NotStartedError) as error:
        sys.exit(str(error))
