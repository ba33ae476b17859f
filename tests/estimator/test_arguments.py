# SPDX-License-Identifier: Apache-2.0
"""Every argument of a TPUEstimator program is tested somewhere: honoured, or refused with advice.

The table names, for each argument, the test that shows which. An argument that is new in
the signature fails here until it is in the table.
"""

import importlib
import inspect
import logging
import time

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    model_fn,
    new_estimator,
    run_config,
)
from tests.estimator.input.test_input_modes import new_dense
from tests.estimator.test_host_functions import receive
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

TPUConfig = upstream.tpu_config.TPUConfig
V2 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V2
HOOKS = "hooks.test_hooks.test_hooks_of_the_model_run_in_their_mode"
BATCHES = "test_tpu_context.test_contexts_of_all_modes"

TESTED = {
    TPUEstimator.__init__: {
        "model_fn": "test_model_fn_call.test_model_fn_may_be_any_callable_and_take_what_it_likes",
        "model_dir": "test_arguments.test_model_dir_may_be_in_the_configuration_or_nowhere",
        "config": "test_constructor.test_configuration_for_a_tpu_runs_without_one",
        "params": "test_model_fn_call.test_params_stay_of_their_kind",
        "use_tpu": "test_without_engine.test_without_engine_everything_is_upstreams",
        "train_batch_size": BATCHES, "eval_batch_size": BATCHES, "predict_batch_size": BATCHES,
        "batch_axis": "replicas.test_replica_input.test_batch_axis_says_along_which_axis_"
                      "a_tensor_is_split",
        "eval_on_tpu": "test_host_functions.test_model_function_may_return_plain_specs",
        "export_to_tpu": "test_arguments.test_export_for_a_tpu_has_its_tags_and_serves",
        "export_to_cpu": "test_arguments.test_export_to_nothing_is_refused",
        "warm_start_from": "restore.test_warm_start.test_what_matches_starts_from_the_checkpoint",
        "embedding_config_spec": "test_subclasses.test_spec_may_be_given_by_position_or_keyword_"
                                 "through_a_subclass",
        "export_saved_model_api_version":
            "test_arguments.test_export_for_a_tpu_has_its_tags_and_serves",
        "num_hosts": "test_partition.test_hosts_train_evaluate_and_predict_as_the_oracle",
        "checkpoint_num_hosts": "restore.test_layouts.test_asks_for_the_hosts_that_wrote_a_"
                                "checkpoint_that_does_not_say",
        "cluster_config": "tests.cluster.test_synchronous."
                          "test_workers_train_as_replicas",
        "async_checkpoints": "test_asynchronous_saving.test_every_checkpoint_has_the_same_bytes",
        "checkpoint_at_start": "test_checkpoint_at_start."
                               "test_other_checkpoints_and_calls_are_the_same",
    },
    TPUConfig.__new__: {
        "iterations_per_loop": "test_iterations_per_loop.test_hooks_see_the_last_step_of_each_"
                               "loop",
        "num_shards": "replicas.test_replicas.test_replicas_compute_what_one_does",
        "num_cores_per_replica": "test_arguments.test_layout_of_a_replica_changes_no_number",
        "per_host_input_for_training": "input.test_input_modes.test_replicas_get_the_batches_of_"
                                       "their_mode",
        "tpu_job_name": "test_constructor.test_configuration_for_a_tpu_runs_without_one",
        "initial_infeed_sleep_secs": "test_arguments.test_input_sleeps_before_it_starts",
        "input_partition_dims": "test_arguments.test_layout_that_does_not_fit_the_input_is_refused",
        "eval_training_input_configuration": "test_tpu_context.test_sliced_evaluation_gives_every_"
                                             "replica_its_share",
        "experimental_host_call_every_n_steps": "test_arguments.test_host_call_runs_every_n_steps",
        "experimental_allow_per_host_v2_parallel_get_next": "test_arguments.test_batches_may_be_"
                                                            "dealt_out_in_order",
        "experimental_feed_hook": "test_arguments.test_feed_hook_is_not_used_and_says_so",
    },
    upstream.tpu_estimator.TPUEstimatorSpec.__new__: {
        "mode": HOOKS, "predictions": "test_life.test_predictions_come_by_sample_or_by_batch",
        "loss": "hooks.test_hooks.test_loss_that_training_reports_is_that_of_its_batch",
        "train_op": "input.test_input.test_every_batch_is_trained_on_once",
        "eval_metrics": "test_host_functions.test_eval_metrics_cover_every_sample",
        "export_outputs": "test_export.test_export_serves_what_the_estimator_predicts",
        "scaffold_fn": "test_life.test_scaffold_fn_starts_tables_by_scope_and_by_name",
        "host_call": "test_host_functions.test_host_call_writes_summaries_in_every_step",
        "training_hooks": HOOKS, "evaluation_hooks": HOOKS, "prediction_hooks": HOOKS,
    },
    EmbeddingConfigSpec.__new__: {
        "feature_columns": "test_against_oracle.test_steps_with_columns_are_those_of_the_oracle",
        "optimization_parameters": "test_optimizers.test_columns_train_with_the_optimizer_of_the_"
                                   "spec",
        "clipping_limit": "test_optimizers.test_clipping_limit_clips_the_summed_gradient",
        "pipeline_execution_with_tensor_core": "step.test_pipelining.test_activations_miss_"
                                               "exactly_one_update",
        "experimental_gradient_multiplier_fn": "test_optimizers.test_multiplier_scales_the_"
                                               "gradients_of_tables_only",
        "feature_to_config_dict": "test_dict_program.test_program_with_dictionaries_is_that_of_"
                                  "the_oracle",
        "table_to_config_dict": "test_dict_program.test_program_with_dictionaries_is_that_of_the_"
                                "oracle",
        "partition_strategy": "test_partition.test_hosts_train_evaluate_and_predict_as_the_oracle",
        "profile_data_directory": "test_spec_to_plan.test_profile_data_directory_is_warned_of",
        "table_multipliers": "test_embedding_config_spec.test_multipliers_of_tables_reach_the_"
                             "plan_and_survive_copies",
    },
    TPUEstimator.train: {
        "input_fn": "input.test_input_modes.test_input_of_every_form",
        "hooks": "hooks.test_hooks.test_hooks_of_the_user_run_and_fetch_tensors_by_name",
        "steps": "test_iterations_per_loop.test_fetches_and_numbers_of_steps_are_exact",
        "max_steps": "test_iterations_per_loop.test_fetches_and_numbers_of_steps_are_exact",
        "saving_listeners": "hooks.test_hooks.test_saving_listeners_see_every_checkpoint",
    },
    TPUEstimator.evaluate: {
        "input_fn": "input.test_input_modes.test_evaluation_of_each_mode_sees_every_sample",
        "steps": "input.test_input.test_every_batch_is_evaluated_once",
        "hooks": "hooks.test_hooks.test_hooks_of_the_user_run_and_fetch_tensors_by_name",
        "checkpoint_path": "test_life.test_estimators_take_over_from_one_another",
        "name": "test_life.test_training_and_evaluation_take_turns",
    },
    TPUEstimator.predict: {
        "input_fn": "input.test_input.test_every_batch_is_predicted_once_and_in_order",
        "predict_keys": "test_life.test_estimators_take_over_from_one_another",
        "hooks": "hooks.test_hooks.test_hooks_of_the_user_run_and_fetch_tensors_by_name",
        "checkpoint_path": "test_life.test_estimators_take_over_from_one_another",
        "yield_single_examples": "test_life.test_predictions_come_by_sample_or_by_batch",
    },
}


