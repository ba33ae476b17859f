# SPDX-License-Identifier: Apache-2.0
"""Runs an evaluation or a prediction whose graph is built."""

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.training import evaluation as tf_evaluation

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.estimator_call import ModelGraph
from tpu_estimator_embedding.estimator.hooks.input_end import only_input_ends
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.hooks.step_loop import Steps, in_loops
from tpu_estimator_embedding.estimator.input.feeding import InputFeed
from tpu_estimator_embedding.estimator.step_session import StepSessionCreator, reach_local_variables
from tpu_estimator_embedding.types import Structure, Tensor

_GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP
_FIX_OF_BATCHES = "To get whole batches, pass yield_single_examples=False to `predict`."
_TIME = "%Y-%m-%dT%H:%M:%S"


class EvaluationOps(NamedTuple):
    """What an evaluation runs, in the order of `Estimator._evaluate_build_graph`.

    Attributes:
        scaffold: the ops that initialize and restore.
        update: the op of a step.
        values: name -> value of every metric, of the loss and of `global_step`.
        hooks: those of the input, of the program and of the model.
    """

    scaffold: tf.compat.v1.train.Scaffold
    update: tf.Operation
    values: Mapping[str, Tensor]
    hooks: Sequence[tf.compat.v1.train.SessionRunHook]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An evaluation whose graph, the default one, is built.

    Attributes:
        ops: what it runs.
        input_ops: names of the ops whose OutOfRangeError is the end of the input; None means any.
        master: the target of the session.
        session_config: its configuration.
        checkpoint_path: the checkpoint to restore; None evaluates initial values.
        output_dir: the directory of the summaries.
        length: the length of a loop; without a limit, as on a TPU, it has all steps.
    """

    ops: EvaluationOps
    input_ops: Collection[str] | None
    master: str
    session_config: tf.compat.v1.ConfigProto | None
    checkpoint_path: str | None
    output_dir: str
    length: LoopLength


def evaluation_ops(graph: ModelGraph, hooks: Sequence[tf.compat.v1.train.SessionRunHook]
                   ) -> EvaluationOps:
    """Returns what evaluates a model with the hooks of a program.

    Raises:
        ValueError: if the model has a metric of a name that Estimator uses.
    """
    spec = graph.spec
    metrics = upstream.estimator._verify_and_create_loss_metric(spec.eval_metric_ops, spec.loss)
    checks.check_with_sentence(
        _GLOBAL_STEP not in metrics, "Metric with name `global_step` is not allowed, because "
        "Estimator already defines a default metric with the same name.", "Rename it.")
    update, values = upstream.estimator._extract_metric_update_ops(metrics)
    return EvaluationOps(
        _with_local_variables(spec.scaffold), update,
        {**values, _GLOBAL_STEP: tf.compat.v1.train.get_global_step()},
        [*graph.input_hooks, *hooks, *(spec.evaluation_hooks or ())])


def stop_hooks(steps: int | None) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hook that ends an evaluation after so many steps; none if `steps` is None."""
    return [] if steps is None else [tf_evaluation._StopAfterNEvalsHook(num_evals=steps)]


def has_end(hooks: Sequence[tf.compat.v1.train.SessionRunHook]) -> bool:
    """Whether one of the hooks is that of `stop_hooks`."""
    return any(isinstance(hook, tf_evaluation._StopAfterNEvalsHook) for hook in hooks)


def evaluate(evaluation: Evaluation) -> dict[str, Any]:
    """Runs an evaluation, all of its steps in one loop if their number is known.

    Returns:
        Name -> value of every metric, and `global_step`.
    """
    scaffold, update, values, hooks = evaluation.ops
    final = tf.compat.v1.train.FinalOpsHook(values)
    stops = [hook for hook in hooks if isinstance(hook, tf_evaluation._StopAfterNEvalsHook)]
    feeds = [hook for hook in hooks if isinstance(hook, InputFeed)]
    updates = _counted([update], stops)
    if feeds and stops:
        steps = Steps(tf_evaluation._get_or_create_eval_step, lambda: stops[0]._num_evals)
        hooks = in_loops(hooks, evaluation.length, steps, feeds[0], fetches_values=True)
    creator = StepSessionCreator(scaffold, evaluation.master, evaluation.session_config,
                                 checkpoint_path=evaluation.checkpoint_path)
    start = time.time()
    tf.compat.v1.logging.info("Starting evaluation at %s", time.strftime(_TIME, time.localtime()))
    with (_input_ends(evaluation.input_ops),
          tf.compat.v1.train.MonitoredSession(creator, [*hooks, final]) as session):
        while not session.should_stop():
            with _input_ends(evaluation.input_ops):
                session.run(updates)
    tf.compat.v1.logging.info("Inference Time : %.5fs", time.time() - start)
    tf.compat.v1.logging.info("Finished evaluation at %s", time.strftime(_TIME, time.localtime()))
    results = final.final_ops_values
    _write_summaries(evaluation, results)
    return results


