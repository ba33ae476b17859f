# SPDX-License-Identifier: Apache-2.0
"""Converts the result of a model_fn to the spec that Estimator runs."""

import math
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.step_ids import describe_kernels
from tpu_estimator_embedding.estimator import upstream
from tpu_estimator_embedding.estimator.loop_length import LoopLength
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

ModeKeys = upstream.model_fn.ModeKeys


def to_estimator_spec(spec: Any, mode: str, *, allow_estimator_spec: bool) -> Any:
    """Returns an `EstimatorSpec`; `host_call` and `eval_metrics` become ops and hooks.

    Call it after the tables exist: `scaffold_fn` runs here and may initialize them.

    Args:
        spec: a `TPUEstimatorSpec` or an `EstimatorSpec`.
        mode: TRAIN, EVAL or PREDICT.
        allow_estimator_spec: whether an `EstimatorSpec` is allowed outside of TRAIN.

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


def log_hooks(loss: Any, batch_size: int, every_n_steps: int | None, length: LoopLength,
              output_dir: str) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks that log loss, steps and examples per second.

    They are called after loops. As upstream's, they log after the loop that completes
    `every_n_steps`, and once per loop if its length is given in seconds.
    """
    if every_n_steps is None:
        return []
    tensors = {"loss": loss, "step": tf.compat.v1.train.get_global_step()}
    if length.seconds is None:
        often: dict[str, Any] = {"every_n_steps": every_n_steps}
        log = tf.compat.v1.train.LoggingTensorHook(
            tensors, every_n_iter=math.ceil(every_n_steps / (length.steps or 1)))
    else:
        often = {"every_n_secs": length.seconds, "every_n_steps": None}
        log = tf.compat.v1.train.LoggingTensorHook(tensors, every_n_secs=length.seconds)
    return [log, upstream.tpu_estimator.ExamplesPerSecondHook(
        batch_size, output_dir=output_dir, **often)]


def check_steps(steps: Any, max_steps: Any) -> None:
    """Checks `steps` and `max_steps` of a training.

    Raises:
        ValueError: if neither is given, or one is not positive.
        TypeError: if one is not an int.
    """
    checks.check_with_sentence(steps is not None or max_steps is not None,
                      "For TPU training, one of `steps` or `max_steps` must be set. Cannot be "
                      "both `None`.", "Pass one to train(), or set use_tpu=False.")
    for name, value in (("Train steps", steps), ("Train max_steps", max_steps)):
        if value is not None:
            upstream.check_positive_integer(value, name)


def describe_start(mode: str, plan: EmbeddingPlan, num_replicas: int, *, portable: bool) -> str:
    """Returns a description of what starts: the mode, and the number of hosts and replicas.

    >>> describe_start("train", EmbeddingPlan.build([], []), 2, portable=False)
    'train without embeddings, 2 replicas'
    """
    replicas = f"{num_replicas} replica{'s' if num_replicas > 1 else ''}"
    if not plan.tables:
        return f"{mode} without embeddings, {replicas}"
    return (f"{mode} with the embedding engine (TPU numerics), {plan.num_hosts} host"
            f"{'s' if plan.num_hosts > 1 else ''}, {replicas}, kernels: "
            f"{describe_kernels(plan, portable=portable)}")


def log_start(what: str, plan: EmbeddingPlan | None = None) -> None:
    """Logs what starts, and the tables."""
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", what)
    if plan is not None and plan.tables:
        tf.compat.v1.logging.info("%s", plan)