@pytest.mark.all_cases
@pytest.mark.parametrize("function", TESTED, ids=lambda function: function.__qualname__)
def test_every_argument_has_its_test(function):
    tests = TESTED[function]
    assert list(inspect.signature(function).parameters)[1:] == list(tests)
    for path in set(tests.values()):
        module, name = path.rsplit(".", 1)
        module = module if module.startswith("tests.") else f"tests.estimator.{module}"
        test = getattr(importlib.import_module(module), name)
        assert inspect.isfunction(test)


@pytest.mark.parametrize("dims", [[{"x": [2, 1]}, None], [{"x": None}], [{"x": [1, 1]}, [4]]])
def test_layout_of_a_replica_changes_no_number(tmp_path, caplog, dims):
    caplog.set_level(logging.INFO, logger="tensorflow")
    cores = 4 if len(dims) == 2 and dims[1] else 2
    predicted = []
    for name, options in (("plain", {}), ("cut", {"num_cores_per_replica": cores,
                                                  "input_partition_dims": dims})):
        estimator = layout_estimator(tmp_path / name, **options)
        estimator.train(layout_input_fn, steps=3)
        predicted.append(estimator.get_variable_value("dense/kernel"))
    assert predicted[0].tolist() == predicted[1].tolist()
    messages = [record.getMessage() for record in caplog.records
                if "is a layout of a TPU's" in record.getMessage()]
    assert messages == [f"tpu_estimator_embedding: num_cores_per_replica={cores} is a layout of a "
                        "TPU's memory: each replica has one device here."]