def _input_ends(input_ops: Collection[str] | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if input_ops is None else only_input_ends(input_ops)


def predictions(graph: ModelGraph, fetches: Structure,
                hooks: Sequence[tf.compat.v1.train.SessionRunHook], master: str,
                session_config: tf.compat.v1.ConfigProto | None,
                checkpoint_path: str | None) -> Iterator[Structure]:
    """Yields what a prediction fetches of each batch of the input.

    Args:
        graph: the model and its input.
        fetches: the predictions to fetch.
        hooks: those of the program.
        master: the target of the session.
        session_config: its configuration.
        checkpoint_path: the checkpoint to restore; None predicts by initial values.
    """
    creator = StepSessionCreator(graph.spec.scaffold, master, session_config,
                                 checkpoint_path=checkpoint_path)
    with (only_input_ends(graph.input_ops),
          tf.compat.v1.train.MonitoredSession(creator, [
              *graph.input_hooks, *hooks, *(graph.spec.prediction_hooks or ())]) as session):
        while not session.should_stop():
            with only_input_ends(graph.input_ops):
                fetched = session.run(fetches)
            yield fetched


def samples(batch: Structure) -> Iterator[Structure]:
    """Yields the predictions of each sample of a batch.

    Args:
        batch: predictions `[batch, ...]`, or name -> predictions.

    Raises:
        ValueError: if there are no predictions, or they have no batch dimension, or batches of
            different sizes.
    """
    sizes = {name: _batch_size(name, values) for name, values in (
        batch.items() if isinstance(batch, dict) else [("", batch)])}
    if not sizes:
        raise ValueError("Missing predictions. Return at least one prediction from model_fn, as a "
                         "tensor or a dictionary of tensors.")
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Batch length of predictions should be same. Batch sizes are {sizes}. "
                         f"{_FIX_OF_BATCHES}")
    for index in range(min(sizes.values())):
        yield ({name: values[index] for name, values in batch.items()}
               if isinstance(batch, dict) else batch[index])


def _batch_size(name: str, values: Any) -> int:
    shape = getattr(values, "shape", ())
    if not shape:
        raise ValueError("Batch length of predictions should be same. Prediction "
                         f"{f'{name!r} ' if name else ''}has no batch dimension. Return a value "
                         f"for each sample from model_fn. {_FIX_OF_BATCHES}")
    return int(shape[0])


def _with_local_variables(scaffold: tf.compat.v1.train.Scaffold
                          ) -> tf.compat.v1.train.Scaffold:
    """Returns a Scaffold whose `local_init_op` initializes the count of steps, too."""
    if scaffold.local_init_op is None:
        return scaffold
    tf_evaluation._get_or_create_eval_step()
    return tf.compat.v1.train.Scaffold(
        local_init_op=reach_local_variables(scaffold.local_init_op),
        copy_from_scaffold=scaffold)


def _counted(updates: Sequence[tf.Operation | Tensor],
             stops: Sequence[tf.compat.v1.train.SessionRunHook]) -> list[tf.Operation | Tensor]:
    """Returns the updates of a step, with the count of steps, which hooks that stop fetch."""
    step = tf_evaluation._get_or_create_eval_step()
    updates = [*updates, tf.compat.v1.assign_add(step, 1, use_locking=True)]
    with tf.control_dependencies(updates):
        completed = tf.identity(step.read_value())
    for hook in stops:
        hook._set_evals_completed_tensor(completed)
    return [*updates, completed]


def _write_summaries(evaluation: Evaluation, results: Mapping[str, Any]) -> None:
    step = results[_GLOBAL_STEP]
    upstream.estimator._write_dict_to_summary(evaluation.output_dir, results, step)
    if evaluation.checkpoint_path:
        upstream.estimator._write_checkpoint_path_to_summary(
            evaluation.output_dir, evaluation.checkpoint_path, step)
