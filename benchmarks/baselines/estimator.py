# SPDX-License-Identifier: Apache-2.0
"""End to end: input_fn, model_fn and `TPUEstimator.train`, this package's or the stock one."""

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks.baselines import click_model
from benchmarks.batches import Batch
from benchmarks.workloads import INITIAL_ACCUMULATOR, LEARNING_RATE, Workload
from tpu_estimator_embedding.compat import upstream


class Baseline:
    """A training in a separate thread, which pauses between turns."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], is_stock: bool = False,
                 from_records: bool = False, iterations_per_loop: int = 1, directory: str = ""):
        self._directory = tempfile.TemporaryDirectory()
        self._steps_per_run = 1 if is_stock else iterations_per_loop  # which stock ignores
        files = records.write_once(workload, batches, directory or self._directory.name)
        estimator = make_estimator(workload, is_stock, self._directory.name, iterations_per_loop)
        input_fn = records.make_input_fn(workload, files, cached=not from_records,
                                         is_stock=is_stock or not from_records)
        self._turns = _Turns()
        self._thread = threading.Thread(
            target=self._train, args=(estimator, input_fn), daemon=True)
        self._thread.start()
        self.run(0, len(batches))  # reads and parses the first round
        self.description = "" if is_stock else _kernels()

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps, in whole runs of the session; returns their duration in seconds."""
        runs = -(-count // self._steps_per_run)
        return self._turns.ask(runs) * count / (runs * self._steps_per_run)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return self._turns.ask(_read_tables)

    def close(self) -> None:
        """Ends the training."""
        self._turns.ask(None)
        self._thread.join()
        self._directory.cleanup()

    def _train(self, estimator: Any, input_fn: Callable) -> None:
        try:
            estimator.train(input_fn, hooks=[self._turns], max_steps=1_000_000)
            self._turns.answers.put(None)
        except Exception as error:  # the requesting thread raises it
            self._turns.answers.put(error)


class _Turns(tf.compat.v1.train.SessionRunHook):
    """Runs steps on request, and times them."""

    def __init__(self):
        self._requests: queue.Queue = queue.Queue()
        self.answers: queue.Queue = queue.Queue()
        self._left = 0
        self._start = 0.0

    def ask(self, request: Any) -> Any:
        """Requests steps, the result of a function of the session, or (with None) the end."""
        self._requests.put(request)
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def before_run(self, run_context: Any) -> None:
        while not self._left:
            request = self._requests.get()
            if request is None:
                run_context.request_stop()
                return
            if callable(request):
                self.answers.put(request(run_context.session))
            else:
                self._left, self._start = request, time.perf_counter()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self._left:
            return
        self._left -= 1
        if not self._left:
            self.answers.put(time.perf_counter() - self._start)


def make_estimator(workload: Workload, is_stock: bool, model_dir: str,
                   iterations_per_loop: int = 1) -> Any:
    """Returns the TPUEstimator of `click_model`, this package's or the stock one."""
    config = upstream.tpu_config.RunConfig(
        model_dir=model_dir, tf_random_seed=1, save_checkpoints_secs=None,
        save_summary_steps=0, log_step_count_steps=None,
        tpu_config=upstream.tpu_config.TPUConfig(
            iterations_per_loop=iterations_per_loop))
    columns = click_model.columns(workload)
    params = {"columns": columns,
              "spec_class": upstream.tpu_estimator.TPUEstimatorSpec}
    shared = {"model_fn": click_model.model_fn, "config": config, "params": params,
              "train_batch_size": workload.batch_size}
    if is_stock:
        return upstream.tpu_estimator.TPUEstimator(use_tpu=False, **shared)
    import tpu_estimator_embedding as ours
    return ours.TPUEstimator(use_tpu=True, embedding_config_spec=ours.EmbeddingConfigSpec(
        feature_columns=columns, optimization_parameters=ours.AdagradParameters(
            LEARNING_RATE, initial_accumulator=INITIAL_ACCUMULATOR)), **shared)


def _read_tables(session: Any) -> list[np.ndarray]:
    tables = [variable for variable in session.graph.get_collection("variables")
              if "embedding_weights" in variable.name and "Adagrad" not in variable.name]
    return session.run(sorted(tables, key=lambda variable: variable.name))


def _kernels() -> str:
    from tpu_estimator_embedding.kernels import load
    return load.description()
