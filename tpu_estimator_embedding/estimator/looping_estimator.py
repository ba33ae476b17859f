# SPDX-License-Identifier: Apache-2.0
"""Makes the runs of Estimator's sessions loops of steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training import evaluation

from tpu_estimator_embedding.checkpoint.asynchronous_saving import saved_at_the_end
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.cluster.recovery import recovering, shard_savers
from tpu_estimator_embedding.estimator.cluster.tasks import Cluster
from tpu_estimator_embedding.estimator.estimator_spec import check_steps, check_train_steps
from tpu_estimator_embedding.estimator.hooks import loop_length
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import statistics_hooks
from tpu_estimator_embedding.estimator.hooks.interrupts import StopOnSignal
from tpu_estimator_embedding.estimator.hooks.saver_hooks import with_saver_hooks
from tpu_estimator_embedding.estimator.hooks.saving_choice import SavingChoice
from tpu_estimator_embedding.estimator.hooks.session_runs import StepLoop, Steps
from tpu_estimator_embedding.estimator.input.feeding import EmbeddingHook
from tpu_estimator_embedding.types import Tensor

_HostCallHook = upstream.tpu_estimator._OutfeedHostCallHook


def hooks_of_training(of_model: Sequence[tf.compat.v1.train.SessionRunHook],
                      others: Sequence[tf.compat.v1.train.SessionRunHook],
                      length: loop_length.LoopLength, host_call_every_n_steps: int,
                      is_stopping: Callable[[], bool]) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks of the model, the last ones of a session, that train in loops.

    Args:
        of_model: hooks of the model; those of host calls become part of the loop.
        others: the session's other hooks; the last of them determines when Estimator stops.
        length: the length of a loop.
        host_call_every_n_steps: the interval of host calls.
        is_stopping: whether to end a loop.
    """
    [*_, stop] = [hook for hook in others if isinstance(hook, tf.compat.v1.train.StopAtStepHook)]
    steps = Steps(tf.compat.v1.train.get_global_step, lambda: stop._last_step)
    return _in_loops(of_model, length, steps, _feed_of(others), is_stopping=is_stopping,
                     host_call_every_n_steps=host_call_every_n_steps)


def hooks_of_evaluation(hooks: Sequence[tf.compat.v1.train.SessionRunHook]
                        ) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns all hooks of a session that evaluates its steps in one loop.

    If it evaluates the whole input, every run is one step.
    """
    numbers = [hook._num_evals for hook in hooks
               if isinstance(hook, evaluation._StopAfterNEvalsHook)]
    if not numbers:
        return list(hooks)
    steps = Steps(evaluation._get_or_create_eval_step, lambda: numbers[0])
    return _in_loops(hooks, loop_length.length_in_evaluation(), steps, _feed_of(hooks))


class LoopingEstimator(upstream.tpu_estimator.TPUEstimator):
    """An estimator whose session runs are loops of steps if it uses the engine."""

    _use_engine: bool
    _stop: StopOnSignal
    _cluster: Cluster
    _saving: SavingChoice

    def _training_loop(self) -> loop_length.LoopLength:
        if self._cluster.servers:  # whose workers share the steps: others count them as well
            return loop_length.LoopLength(steps=1)
        return loop_length.length_in_training(self._config.tpu_config.iterations_per_loop)

    def _convert_train_steps_to_hooks(
            self, steps: int | None,
            max_steps: int | None) -> list[tf.compat.v1.train.SessionRunHook]:
        if self._use_engine:
            check_train_steps(steps, max_steps)
        return upstream.estimator.Estimator._convert_train_steps_to_hooks(self, steps, max_steps)

    def _convert_eval_steps_to_hooks(self,
                                     steps: int | None) -> list[tf.compat.v1.train.SessionRunHook]:
        if self._use_engine:
            check_steps("Eval steps", steps)
        return upstream.estimator.Estimator._convert_eval_steps_to_hooks(self, steps)

    def _train_with_estimator_spec(
            self, estimator_spec: upstream.model_fn.EstimatorSpec,
            worker_hooks: list[tf.compat.v1.train.SessionRunHook],
            hooks: list[tf.compat.v1.train.SessionRunHook], global_step_tensor: Tensor,
            saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
            ) -> Tensor | None:
        if self._use_engine:
            measures = statistics_hooks([*hooks, *estimator_spec.training_hooks])
            estimator_spec = estimator_spec._replace(training_hooks=hooks_of_training(
                estimator_spec.training_hooks, [*worker_hooks, *hooks],
                # Measured steps need not be the last of a loop.
                loop_length.LoopLength(steps=1) if measures else self._training_loop(),
                self._config.tpu_config.experimental_host_call_every_n_steps,
                is_stopping=lambda: self._stop.received is not None))
        estimator_spec = with_saver_hooks(estimator_spec, [*worker_hooks, *hooks], self._config,
                                          self.model_dir, self._saving)
        if not self._cluster.servers:
            with saved_at_the_end([*estimator_spec.training_chief_hooks, *worker_hooks, *hooks]):
                return super()._train_with_estimator_spec(
                    estimator_spec, worker_hooks, hooks, global_step_tensor, saving_listeners)
        shard_savers(estimator_spec.scaffold,
                     [*worker_hooks, *hooks, *estimator_spec.training_hooks])
        with recovering(self._config, estimator_spec.train_op) as own_hooks:
            return super()._train_with_estimator_spec(
                estimator_spec, [*own_hooks, *worker_hooks], hooks, global_step_tensor,
                saving_listeners)

    def _evaluate_run(self, checkpoint_path: str, scaffold: tf.compat.v1.train.Scaffold | None,
                      update_op: tf.Operation, eval_dict: dict[str, Tensor],
                      all_hooks: list[tf.compat.v1.train.SessionRunHook],
                      output_dir: str) -> Mapping[str, object]:
        if self._use_engine:
            all_hooks = hooks_of_evaluation(all_hooks)
        return super()._evaluate_run(checkpoint_path, scaffold, update_op, eval_dict, all_hooks,
                                     output_dir)


def _in_loops(hooks: Sequence[tf.compat.v1.train.SessionRunHook], length: loop_length.LoopLength,
              steps: Steps, feed: EmbeddingHook,
              **options: Any) -> list[tf.compat.v1.train.SessionRunHook]:
    host_calls = [hook for hook in hooks if isinstance(hook, _HostCallHook)]
    return [*(hook for hook in hooks if hook not in host_calls),
            StepLoop(length, steps, feed, host_calls=host_calls, **options)]


def _feed_of(hooks: Sequence[tf.compat.v1.train.SessionRunHook]) -> EmbeddingHook:
    [feed] = [hook for hook in hooks if isinstance(hook, EmbeddingHook)]
    return feed