@pytest.mark.parametrize("dims, sentence", [
    ([{"y": [2, 1]}], r"^TPUConfig.input_partition_dims\[0\] mismatched feature keys. Expected"),
    ([{"x": [4, 1]}], "^The product of each input partition dim should equal to "
                      "num_cores_per_replica"),
    ([{"x": [2]}], "^Input partition dims must have the same number of dimensions as the `Tensor`"),
    ([{"x": [0, 2]}], "^All input partition dims must be >= 1"),
    ([{"x": None}, [3]], "^The product of each input partition dim should equal")])
def test_layout_that_does_not_fit_the_input_is_refused(tmp_path, dims, sentence):
    estimator = layout_estimator(tmp_path, num_cores_per_replica=2, input_partition_dims=dims)
    with pytest.raises(ValueError, match=sentence):
        estimator.train(layout_input_fn, steps=1)


def layout_input_fn(params):
    return tf.data.Dataset.from_tensors(
        ({"x": tf.ones([4, 2])}, tf.ones([4]))).repeat()


def layout_estimator(model_dir, **options):
    v1 = tf.compat.v1

    def model_fn(features, labels, mode, params):
        output = v1.layers.dense(features["x"], 1, kernel_initializer=tf.ones_initializer())
        loss = tf.reduce_mean((output[:, 0] - labels) ** 2)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
        return tf_estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, v1.train.get_global_step()))

    config = run_config(TPUConfig(per_host_input_for_training=V2, **options))
    return TPUEstimator(model_fn, str(model_dir), config, train_batch_size=4)


def test_feed_hook_is_not_used_and_says_so(tmp_path, caplog):
    hook = upstream.tpu_estimator.TPUInfeedOutfeedSessionHook
    with caplog.at_level(logging.WARNING, logger="tensorflow"):
        new_estimator(tmp_path, config=run_config(TPUConfig(experimental_feed_hook=hook)))
    [message] = [record.getMessage() for record in caplog.records if "feed_hook" in record.msg]
    assert "TPUInfeedOutfeedSessionHook" in message and "is not used: there is no infeed" in message


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_strategies_are_refused_with_advice(tmp_path, name):
    config = run_config(**{name: tf.distribute.OneDeviceStrategy("/cpu:0")})
    with pytest.raises(ValueError, match=f"`{name}` must be None when use_tpu=True.*num_shards"):
        new_estimator(tmp_path, config=config)


def test_model_dir_may_be_in_the_configuration_or_nowhere(tmp_path):
    spec = {"train_batch_size": 2, "embedding_config_spec": None}
    config = run_config(model_dir=str(tmp_path))
    assert TPUEstimator(model_fn, config=config, **spec).model_dir == str(tmp_path)
    assert TPUEstimator(model_fn, str(tmp_path), config, **spec).model_dir == str(tmp_path)
    with pytest.raises(ValueError, match="`model_dir` are set both in constructor and `RunConfig`"):
        TPUEstimator(model_fn, str(tmp_path / "other"), config, **spec)
    assert TPUEstimator(model_fn, config=run_config(), **spec).model_dir


