# SPDX-License-Identifier: Apache-2.0
"""What becomes of every argument of the Estimator's constructors at the stages of TF2.

An argument is carried over, reported, or has no effect. This table makes a page of the migration
guide:

    cd migration_guide
    python -m tpu_estimator_embedding.migration.constructor_arguments > arguments.rst
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator

CARRIED, REPORTED, NO_EFFECT = "carried", "reported", "no effect"


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a constructor.

    Attributes:
        name: of the argument.
        fate: CARRIED, REPORTED or NO_EFFECT.
        text: where it goes to, what to do about it, or why it has no effect.
        harmless: values, as written, with which a reported argument needs nothing. A name stands
            for an attribute of any module.
    """

    name: str
    fate: str
    text: str
    harmless: tuple[str, ...] = ("None",)


def _carried(name: str, text: str = "of `Trainer`") -> Argument:
    return Argument(name, CARRIED, text)


def _reported(name: str, text: str, *harmless: str) -> Argument:
    return Argument(name, REPORTED, text, ("None", *harmless))


def _no_effect(name: str, text: str) -> Argument:
    return Argument(name, NO_EFFECT, text)


_NO_SESSION = "TF2 has no sessions: use `tf.config`"
_NO_STRATEGY = "a Trainer runs on one machine: build it in the scope of a tf.distribute strategy"
_NO_TPU = "describes the layout of a TPU; this package checks it but does not need it"
_HOOKS = "hooks run in sessions, which TF2 does not have"
_SEED = ("of `Trainer`; initial values without a seed differ in TF2, which is "
         "reported as TEE411")
_CAPTURED = "captured in `embedding_config.py`, which `--capture` writes"

# Constructor -> its arguments, in order; those below "*" are given by name only.
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "TPUEstimator": (
        _carried("model_fn", "the forward function of `Trainer`"),
        _carried("model_dir"),
        _carried("config", "see `RunConfig`"),
        _carried("params"),
        _reported("use_tpu", "a Trainer trains tables with their own optimizers, as with True; "
                  "with False the Estimator trained them with the dense one", "True"),
        _carried("train_batch_size"),
        _carried("eval_batch_size"),
        _carried("predict_batch_size"),
        _reported("batch_axis", "a Trainer has the whole batch, on axis 0"),
        _no_effect("eval_on_tpu", "evaluation computes the same numbers with and without a TPU"),
        _no_effect("export_to_tpu", "no graph for a TPU is exported"),
        _reported("export_to_cpu", "a Trainer exports nothing itself", "True"),
        _reported("warm_start_from", "call Trainer.restore_estimator_checkpoint, or convert the "
                  "checkpoint"),
        _carried("embedding_config_spec", _CAPTURED),
        _no_effect("export_saved_model_api_version", "no graph for a TPU is exported"),
        _no_effect("num_hosts", "the tables of a Trainer are whole, with the same numbers"),
        _no_effect("checkpoint_num_hosts", "the tables of a Trainer are whole; `checkpoint "
                   "convert` reads every partition"),
        _reported("cluster_config", "a Trainer runs in one process"),
        _no_effect("async_checkpoints", "the checkpoints are the same; a program with a Trainer "
                   "saves them itself"),
        _no_effect("checkpoint_at_start", "a program with a Trainer saves itself")),
    "RunConfig": (
        _carried("tpu_config", "see `TPUConfig`"),
        _no_effect("evaluation_master", "there is no TPU to connect to"),
        _no_effect("master", "there is no TPU to connect to"),
        _no_effect("cluster", "there is no TPU to connect to"),
        _carried("model_dir"),
        _carried("tf_random_seed", _SEED),
        _no_effect("save_summary_steps", "a TPUEstimator writes no summaries of model_fn"),
        _carried("save_checkpoints_steps"),
        _carried("save_checkpoints_secs"),
        _reported("session_config", _NO_SESSION),
        _carried("keep_checkpoint_max"),
        _carried("keep_checkpoint_every_n_hours"),
        _carried("log_step_count_steps"),
        _reported("train_distribute", _NO_STRATEGY),
        _reported("device_fn", "place ops with tf.device in the forward function"),
        _no_effect("protocol", "a Trainer starts no server"),
        _reported("eval_distribute", _NO_STRATEGY),
        _reported("experimental_distribute", _NO_STRATEGY),
        _no_effect("experimental_max_worker_delay_secs", "a Trainer has no other workers"),
        _no_effect("session_creation_timeout_secs", "TF2 has no sessions"),
        _no_effect("checkpoint_save_graph_def", "checkpoints of TF2 have no graph")),
    "TPUConfig": (
        _no_effect("iterations_per_loop", "a Trainer runs step by step, with the same numbers"),
        _reported("num_shards", "a Trainer has one replica, which sees the whole batch: a loss "
                  "that is a sum over the batch, and batch normalization, give other numbers than "
                  "with several", "1"),
        _no_effect("num_cores_per_replica", _NO_TPU),
        _reported("per_host_input_for_training", "a Trainer calls input_fn once, with the whole "
                  "batch size", "True", "PER_HOST_V1", "PER_HOST_V2", "2", "3"),
        _no_effect("tpu_job_name", "there is no TPU to connect to"),
        _no_effect("initial_infeed_sleep_secs", "there is no infeed to wait for"),
        _no_effect("input_partition_dims", _NO_TPU),
        _reported("eval_training_input_configuration", "a Trainer calls input_fn once, with the "
                  "whole batch size", "PER_HOST_V1", "2"),
        _reported("experimental_host_call_every_n_steps", "a Trainer has no host calls", "1"),
        _no_effect("experimental_allow_per_host_v2_parallel_get_next",
                   "it changes how batches are fetched, not their contents"),
        _reported("experimental_feed_hook", _HOOKS)),
    "TPUEstimatorSpec": (
        _carried("mode", "of `Outputs`"),
        _carried("predictions", "of `Outputs`"),
        _carried("loss", "of `Outputs`"),
        _carried("train_op", "`make_optimizer` and `dense_learning_rate`; its shape must be one "
                 "that is known in full"),
        _carried("eval_metrics", "of `Outputs`"),
        _reported("export_outputs", "they become the results of an exported tf.function"),
        _reported("scaffold_fn", "do its work after the Trainer is created"),
        _reported("host_call", "override Trainer.train_step, and call its function there with the "
                  "tensors"),
        _reported("training_hooks", "do their work around Trainer.train, or in a class that "
                  "overrides Trainer.train_step"),
        _reported("evaluation_hooks", "do their work around Trainer.evaluate"),
        _reported("prediction_hooks", "do their work around Trainer.predict")),
    "EmbeddingConfigSpec": (
        _carried("feature_columns", _CAPTURED),
        _carried("optimization_parameters", _CAPTURED),
        _carried("clipping_limit", _CAPTURED + ", as `clipvalue` of the optimizers"),
        _carried("pipeline_execution_with_tensor_core", _CAPTURED),
        _carried("experimental_gradient_multiplier_fn", _CAPTURED),
        _carried("feature_to_config_dict", _CAPTURED),
        _carried("table_to_config_dict", _CAPTURED),
        _no_effect("partition_strategy", "the tables of a Trainer are whole, with the same "
                   "numbers"),
        _reported("profile_data_directory", "a Trainer writes no statistics of tables"),
        _carried("table_multipliers", _CAPTURED)),
}

