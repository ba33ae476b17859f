# SPDX-License-Identifier: Apache-2.0
"""Runs a program in this process, in one of the ways that must agree."""

import contextlib
import os
import pathlib
import re
import shutil
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.training import training_util

from tests.programs.comparison import Outcome
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.estimator.engine_model import EngineModel
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

v1 = tf.compat.v1
KERNELS = settings.KERNELS.variable


class Recorder(v1.train.SessionRunHook):
    """Keeps all variables before the first step and after every run of the session."""

    def __init__(self) -> None:
        self.states: dict[int, dict[str, Any]] = {}
        self.losses: dict[int, float] = {}

    def begin(self) -> None:
        """Collects the variables."""
        self._variables: dict[str, list[Any]] = {}
        for variable in v1.global_variables():
            self._variables.setdefault(whole_name(variable), []).append(variable)
        self._step = v1.train.get_global_step()
        [self._loss] = {loss.ref() for loss in v1.get_collection("reported_loss")} or [None]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Keeps the values of the start."""
        self._keep(session)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss."""
        if self._loss is None:
            return None
        return v1.train.SessionRunArgs(self._loss.deref())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the values after the run."""
        step = self._keep(run_context.session)
        if self._loss is not None:
            self.losses[step] = float(run_values.results)

    def _keep(self, session: Any) -> int:
        step, parts = session.run([self._step, self._variables])
        self.states[int(step)] = {
            name: np.concatenate(values) if len(values) > 1 else values[0]
            for name, values in parts.items()}
        return int(step)


def whole_name(variable: Any) -> str:
    """Returns the name of the variable that this one is, or is a part of."""
    return re.sub(r"/part_\d+", "", variable.op.name)


def load_program(source: str, name: str = "generated_program",
                 **constants: Any) -> types.ModuleType:
    """Returns the module, with some of its constants changed."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, f"<{name}>", "exec"), vars(module))
    _make_readable(source, name)
    vars(module).update(constants)
    return module


def _make_readable(source: str, name: str) -> None:
    """Lets `inspect`, and so AutoGraph, find the text of the program's functions."""
    import linecache
    lines = source.splitlines(keepends=True)
    linecache.cache[f"<{name}>"] = (len(source), None, lines, f"<{name}>")


def tiled(data: Mapping[str, np.ndarray], batch: int, times: int) -> dict[str, np.ndarray]:
    """Returns data whose batches hold every batch several times."""
    return {name: np.concatenate([
        np.concatenate([values[start:start + batch]] * times)
        for start in range(0, len(values), batch)]) for name, values in data.items()}


def run_program(source: str, directory: pathlib.Path, *, kernels: str = "native",
                finish: bool = False, first: pathlib.Path | None = None,
                num_hosts: int | None = None, times: int = 1, **constants: Any) -> Outcome:
    """Runs a program: trains it and, to finish, evaluates and predicts.

    Args:
        source: its text.
        directory: where to write.
        kernels: which kernels to use.
        finish: whether to evaluate and predict.
        first: a directory whose `model.ckpt-0` is where training starts.
        num_hosts: hosts that share the tables.
        times: how often every batch holds each of its samples.
        constants: of the module.
    """
    module = load_program(source, **constants)
    if times > 1:
        module.DATA = tiled(module.DATA, module.BATCH, times)
        module.BATCH *= times
    if getattr(module, "RECORDS", None):
        module.write_records(module.RECORDS)
    recorder = Recorder()
    if first:
        begin_with(first, directory)
    with quiet(), _environment(KERNELS, kernels), _hosts(num_hosts), _without_graph_files():
        estimator = module.new_estimator(str(directory))
        _run_graphs_as_they_are(estimator)
        with _reporting_losses():
            estimator.train(module.input_fn, max_steps=module.STEPS, hooks=[recorder])
        outcome = Outcome(recorder.states, recorder.losses, seen=getattr(module, "SEEN", None))
        if num_hosts:
            last = outcome.states.pop(module.STEPS)
            outcome.states = {module.STEPS: {
                name: estimator.get_variable_value(name) for name in last}}
        if finish:
            outcome.metrics = dict(estimator.evaluate(
                module.input_fn, steps=getattr(module, "EVALUATED", 2)))
            outcome.predictions = _predictions(estimator, module)
    return outcome


def _run_graphs_as_they_are(estimator: Any) -> None:
    """Saves the time to optimize graphs that run for a few steps."""
    estimator._session_config.graph_options.rewrite_options.disable_meta_optimizer = True


def _predictions(estimator: Any, module: types.ModuleType) -> dict[str, np.ndarray]:
    found = []
    for prediction in estimator.predict(module.input_fn):
        found.append(prediction)
        if len(found) == module.BATCH and getattr(module, "EVALUATED", 2):
            break
    return {name: np.stack([prediction[name] for prediction in found]) for name in found[0]}


@contextlib.contextmanager
def _reporting_losses() -> Iterator[None]:
    """Notes the loss that Estimator reports, for the recorder."""
    original = EngineModel._with_update

    def with_update(self: Any, spec: Any, *others: Any) -> Any:
        v1.add_to_collection("reported_loss", spec.loss)
        return original(self, spec, *others)

    with mock.patch.object(EngineModel, "_with_update", with_update):
        yield


def _without_graph_files() -> contextlib.AbstractContextManager[Any]:
    """Saves the time to write `graph.pbtxt`, which nothing reads."""
    return mock.patch.object(training_util, "write_graph", lambda *args, **options: None)


@contextlib.contextmanager
def _hosts(number: int | None) -> Iterator[None]:
    with mock.patch.dict(TPUEstimator.__init__.__kwdefaults__, num_hosts=number):
        yield


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    with mock.patch.dict(os.environ, {name: value}):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the logs and warnings of programs out of the tests' output."""
    before = v1.logging.get_verbosity()
    v1.logging.set_verbosity(v1.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        v1.logging.set_verbosity(before)


def begin_with(first: pathlib.Path, directory: pathlib.Path) -> None:
    """Makes a model directory whose training starts from the first checkpoint of another one."""
    directory.mkdir()
    for path in first.glob("model.ckpt-0.*"):
        shutil.copy(path, directory)
    (directory / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')