def exporting_model_fn(features, labels, mode, params):
    spec = model_fn(features, labels, mode, params)
    return spec._replace(export_outputs={
        "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})


@pytest.mark.parametrize("options, tag_sets", [
    ({}, [["serve"], ["serve", "tpu"]]), ({"export_to_cpu": False}, [["serve", "tpu"]]),
    ({"export_to_tpu": False}, [["serve"]]),
    ({"export_saved_model_api_version": 2}, [["serve"], ["serve", "tpu"]])])
def test_export_for_a_tpu_has_its_tags_and_serves(tmp_path, caplog, options, tag_sets):
    estimator = new_estimator(tmp_path / "model", exporting_model_fn, **options)
    estimator.train(input_of([0, 0, 3]), max_steps=100)
    with caplog.at_level(logging.INFO, logger="tensorflow"):
        exported = estimator.export_saved_model(str(tmp_path / "export"), receive).decode()
    messages = [record.getMessage() for record in caplog.records
                if "export_to_tpu" in record.getMessage()]
    assert len(messages) == (["serve", "tpu"] in tag_sets)
    assert ("tf.saved_model.load needs tags=['serve']" in "".join(messages)) == (len(tag_sets) == 2)
    for tags in tag_sets:
        served = tf.saved_model.load(exported, tags).signatures["serving_default"]
        assert served(id=tf.constant([3, 0], tf.int64))["count"].numpy()[:, 0].tolist() == [1, 2]
    for tags in [["serve"], ["serve", "tpu"]]:
        if tags not in tag_sets:
            with pytest.raises(RuntimeError, match="MetaGraphDef associated with tags"):
                tf.saved_model.load(exported, tags)


def test_export_to_nothing_is_refused(tmp_path):
    estimator = new_estimator(tmp_path / "model", exporting_model_fn, export_to_cpu=False,
                              export_to_tpu=False)
    estimator.train(input_of([0]), max_steps=1)
    with pytest.raises(ValueError, match="^One of export_to_cpu and export_to_tpu must be true"):
        estimator.export_saved_model(str(tmp_path / "export"), receive)


def test_input_sleeps_before_it_starts(tmp_path, caplog):
    config = run_config(TPUConfig(initial_infeed_sleep_secs=1))
    estimator = new_estimator(tmp_path, config=config)
    before = time.monotonic()
    with caplog.at_level(logging.INFO, logger="tensorflow"):
        estimator.train(input_of(range(4)), max_steps=100)
    assert time.monotonic() - before >= 1
    assert counts(estimator) == counts_of(*range(4))
    assert [record for record in caplog.records if "There is no need to" in record.getMessage()]


@pytest.mark.parametrize("every_n_steps, called", [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4])])
def test_host_call_runs_every_n_steps(tmp_path, every_n_steps, called):
    seen = []

    def note(step):
        return tf.numpy_function(lambda step: seen.append(int(step[0])) or step, [step], tf.int64)

    def calling_model_fn(features, labels, mode, params):
        step = tf.reshape(tf.compat.v1.train.get_global_step(), [1])
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss), host_call=(note, [step]))

    config = run_config(TPUConfig(experimental_host_call_every_n_steps=every_n_steps))
    new_estimator(tmp_path, calling_model_fn, config=config).train(
        input_of(range(10)), max_steps=100)
    assert seen == called


def test_batches_may_be_dealt_out_in_order(tmp_path):
    """A TPU may deal them out in any order then; one after the other is one of them."""
    estimator = new_dense(tmp_path, V2, experimental_allow_per_host_v2_parallel_get_next=True)
    estimator.train(lambda params: tf.data.Dataset.range(8).batch(2), max_steps=100)
    assert counts(estimator) == counts_of(*range(8))
