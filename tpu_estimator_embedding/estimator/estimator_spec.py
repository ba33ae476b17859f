# SPDX-License-Identifier: Apache-2.0
"""Calls a user's model_fn, and converts its result to the spec that Estimator runs.

Also what `train` and `evaluate` check before they start, and what they log.
"""

import copy
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.compat.upstream import fn_args, tpu_estimator
from tpu_estimator_embedding.engine.step_ids import describe_kernels
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.ops.nests import own_containers
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure, Tensor

ModeKeys = upstream.model_fn.ModeKeys


def call_model_fn(model_fn: Callable[..., EstimatorSpec], features: Structure, labels: Structure,
                  mode: str, config: RunConfig, params: Structure,
                  added_params: Mapping[str, object]) -> EstimatorSpec:
    """Returns what `model_fn` returns.

    Args:
        model_fn: takes `features`, `params` and any of `labels`, `mode`, `config`.
        features: the features, activations among them; the model_fn gets its own containers.
        labels: the labels, or None; likewise.
        mode: TRAIN, EVAL or PREDICT.
        config: the run configuration; the model_fn gets a copy.
        params: the user's parameters; the model_fn gets a copy with `added_params`.
        added_params: `batch_size`, `context` and `use_tpu`, where they apply.

    Raises:
        ValueError: if the model_fn lacks a required argument.
    """
    accepted = fn_args(model_fn)
    checks.check_with_sentence(
        "params" in accepted, f"model_fn ({model_fn}) does not include params argument, required "
        "by TPUEstimator to pass batch size as params['batch_size'].",
        f"Add `params` to its arguments, which are {accepted}.")
    checks.check_with_sentence(
        "labels" in accepted or labels is None,
        "model_fn does not take labels, but input_fn returns labels.",
        f"Add `labels` to its arguments, which are {accepted}, or return features alone.")
    features, labels = own_containers((features, labels))
    given = {"labels": labels, "mode": mode, "config": copy.deepcopy(config),
             "params": _with(params, added_params)}
    return model_fn(features=features,
                    **{name: value for name, value in given.items() if name in accepted})


def params_for(model_fn: Callable[..., EstimatorSpec] | None, params: Structure) -> Structure:
    """Returns {} for no parameters, of which Estimator warns though `batch_size` is always passed.

    Raises:
        ValueError: if `model_fn` is None.
    """
    checks.check(model_fn is not None, "model_fn", "a function", model_fn,
                 sentence="model_fn must be provided to Estimator.")
    return {} if params is None and callable(model_fn) and "params" in fn_args(model_fn) else params


def _with(params: Structure, added: Mapping[str, object]) -> Structure:
    """Returns a copy of `params`, a dictionary or an `HParams`, with more entries."""
    params = copy.deepcopy(params)
    for key, value in added.items():
        tpu_estimator._add_item_to_params(params, key, value)
    return params


def check_is_spec(spec: object, mode: str, *, allow_estimator_spec: bool) -> None:
    """Checks what a model_fn returned.

    Args:
        spec: what it returned.
        mode: TRAIN, EVAL or PREDICT.
        allow_estimator_spec: whether an `EstimatorSpec` is allowed outside of TRAIN.

    Raises:
        RuntimeError: for anything else where a `TPUEstimatorSpec` is needed.
        ValueError: for anything else in other modes.
    """
    if isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        return
    if mode != ModeKeys.TRAIN and not allow_estimator_spec:
        what = "evaluation" if mode == ModeKeys.EVAL else "prediction"
        raise RuntimeError(f"estimator_spec used by TPU {what} must have type`TPUEstimatorSpec`. "
                           f"Got {type(spec)}. Return a TPUEstimatorSpec from model_fn, or pass "
                           "eval_on_tpu=False.")
    checks.check_with_sentence(
        isinstance(spec, upstream.model_fn.EstimatorSpec),
        "model_fn should return an EstimatorSpec.",
        f"Return a TPUEstimatorSpec in mode {mode!r}, got {type(spec).__name__}.")


