# SPDX-License-Identifier: Apache-2.0
"""When a training saves, and the hooks that do so in another way than TensorFlow's.

It can go on during a save, and leave out the one at its start. The arguments of TPUEstimator
override the settings.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.checkpoint.async_saver_hook import SaverHook
from tpu_estimator_embedding.checkpoint.program_savers import that_save
from tpu_estimator_embedding.types import RunConfig


class SavingChoice(NamedTuple):
    """How a training saves.

    Attributes:
        is_asynchronous: whether steps go on while a checkpoint is written.
        at_start: whether it saves when its session begins.
    """

    is_asynchronous: bool
    at_start: bool

    @property
    def is_tensorflows(self) -> bool:
        """Whether TensorFlow's own hook saves so."""
        return self.at_start and not self.is_asynchronous


def saving_choice(async_checkpoints: bool | None, checkpoint_at_start: bool | None) -> SavingChoice:
    """Returns what a program gave; the defaults of its command line if it gave nothing.

    Raises:
        ValueError: if something else was given.
    """
    checks.check_one_of("async_checkpoints", (True, False, None), async_checkpoints)
    checks.check_one_of("checkpoint_at_start", (True, False, None), checkpoint_at_start)
    return SavingChoice(
        settings.ASYNC_CHECKPOINTS.read() if async_checkpoints is None else async_checkpoints,
        settings.CHECKPOINT_AT_START.read() if checkpoint_at_start is None
        else checkpoint_at_start)


class TrainingHooks(NamedTuple):
    """The hooks of a training.

    Attributes:
        of_all: those of every task.
        of_chief: those that the chief has in addition, before them.
    """

    of_all: list[tf.compat.v1.train.SessionRunHook]
    of_chief: list[tf.compat.v1.train.SessionRunHook]

    @property
    def all(self) -> list[tf.compat.v1.train.SessionRunHook]:
        """All hooks."""
        return [*self.of_all, *self.of_chief]

    @property
    def savers(self) -> list[tf.compat.v1.train.CheckpointSaverHook]:
        """Those that save checkpoints."""
        return list(that_save(self.all))

    def in_session(self, is_chief: bool,
                   first: Sequence[tf.compat.v1.train.SessionRunHook] = ()
                   ) -> list[tf.compat.v1.train.SessionRunHook]:
        """Returns the hooks of a task's session, `first` before others of every task."""
        return [*(self.of_chief if is_chief else ()), *first, *self.of_all]


def with_saver_hooks(hooks: TrainingHooks, scaffold: tf.compat.v1.train.Scaffold,
                     config: RunConfig, model_dir: str, choice: SavingChoice,
                     thread: Executor) -> TrainingHooks:
    """Returns the hooks of a training that saves as chosen.

    In the place of a CheckpointSaverHook that a program has made stands one that saves as chosen,
    with the same listeners; the program's own one stays as it is, for another training. Without one
    there is the one that the configuration wants.

    Args:
        hooks: those of the training.
        scaffold: the Scaffold of its session.
        config: its RunConfig.
        model_dir: the directory of its checkpoints.
        choice: how it saves.
        thread: writes checkpoints while it goes on.
    """
    is_saving = config.save_checkpoints_secs or config.save_checkpoints_steps
    if is_saving and not hooks.savers:
        own = tf.compat.v1.train.CheckpointSaverHook(
            model_dir, save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps, scaffold=scaffold,
            save_graph_def=config.checkpoint_save_graph_def)
        hooks = hooks._replace(of_chief=[own, *hooks.of_chief])
    replaced = {id(hook): _chosen(hook, choice, thread) for hook in hooks.savers}
    return TrainingHooks(_exchanged(hooks.of_all, replaced), _exchanged(hooks.of_chief, replaced))


def _exchanged(hooks: Sequence[tf.compat.v1.train.SessionRunHook],
               replaced: Mapping[int, tf.compat.v1.train.SessionRunHook]
               ) -> list[tf.compat.v1.train.SessionRunHook]:
    return [replaced.get(id(hook), hook) for hook in hooks]


def _chosen(hook: tf.compat.v1.train.CheckpointSaverHook, choice: SavingChoice,
            thread: Executor) -> tf.compat.v1.train.CheckpointSaverHook:
    """Returns a hook that saves as chosen, where a program has made one."""
    is_own = isinstance(hook, SaverHook)  # which saves while training goes on, whatever is chosen
    if is_own or (type(hook) is tf.compat.v1.train.CheckpointSaverHook
                  and not choice.is_tensorflows):
        return SaverHook.like(hook, saves_at_start=choice.at_start,
                              thread=thread if is_own or choice.is_asynchronous else None)
    if choice.is_tensorflows:
        return hook
    tf.compat.v1.logging.warning(
        "tpu_estimator_embedding: %s, a class of the program, saves %s.", type(hook).__name__,
        "between steps, not while training continues" if choice.is_asynchronous
        else "also at the start of training")
    return hook
