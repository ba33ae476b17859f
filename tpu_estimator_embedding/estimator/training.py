# SPDX-License-Identifier: Apache-2.0
"""Runs a training whose graph is built: its hooks, its savers, its session and the loop of runs."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.program_savers import shard_savers
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.cluster.recovery import recovering
from tpu_estimator_embedding.estimator.estimator_call import ModelGraph
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import StepStatistics
from tpu_estimator_embedding.estimator.hooks.input_end import only_input_ends
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.hooks.step_loop import Steps, in_loops
from tpu_estimator_embedding.estimator.hooks.training_hooks import (
    SavingChoice,
    TrainingHooks,
    with_saver_hooks,
)
from tpu_estimator_embedding.estimator.step_session import StepSessionCreator, StepSessionManager
from tpu_estimator_embedding.types import RunConfig, Tensor

_WORKER, _MASTER = "worker", "master"  # jobs of TF_CONFIG


@dataclasses.dataclass(frozen=True)
class Training:
    """A training whose graph, the default one, is built.

    Attributes:
        graph: the model and its input.
        hooks: those of the program, and the one that ends the training.
        listeners: what the program calls around checkpoints.
        config: the RunConfig.
        session_config: the configuration of sessions.
        model_dir: the directory of checkpoints and summaries.
        saving: how it saves.
        servers: devices of the parameter servers; empty without a cluster.
        is_synchronous: whether the workers of a cluster train synchronously.
        length: the length of a loop of the engine's steps.
        is_stopping: whether a loop is to end early.
    """

    graph: ModelGraph
    hooks: Sequence[tf.compat.v1.train.SessionRunHook]
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
    config: RunConfig
    session_config: tf.compat.v1.ConfigProto | None
    model_dir: str
    saving: SavingChoice
    servers: Sequence[str]
    is_synchronous: bool
    length: LoopLength
    is_stopping: Callable[[], bool]


def train(training: Training) -> Any:
    """Runs a training to its end.

    Returns:
        The loss of the last step; None if there was no step.

    Raises:
        ValueError: if there are listeners and nothing saves.
    """
    spec, config = training.graph.spec, training.config
    _record_loss(spec.loss)
    hooks = TrainingHooks(
        [*training.graph.input_hooks, *training.hooks,
         tf.compat.v1.train.NanTensorHook(spec.loss), *_hooks_of_model(training)],
        list(spec.training_chief_hooks))
    _add_saver(spec.scaffold, config)
    # Where the training fails, too, the checkpoint that is being written is completed.
    with ThreadPoolExecutor(1, "saves checkpoints") as thread:
        hooks = with_saver_hooks(hooks, spec.scaffold, config, training.model_dir,
                                 training.saving, thread)
        _add_listeners(hooks.savers, training.listeners)
        hooks = _with_summaries(hooks, training)
        if not training.servers:
            return _run(training, hooks.in_session(config.is_chief), StepSessionManager)
        shard_savers(spec.scaffold, hooks.all)
        with recovering(config, spec.train_op, training.is_stopping,
                        is_synchronous=training.is_synchronous) as recovery:
            return _run(training, hooks.in_session(config.is_chief, recovery.hooks),
                        recovery.manager)


def stop_hook_in_place(hooks: Sequence[tf.compat.v1.train.SessionRunHook]
                       ) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks, with TensorFlow's StopAtStepHook in the place of the one for a TPU.

    The latter sets a variable of the loop that a TPU runs.
    """
    return [tf.compat.v1.train.StopAtStepHook(hook._num_steps, hook._final_step)
            if isinstance(hook, upstream.tpu_estimator._TPUStopAtStepHook) else hook
            for hook in hooks]


def _record_loss(loss: Tensor) -> None:
    """Puts the loss where TensorFlow has it, and summarizes it unless the model does."""
    keys = tf.compat.v1.GraphKeys
    if "loss" not in (summary.op.name for summary in tf.compat.v1.get_collection(keys.SUMMARIES)):
        tf.compat.v1.summary.scalar("loss", loss)
    tf.compat.v1.add_to_collection(keys.LOSSES, loss)


