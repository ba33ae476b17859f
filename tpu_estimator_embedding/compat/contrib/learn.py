# SPDX-License-Identifier: Apache-2.0
"""The parts of `tf.contrib.learn` that programs for `tf.estimator` used."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import model_fn, run_config

v1 = tf.compat.v1
_UNSET = object()


class ModeKeys(model_fn.ModeKeys):
    """The modes of `tf.estimator`, and `INFER` as a second name of `PREDICT`."""

    INFER = model_fn.ModeKeys.PREDICT


class RunConfig(run_config.RunConfig):
    """A RunConfig of `tf.estimator`, with the arguments of `tf.contrib.learn.RunConfig`.

    Args:
        master: must be None or empty; TF_CONFIG describes clusters.
        num_cores: number of threads of the session; 0 leaves the choice to TensorFlow.
        log_device_placement: whether to log the devices of all ops.
        gpu_memory_fraction: fraction of a GPU's memory to use.
        evaluation_master: must be empty; TF_CONFIG describes clusters.
        session_config: a ConfigProto, instead of the three arguments above.
        save_checkpoints_secs: interval of checkpoints; by default 600, or None if
            `save_checkpoints_steps` is given.
        others: as in `tf.estimator.RunConfig`.

    Raises:
        ValueError: if a master is given, or `session_config` and an argument that it replaces.
    """

    def __init__(self, master: str | None = None, num_cores: int = 0,
                 log_device_placement: bool = False, gpu_memory_fraction: float = 1,
                 tf_random_seed: int | None = None, save_summary_steps: int = 100,
                 save_checkpoints_secs: Any = _UNSET, save_checkpoints_steps: int | None = None,
                 keep_checkpoint_max: int = 5, keep_checkpoint_every_n_hours: int = 10000,
                 log_step_count_steps: int = 100, protocol: str | None = None,
                 evaluation_master: str = "", model_dir: str | None = None,
                 session_config: tf.compat.v1.ConfigProto | None = None) -> None:
        for name, value in (("master", master), ("evaluation_master", evaluation_master)):
            if value:
                raise ValueError(f"`{name}` must be empty, got {value!r}. Set TF_CONFIG, or use "
                                 f"tf.estimator.tpu.RunConfig({name}=...).")
        if save_checkpoints_secs is _UNSET:
            save_checkpoints_secs = None if save_checkpoints_steps else 600
        super().__init__(
            model_dir=model_dir, tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps, save_checkpoints_secs=save_checkpoints_secs,
            save_checkpoints_steps=save_checkpoints_steps, session_config=_session_config(
                session_config, num_cores, log_device_placement, gpu_memory_fraction),
            keep_checkpoint_max=keep_checkpoint_max, protocol=protocol,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps)


def _session_config(given: tf.compat.v1.ConfigProto | None, num_cores: int,
                    log_device_placement: bool,
                    gpu_memory_fraction: float) -> tf.compat.v1.ConfigProto | None:
    if (num_cores, log_device_placement, gpu_memory_fraction) == (0, False, 1):
        return given
    if given is not None:
        raise ValueError(
            "`session_config` replaces `num_cores`, `log_device_placement` and "
            f"`gpu_memory_fraction`, got both `session_config` and {num_cores}, "
            f"{log_device_placement} and {gpu_memory_fraction}. Set them in `session_config`.")
    return v1.ConfigProto(
        allow_soft_placement=True, log_device_placement=log_device_placement,
        intra_op_parallelism_threads=num_cores, inter_op_parallelism_threads=num_cores,
        gpu_options=v1.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction))


def replace_monitors_with_hooks(monitors_or_hooks: Sequence[object] | None,
                                estimator: object) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks as a list; monitors, which no longer exist, are refused.

    Raises:
        TypeError: if an element is not a `SessionRunHook`.
    """
    hooks = list(monitors_or_hooks or ())
    for hook in hooks:
        if not isinstance(hook, v1.train.SessionRunHook):
            raise TypeError("`monitors_or_hooks` must have hooks, because TensorFlow 2.0 removed "
                            f"monitors, got {hook!r}. Derive it from tf.train.SessionRunHook.")
    return hooks
