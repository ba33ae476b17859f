# SPDX-License-Identifier: Apache-2.0
"""From what a model_fn returned to the spec that Estimator runs."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.step_ids import describe_kernels
from tpu_estimator_embedding.estimator import upstream
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

ModeKeys = upstream.model_fn.ModeKeys


class HostCallHook(tf.compat.v1.train.SessionRunHook):
    """Runs another hook at every n-th global step only, as `host_call` on a TPU."""

    def __init__(self, hook: tf.compat.v1.train.SessionRunHook, every_n_steps: int):
        """Takes the hook and n."""
        self._hook = hook
        self._every_n_steps = every_n_steps
        self._step = 0

    def begin(self) -> None:
        """Begins the hook."""
        self._hook.begin()
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Passes the session on, and goes on where training was."""
        self._hook.after_create_session(session, coord)
        self._step = int(session.run(self._global_step))

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs | None:
        """Asks for the host call's ops where the step before the run is a multiple of n."""
        is_due = self._step % self._every_n_steps == 0
        self._step += 1
        return self._hook.before_run(run_context) if is_due else None

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the hook."""
        self._hook.end(session)


def to_estimator_spec(spec: Any, mode: str, *, allow_estimator_spec: bool,
                      host_call_every_n_steps: int = 1) -> Any:
    """Returns an `EstimatorSpec`; `host_call` and `eval_metrics` become ops and hooks.

    To be called when the tables exist: `scaffold_fn` runs here and may initialize them.

    Args:
        spec: a `TPUEstimatorSpec` or an `EstimatorSpec`.
        mode: TRAIN, EVAL or PREDICT.
        allow_estimator_spec: whether an `EstimatorSpec` will do outside of TRAIN.
        host_call_every_n_steps: how often the host call runs in TRAIN.

    Raises:
        RuntimeError: for an `EstimatorSpec` where a `TPUEstimatorSpec` is needed.
        ValueError: for anything else, or if `training_chief_hooks` are set.
    """
    if isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        return _with_rare_host_calls(spec.as_estimator_spec(), host_call_every_n_steps)
    if not isinstance(spec, upstream.model_fn.EstimatorSpec):
        raise ValueError(f"model_fn must return a TPUEstimatorSpec, got {type(spec).__name__}.")
    if mode != ModeKeys.TRAIN and not allow_estimator_spec:
        raise RuntimeError(f"model_fn must return a TPUEstimatorSpec in mode {mode!r} with "
                           "use_tpu=True, got an EstimatorSpec.")
    if spec.training_chief_hooks:
        raise ValueError("`training_chief_hooks` must be empty, got "
                         f"{spec.training_chief_hooks!r}. Pass them as `training_hooks`.")
    return spec


def _with_rare_host_calls(spec: Any, every_n_steps: int) -> Any:
    if every_n_steps == 1:
        return spec
    hooks = [HostCallHook(hook, every_n_steps)
             if isinstance(hook, upstream.tpu_estimator._OutfeedHostCallHook) else hook
             for hook in spec.training_hooks]
    return spec._replace(training_hooks=tuple(hooks))


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


def check_steps(steps: Any, max_steps: Any) -> None:
    """Checks how long to train.

    Raises:
        ValueError: if neither is given, or one is not positive.
        TypeError: if one is not an int.
    """
    checks.check_said(steps is not None or max_steps is not None,
                      "For TPU training, one of `steps` or `max_steps` must be set. Cannot be "
                      "both `None`.", "Pass one to train(), or set use_tpu=False.")
    for name, value in (("Train steps", steps), ("Train max_steps", max_steps)):
        if value is not None:
            upstream.check_positive_integer(value, name)


def describe_start(mode: str, plan: EmbeddingPlan, num_replicas: int, *, portable: bool) -> str:
    """Returns what starts: the mode, and how many of what.

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
    """Says what starts, and on which tables."""
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", what)
    if plan is not None and plan.tables:
        tf.compat.v1.logging.info("%s", plan)