def to_estimator_spec(spec: Any) -> upstream.model_fn.EstimatorSpec:
    """Returns an `EstimatorSpec`; `host_call` and `eval_metrics` become ops and hooks.

    Call it after the tables exist: `scaffold_fn` runs here and may initialize them.

    Args:
        spec: a `TPUEstimatorSpec` or an `EstimatorSpec`.

    Raises:
        ValueError: if `training_chief_hooks` are set.
    """
    if isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        # TensorFlow keeps these in the class, where every other spec, of any thread, replaces them.
        spec._host_calls = {name: call for name in ("eval_metrics", "host_call")
                            if (call := getattr(spec, name)) is not None}
        return spec.as_estimator_spec()
    checks.check_with_sentence(
        not spec.training_chief_hooks,
        "training_chief_hooks returned by EstimatorSpec is not supported in TPUEstimator.",
        f"Pass them as `training_hooks`, got {spec.training_chief_hooks!r}.")
    return spec


def log_hooks(loss: Tensor, step: Tensor, batch_size: int, every_n_steps: int | None,
              length: LoopLength, output_dir: str) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks that log loss, steps and examples per second.

    They are called after loops. As upstream's, they log after the loop that completes
    `every_n_steps`, and once per loop if its length is given in seconds.

    Args:
        loss: the loss of a step.
        step: the number of steps after it.
        batch_size: samples in a step.
        every_n_steps: None logs nothing.
        length: the length of a loop.
        output_dir: the directory of the event files.
    """
    if every_n_steps is None:
        return []
    tensors = {"loss": loss, "step": step}
    if length.seconds is None:
        often: dict[str, float | None] = {"every_n_steps": every_n_steps}
        log = tf.compat.v1.train.LoggingTensorHook(
            tensors, every_n_iter=math.ceil(every_n_steps / (length.steps or 1)))
    else:
        often = {"every_n_secs": length.seconds, "every_n_steps": None}
        log = tf.compat.v1.train.LoggingTensorHook(tensors, every_n_secs=length.seconds)
    return [log, upstream.tpu_estimator.ExamplesPerSecondHook(
        batch_size, output_dir=output_dir, **often)]


def check_train_steps(steps: int | None, max_steps: int | None) -> None:
    """Checks `steps` and `max_steps` of a training; Estimator checks that they are positive.

    Raises:
        ValueError: if neither is given.
        TypeError: if one is not an int.
    """
    checks.check_with_sentence(
        steps is not None or max_steps is not None,
        "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.",
        "Pass one to train(), or set use_tpu=False.")
    for name, value in (("Train steps", steps), ("Train max_steps", max_steps)):
        if value is not None and value > 0:
            check_steps(name, value)


def check_eval_steps(steps: int | None, *, with_engine: bool) -> None:
    """Checks `steps` of an evaluation.

    Raises:
        ValueError: if it is not positive.
        TypeError: if it is not an int; without the engine, TensorFlow allows other numbers.
    """
    if with_engine:
        check_steps("Eval steps", steps)
    elif steps is not None and steps <= 0:
        raise ValueError(f"Must specify steps > 0, given: {steps}")


def check_steps(name: str, value: object) -> None:
    """Checks a number of steps, or None.

    Raises:
        ValueError: if it is not positive.
        TypeError: if it is not an int.
    """
    if value is None:
        return
    try:
        upstream.check_positive_integer(value, name)
    except ValueError as error:
        raise ValueError(f"{error}. Pass an int of at least 1.") from None
    except TypeError as error:
        raise TypeError(f"{error}. Pass an int of at least 1, got {value!r}.") from None


def check_are_numbers(steps: Mapping[str, object]) -> None:
    """Checks that numbers of steps are numbers, before Estimator compares them with others.

    Args:
        steps: name -> number of steps, or None.

    Raises:
        TypeError: if one is anything else.
    """
    for name, value in steps.items():
        if not isinstance(value, numbers.Real):
            check_steps(name, value)


def check_input_fn_and_hooks(input_fn: object, hooks: object) -> None:
    """Checks the arguments that training, evaluation and prediction share.

    Args:
        input_fn: a function.
        hooks: a sequence of SessionRunHooks, or None.

    Raises:
        TypeError: if one is anything else.
    """
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn!r}. Pass the function, "
                        "which returns a Dataset or features and labels.")
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(f"Hooks must be a SessionRunHook, given: {hooks!r}. Pass a list of "
                        "SessionRunHooks as `hooks`.")


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
