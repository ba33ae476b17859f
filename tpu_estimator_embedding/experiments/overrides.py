# SPDX-License-Identifier: Apache-2.0
"""Overrides settings of the TPUEstimators of a running program."""

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tpu_estimator_embedding
from tpu_estimator_embedding.experiments.files import read_json, write_json, write_text
from tpu_estimator_embedding.experiments.run_directory import EMPTY_EVALUATIONS
from tpu_estimator_embedding.experiments.setting import Setting
from tpu_estimator_embedding.runtime.interception import estimators_intercepted

if TYPE_CHECKING:
    import tensorflow as tf

    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

_LEAST_STEPS = 10  # minimum number of steps between statistics of tables
_SECONDS_BETWEEN_NOTES = 1.0


class CannotOverrideError(Exception):
    """The settings cannot be applied to the program; the message says why."""


class Overrides:
    """Changes the arguments of every constructed TPUEstimator.

    It overrides the values in the setting, the model directory and, except for the first seed,
    the seed.

    Attributes:
        timer: measures the training of all TPUEstimators.
    """

    def __init__(self, setting: Setting, seed: int, directory: pathlib.Path) -> None:
        """Stores the setting, the number to add to the program's seed, and the run's directory."""
        self._setting, self._seed, self._directory = setting, seed, directory
        self._model_dir_of: dict[object, pathlib.Path] = {}
        self._batch_size_of: dict[TPUEstimator, int] = {}
        self._statistics_every: dict[TPUEstimator, int] = {}  # of estimators with tables
        self.timer = StepTimer(directory / "progress.json")
        self._has_tables = False

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Applies the overrides inside the context."""
        with estimators_intercepted({"__init__": self._construct, "train": self._train,
                                     "evaluate": self._evaluate}):
            yield

    @property
    def model_dirs(self) -> list[pathlib.Path]:
        """The directories of the run's models, in the order of construction."""
        return list(dict.fromkeys(self._model_dir_of.values()))

    def check_reached(self) -> None:
        """Raises CannotOverrideError if no TPUEstimator with tables was constructed."""
        if not self._model_dir_of:
            raise CannotOverrideError(
                "The program ended without constructing a TPUEstimator, so there is nothing to "
                "override: this is for its tables, not for those of the TF2 classes. Pass the "
                "program's own arguments after `--`.")
        if not self._has_tables:
            raise CannotOverrideError(
                "The program's TPUEstimator has no embedding_config_spec, so there are no tables "
                "whose settings could be overridden. Give it one.")

    def _construct(self, original: Callable[..., None], estimator: "TPUEstimator",
                   arguments: dict[str, Any]) -> None:
        spec = arguments["embedding_config_spec"]
        if spec is not None:
            if not arguments["use_tpu"]:
                raise CannotOverrideError(
                    "The program constructs its TPUEstimator with use_tpu=False, where the model's "
                    "optimizer trains the tables and their settings have no effect. Run it with "
                    "use_tpu=True, which needs no TPU here.")
            arguments["embedding_config_spec"] = self._setting.applied_to(spec)
        self._override_config(arguments)
        original(**arguments)
        self._batch_size_of[estimator] = arguments["train_batch_size"]
        if spec is not None:
            self._statistics_every[estimator] = max(
                _LEAST_STEPS, arguments["config"].save_summary_steps or _LEAST_STEPS)
        self._has_tables |= spec is not None

    def _override_config(self, arguments: dict[str, Any]) -> None:
        config = arguments["config"]
        if config is None:
            return  # the constructor raises the error
        asked_for = arguments["model_dir"] or config.model_dir or object()
        count = len(self._model_dir_of)
        model_dir = self._model_dir_of.setdefault(
            asked_for, self._directory / (f"model_{count + 1}" if count else "model"))
        arguments["model_dir"] = str(model_dir)
        arguments["config"] = config.replace(model_dir=str(model_dir))
        if self._seed:
            seed = (config.tf_random_seed or 0) + self._seed
            arguments["config"] = arguments["config"].replace(tf_random_seed=seed)

    def _train(self, original: "Callable[..., TPUEstimator]", estimator: "TPUEstimator",
               arguments: dict[str, Any]) -> "TPUEstimator":
        arguments["hooks"] = [
            *(arguments["hooks"] or []), self.timer.hook(self._batch_size_of[estimator])]
        if estimator in self._statistics_every:
            arguments["hooks"].append(tpu_estimator_embedding.EmbeddingStatisticsHook(
                self._statistics_every[estimator]))
        return original(**arguments)

    def _evaluate(self, original: Callable[..., dict[str, Any]], estimator: "TPUEstimator",
                  arguments: dict[str, Any]) -> dict[str, Any]:
        batches: list[int] = []
        arguments["hooks"] = [*(arguments["hooks"] or []), _evaluated_batches_hook(batches)]
        results = original(**arguments)
        name = str(pathlib.Path(estimator.eval_dir(arguments["name"])).relative_to(self._directory))
        path = self._directory / EMPTY_EVALUATIONS
        empty: dict[str, list[int]] = read_json(path) or {}
        steps = {*empty.get(name, ())} - {int(results["global_step"])}
        steps |= {int(results["global_step"])} if batches == [0] else set()
        if sorted(steps) != empty.get(name, []):
            write_json(path, {**empty, name: sorted(steps)})
        return results


