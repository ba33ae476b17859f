# SPDX-License-Identifier: Apache-2.0
"""Arguments of TPUEstimator, TPUConfig and RunConfig that no other file is about."""

import time

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    counts,
    counts_of,
    input_of,
    model_fn,
    new_estimator,
    run_config,
)
from tests.fronts.estimator.input.test_input_modes import new_dense
from tests.fronts.estimator.test_host_functions import receive
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

TPUConfig = upstream.tpu_config.TPUConfig
V2 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V2
@pytest.mark.parametrize("dims", [[{"x": [2, 1]}, None], [{"x": None}], [{"x": [1, 1]}, [4]]])
def test_layout_of_a_replica_changes_no_number(tmp_path, logged, dims):
    cores = 4 if len(dims) == 2 and dims[1] else 2
    predicted = []
    for name, options in (("plain", {}), ("cut", {"num_cores_per_replica": cores,
                                                  "input_partition_dims": dims})):
        estimator = layout_estimator(tmp_path / name, **options)
        estimator.train(layout_input_fn, steps=3)
        predicted.append(estimator.get_variable_value("dense/kernel"))
    assert predicted[0].tolist() == predicted[1].tolist()
    assert logged("it partitions a model") == [
        f"tpu_estimator_embedding: num_cores_per_replica={cores} is not used: it partitions a "
        "model for the memory of TPU cores, and each replica has one device here."]


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


def test_feed_hook_is_not_used_and_says_so(tmp_path, logged):
    hook = upstream.tpu_estimator.TPUInfeedOutfeedSessionHook
    new_estimator(tmp_path, config=run_config(TPUConfig(experimental_feed_hook=hook)))
    [message] = logged("is not used: there is no infeed")
    assert "feed_hook" in message and "TPUInfeedOutfeedSessionHook" in message


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
def test_export_for_a_tpu_has_its_tags_and_serves(tmp_path, logged, options, tag_sets):
    estimator = new_estimator(tmp_path / "model", exporting_model_fn, **options)
    estimator.train(input_of([0, 0, 3]), max_steps=100)
    exported = estimator.export_saved_model(str(tmp_path / "export"), receive).decode()
    messages = logged("export_to_tpu")
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


def test_input_sleeps_before_it_starts(tmp_path, logged):
    config = run_config(TPUConfig(initial_infeed_sleep_secs=1))
    estimator = new_estimator(tmp_path, config=config)
    before = time.monotonic()
    estimator.train(input_of(range(4)), max_steps=100)
    assert time.monotonic() - before >= 1
    assert counts(estimator) == counts_of(*range(4))
    assert logged("because of initial_infeed_sleep_secs")


def test_batches_may_be_dealt_out_in_order(tmp_path):
    """A TPU may deal them out in any order then; one after the other is one of them."""
    estimator = new_dense(tmp_path, V2, experimental_allow_per_host_v2_parallel_get_next=True)
    estimator.train(lambda params: tf.data.Dataset.range(8).batch(2), max_steps=100)
    assert counts(estimator) == counts_of(*range(8))
