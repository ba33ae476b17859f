# SPDX-License-Identifier: Apache-2.0
"""Runs a program until it has trained some steps, in a separate process.

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
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.compat import patch, patch_table
from tpu_estimator_embedding.migration.verify import evaluation
from tpu_estimator_embedding.migration.verify.keras3_run import RUNTIME, Keras3Run
from tpu_estimator_embedding.migration.verify.recording import (
    READ_AHEAD,
    RecordedResult,
    RecordingSettings,
    TrainedError,
    limited_steps,
)
from tpu_estimator_embedding.migration.verify.tf2_run import StepsDoneError, TF2Run
from tpu_estimator_embedding.runtime import program_runner
from tpu_estimator_embedding.runtime.capture import NoEstimatorError
from tpu_estimator_embedding.runtime.estimator_methods import replaced
from tpu_estimator_embedding.runtime.program_setup import ProgramSetup
from tpu_estimator_embedding.types import RunConfig

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

Result = TypeVar("Result")


@contextlib.contextmanager
def after_import(name: str, function: Callable[[], None]) -> Iterator[None]:
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


_ESTIMATOR = "tpu_estimator_embedding.estimator.tpu_estimator"
_SEED = 1
_AFTER_TRAINING = ("predict", "export_saved_model")  # what ends the program then


def run(settings: RecordingSettings) -> None:
    """Runs the program; leaves its checkpoints, batches and result in the directory.

    Raises:
        NoEstimatorError: the program ends before its TPUEstimator with tables has trained.
        BaseException: whatever the program raises before.
    """
    random.seed(_SEED)
    np.random.seed(_SEED)
    arguments_of: dict[TPUEstimator, dict[str, Any]] = {}
    results: list[RecordedResult] = []

    def construct(original: Callable[..., None], estimator: TPUEstimator,
                  arguments: dict[str, Any]) -> None:
        if arguments["embedding_config_spec"] is not None:
            arguments["config"] = _recorded_config(arguments["config"], settings)
            arguments["model_dir"] = arguments["config"].model_dir
        original(**arguments)
        arguments_of[estimator] = arguments

    def train(original: Callable[..., TPUEstimator], estimator: TPUEstimator,
              arguments: dict[str, Any]) -> TPUEstimator:
        if arguments_of[estimator]["embedding_config_spec"] is None:
            return original(**arguments)
        if results:
            raise TrainedError
        results.append(_train(original, estimator, arguments, arguments_of[estimator], settings))
        return estimator

    def evaluate(original: Callable[..., Mapping[str, object]], estimator: TPUEstimator,
                 arguments: dict[str, Any]) -> Mapping[str, object]:
        if not results:
            return original(**arguments)
        if results[0].num_replicas == 1:
            results[0] = dataclasses.replace(results[0], evaluation=evaluation.of_estimator(
                original, arguments, settings, len(results[0].losses)))
        raise TrainedError

    def end(original: Callable[..., Result], estimator: TPUEstimator,
            arguments: dict[str, Any]) -> Result:
        if results:
            raise TrainedError
        return original(**arguments)

    failure = ""
    with contextlib.ExitStack() as stack:
        tf2_run = TF2Run(settings) if settings.reference else None
        keras3_run = Keras3Run(settings) if settings.reference else None
        of_tf2 = stack.enter_context(contextlib.ExitStack())

        def watch_estimator() -> None:
            stack.enter_context(replaced("__init__", construct))
            stack.enter_context(replaced("train", train))
            stack.enter_context(replaced("evaluate", evaluate))
            for method in _AFTER_TRAINING:
                stack.enter_context(replaced(method, end))

        def watch_keras3() -> None:
            assert keras3_run is not None
            of_tf2.close()  # the batches of `fit` and its updates are seen in other ways
            stack.enter_context(keras3_run.following())

        def set_up() -> None:
            if settings.is_legacy:
                ProgramSetup(settings.is_tf1)()
            for row in patch_table.SAVERS:  # its checkpoints record table layouts
                patch.apply(row)
            stack.enter_context(after_import(_ESTIMATOR, watch_estimator))
            if tf2_run:
                tf.random.set_seed(_SEED)
                of_tf2.enter_context(tf2_run.following())
                stack.enter_context(after_import(RUNTIME, watch_keras3))
                for module in tf2_run.trainers:
                    stack.enter_context(after_import(module, functools.partial(
                        lambda name: stack.enter_context(tf2_run.watching_trainer(name)), module)))

        try:
            program_runner.run_file(settings.program, settings.arguments, set_up)
        except BaseException as error:
            if not results and not any(one and one.result for one in (tf2_run, keras3_run)):
                raise
            failure = _failure(error)
        if tf2_run:
            tf2_run.finish()
        results += [dataclasses.replace(one.result, failure=failure)
                    for one in (tf2_run, keras3_run) if one and one.result]
    if not results:
        raise NoEstimatorError(
            f"{settings.program} ended before a TPUEstimator with an embedding_config_spec has "
            "trained" + (", or tables of TF2 have, on batches of a tf.data.Dataset" if tf2_run
                         else "") + ". The program's arguments come after `--`.")
    results[0].save(settings.directory)


def _failure(error: BaseException | None) -> str:
    """Returns the error that ended a program; "" if verify did, or the program by itself."""
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        # TensorFlow raises errors of a Dataset's Python code anew, with their text.
        if isinstance(error, (TrainedError, SystemExit)) or StepsDoneError.__name__ in texts[-1]:
            return ""
        error = error.__cause__ or error.__context__
    return texts[0]


def _recorded_config(config: RunConfig | None, settings: RecordingSettings) -> RunConfig:
    from tpu_estimator_embedding.compat import upstream
    config = config or upstream.tpu_config.RunConfig()
    seed = _SEED if config.tf_random_seed is None else config.tf_random_seed
    return config.replace(
        model_dir=os.path.join(settings.directory, "model"), tf_random_seed=seed,
        save_checkpoints_secs=None, save_checkpoints_steps=None,
        tpu_config=config.tpu_config._replace(iterations_per_loop=1))


def _train(train: Callable[..., object], estimator: TPUEstimator, arguments: Mapping[str, Any],
           constructed: Mapping[str, Any], settings: RecordingSettings) -> RecordedResult:
    from tpu_estimator_embedding.estimator.embedding_config_spec import spec_to_plan
    from tpu_estimator_embedding.migration.verify import step_checkpoints
    from tpu_estimator_embedding.migration.verify.batches import RecordedInput
    from tpu_estimator_embedding.migration.verify.plan_values import plan_values
    from tpu_estimator_embedding.migration.verify.step_checkpoints import (
        ModelVariables,
        StepCheckpoints,
    )
    replicas = estimator.config.tpu_config.num_shards or 1
    steps = limited_steps(settings.steps, arguments)
    notes = () if steps == settings.steps else (
        f"the program's first call of train has {steps} steps, fewer than {settings.steps}, and "
        "verify follows that call only",)
    recorded = RecordedInput(arguments["input_fn"], settings, (steps + READ_AHEAD) * replicas)
    with step_checkpoints.collected() as found:
        checkpoints = StepCheckpoints(settings.directory, settings.reference, found)
        of_model = ModelVariables()
        train(input_fn=recorded.input_fn, steps=steps,
              hooks=[of_model, *(arguments["hooks"] or ()), checkpoints])
    plan = spec_to_plan(constructed["embedding_config_spec"], training=True,
                        num_hosts=constructed["num_hosts"] or 1)
    return RecordedResult(tuple(checkpoints.losses), plan_values(plan), tuple(recorded.inputs),
                          tuple(recorded.digests), recorded.is_repeatable,
                          is_seedless=recorded.is_seedless, tables=found.table_variables,
                          trainable=checkpoints.trainable, num_replicas=replicas,
                          of_hooks=tuple(sorted(checkpoints.names - of_model.names)),
                          steps=steps, notes=notes)


if __name__ == "__main__":
    try:
        run(RecordingSettings.load(sys.argv[1]))
    except (NoEstimatorError, program_runner.NotStartedError) as error:
        sys.exit(str(error))