def _evaluated_batches_hook(batches: list[int]) -> "tf.compat.v1.train.SessionRunHook":
    """Returns the hook that adds the number of an evaluation's batches to a list at its end."""
    import tensorflow as tf
    from tensorflow.python.training.evaluation import _get_or_create_eval_step

    class EvaluatedBatchesHook(tf.compat.v1.train.SessionRunHook):
        """Reads the number once; it fetches nothing of a step."""

        def begin(self) -> None:
            self._step = _get_or_create_eval_step()

        def end(self, session: tf.compat.v1.Session) -> None:
            batches.append(int(session.run(self._step)))

    return EvaluatedBatchesHook()


class StepTimer:
    """Counts steps and seconds of all `train` calls, without the first session run of each.

    The first run includes starting the input pipeline and other one-time work.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Stores the path of the progress file."""
        self._path = path
        self.steps = self.timed_examples = 0
        self.timed_seconds = 0.0
        self._last_note = 0.0

    @property
    def examples_per_second(self) -> float | None:
        """Examples per second in the timed steps; None without timed steps."""
        return self.timed_examples / self.timed_seconds if self.timed_seconds else None

    def hook(self, batch_size: int) -> "tf.compat.v1.train.SessionRunHook":
        """Returns the hook that times one call of `train`; it fetches nothing."""
        import tensorflow as tf

        timer = self

        class TimingHook(tf.compat.v1.train.SessionRunHook):
            """Records the end times of session runs and their numbers of steps."""

            _last: float | None = None

            def begin(self) -> None:
                self._global_step = tf.compat.v1.train.get_global_step()

            def after_create_session(self, session: tf.compat.v1.Session,
                                     coord: tf.train.Coordinator) -> None:
                self._step = int(session.run(self._global_step))
                timer.note()

            def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                          run_values: tf.compat.v1.train.SessionRunValues) -> None:
                step, now = int(run_context.session.run(self._global_step)), time.perf_counter()
                timer.count(step - self._step, None if self._last is None else now - self._last,
                            batch_size)
                self._step, self._last = step, now

            def end(self, session: tf.compat.v1.Session) -> None:
                timer.note()

        return TimingHook()

    def count(self, steps: int, seconds: float | None, batch_size: int) -> None:
        """Adds the steps and seconds of a session run; None seconds mean that it was not timed."""
        self.steps += steps
        if seconds is not None:
            self.timed_seconds += seconds
            self.timed_examples += steps * batch_size
        if time.monotonic() - self._last_note > _SECONDS_BETWEEN_NOTES:
            self.note()

    def note(self) -> None:
        """Writes the number of steps to the progress file."""
        self._last_note = time.monotonic()
        write_text(self._path, json.dumps({"steps": self.steps}))