def _hooks_of_model(training: Training) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks of the model, the last ones of a session, that train in loops."""
    of_model, feed = list(training.graph.spec.training_hooks), training.graph.feed
    if feed is None:
        return of_model
    # The last one, because a program's own ones come first.
    [*_, stop] = [hook for hook in training.hooks
                  if isinstance(hook, tf.compat.v1.train.StopAtStepHook)]
    # Measured steps need not be the last of a loop.
    is_measured = any(isinstance(hook, StepStatistics) for hook in of_model)
    return in_loops(
        of_model, LoopLength(steps=1) if is_measured else training.length,
        Steps(tf.compat.v1.train.get_global_step, lambda: stop._last_step), feed,
        is_stopping=training.is_stopping,
        host_call_every_n_steps=training.config.tpu_config.experimental_host_call_every_n_steps)


def _add_saver(scaffold: tf.compat.v1.train.Scaffold, config: RunConfig) -> None:
    """Adds the Saver that the Scaffold finds, unless the program has one."""
    savers = tf.compat.v1.GraphKeys.SAVERS
    if not (scaffold.saver or tf.compat.v1.get_collection(savers)):
        tf.compat.v1.add_to_collection(savers, tf.compat.v1.train.Saver(
            sharded=True, max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True, save_relative_paths=True))


def _add_listeners(savers: Sequence[tf.compat.v1.train.CheckpointSaverHook],
                   listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]) -> None:
    """Adds the listeners to the first of the hooks that save."""
    checks.check_with_sentence(
        bool(savers) or not listeners, "There should be a CheckpointSaverHook to use "
        "saving_listeners. Please set one of the RunConfig.save_checkpoints_steps or "
        "RunConfig.save_checkpoints_secs.", f"Got {len(listeners)} listeners.")
    for listener in listeners:
        if listener not in savers[0]._listeners:
            savers[0]._listeners.append(listener)


def _with_summaries(hooks: TrainingHooks, training: Training) -> TrainingHooks:
    """Adds the hook that writes summaries, to the task that writes them.

    It is the chief. A master that evaluates, too, leaves it to the first of its workers.
    """
    config = training.config
    if not config.save_summary_steps or config.save_summary_steps <= 0:
        return hooks
    new_hook = functools.partial(
        tf.compat.v1.train.SummarySaverHook, save_steps=config.save_summary_steps,
        output_dir=training.model_dir, scaffold=training.graph.spec.scaffold)
    jobs = config.cluster_spec.jobs if config.cluster_spec else ()
    if not {_WORKER, _MASTER} <= set(jobs):
        return hooks._replace(of_chief=[*hooks.of_chief, new_hook()])
    if config.task_type == _WORKER and config.task_id == 0:
        return hooks._replace(of_all=[*hooks.of_all, new_hook()])
    return hooks


def _run(training: Training, hooks: Sequence[tf.compat.v1.train.SessionRunHook],
         manager: Callable[..., StepSessionManager]) -> Any:
    """Runs steps until a hook or the end of the input stops the session."""
    (spec, _, _, input_ops), config = training.graph, training.config
    creator = StepSessionCreator(
        spec.scaffold, config.master, training.session_config,
        checkpoint_dir=training.model_dir, is_chief=config.is_chief,
        max_wait_secs=config.session_creation_timeout_secs, manager=manager)
    loss, num_runs = None, 0
    with (only_input_ends(input_ops),
          tf.compat.v1.train.MonitoredSession(creator, hooks) as session):
        while not session.should_stop():
            num_runs += 1
            with (tf.profiler.experimental.Trace("train", step_num=num_runs, _r=1),
                  only_input_ends(input_ops)):
                _, loss = session.run([spec.train_op, spec.loss])
    if not num_runs:
        tf.compat.v1.logging.warn("Training with estimator made no steps. Perhaps input is empty "
                                  "or misspecified.")
    return loss
