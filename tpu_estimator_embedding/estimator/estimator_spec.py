# SPDX-License-Identifier: Apache-2.0
"""From what a model_fn returned to the spec that Estimator runs."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator import upstream

ModeKeys = upstream.model_fn.ModeKeys


def to_estimator_spec(spec: Any, mode: str, *, allow_estimator_spec: bool) -> Any:
    """Returns an `EstimatorSpec`; `host_call` and `eval_metrics` become ops and hooks.

    To be called when the tables exist: `scaffold_fn` runs here and may initialize them.

    Args:
        spec: a `TPUEstimatorSpec` or an `EstimatorSpec`.
        mode: TRAIN, EVAL or PREDICT.
        allow_estimator_spec: whether an `EstimatorSpec` will do outside of TRAIN.

    Raises:
        RuntimeError: for an `EstimatorSpec` where a `TPUEstimatorSpec` is needed.
        ValueError: for anything else, or if `training_chief_hooks` are set.
    """
    if isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        return spec.as_estimator_spec()
    if not isinstance(spec, upstream.model_fn.EstimatorSpec):
        raise ValueError(f"model_fn must return a TPUEstimatorSpec, got {type(spec).__name__}.")
    if mode != ModeKeys.TRAIN and not allow_estimator_spec:
        raise RuntimeError(f"model_fn must return a TPUEstimatorSpec in mode {mode!r} with "
                           "use_tpu=True, got an EstimatorSpec.")
    if spec.training_chief_hooks:
        raise ValueError("`training_chief_hooks` must be empty, got "
                         f"{spec.training_chief_hooks!r}. Pass them as `training_hooks`.")
    return spec


def log_hooks(loss: Any, batch_size: int, every_n_steps: int | None, output_dir: str
              ) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks that log loss, steps and examples per second."""
    if every_n_steps is None:
        return []
    tensors = {"loss": loss, "step": tf.compat.v1.train.get_global_step()}
    return [
        tf.compat.v1.train.LoggingTensorHook(tensors, every_n_iter=every_n_steps),
        upstream.tpu_estimator.ExamplesPerSecondHook(batch_size, every_n_steps=every_n_steps,
                                       output_dir=output_dir)]