SPEC_ORDER = tuple(argument.name for argument in ARGUMENTS["TPUEstimatorSpec"])

# Arguments of the RunConfig, and of TPUEstimator, that Trainer has too.
OF_TRAINER = ("params", *dict.fromkeys(
    argument.name for name in ("TPUEstimator", "RunConfig") for argument in ARGUMENTS[name]
    if argument.fate == CARRIED and argument.text in ("of `Trainer`", _SEED) and (
        argument.name != "params")))


def order_of(constructor: str) -> tuple[str, ...]:
    """Returns the names of a constructor's arguments, in order."""
    return tuple(argument.name for argument in ARGUMENTS[constructor])


_INTRODUCTION = """\
From the checkout, this reports an argument that a program of stage 2 does not have::

    tpu-estimator-embedding migrate migration_guide/replicas/before.py --to tf2 --no-capture

What becomes of every argument of the Estimator's constructors with ``migrate --to tf2`` and
``layers``. An argument that is *reported* needs a decision (:ref:`tee408`) or work
by hand (:ref:`tee404`), except with the values that are named. This page is generated from the
table that the tool uses.
"""
_NEXT = "Continue with :doc:`migration_report_codes`."


def lines() -> Iterator[str]:
    """Yields the page: a table for each constructor."""
    yield from ("Arguments of constructors", "=" * 25, "", *_INTRODUCTION.splitlines())
    for constructor, arguments in ARGUMENTS.items():
        yield from ("", constructor, "-" * len(constructor), "", ".. list-table::",
                    "   :header-rows: 1", "   :widths: 34 14 52", "", "   * - Argument",
                    "     - Fate", "     - Details")
        for argument in arguments:
            text = argument.text
            others = [f"`{value}`" for value in argument.harmless if value != "None"]
            if argument.fate == REPORTED and others:
                text += f"; not reported with {', '.join(others)}"
            yield from (f"   * - ``{argument.name}``", f"     - {argument.fate}",
                        *textwrap.wrap(text.replace("`", "``"), 100, initial_indent="     - ",
                                       subsequent_indent="       ", break_on_hyphens=False))
    yield from ("", _NEXT)


if __name__ == "__main__":
    print("\n".join(lines()))
