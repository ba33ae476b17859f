# SPDX-License-Identifier: Apache-2.0
"""tf.contrib.learn and tf.contrib.distribute, whose arguments differ from those of today."""

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.subprocesses import run_python

tpu_estimator_embedding.install()

v1 = tf.compat.v1
learn, distribute = tf.contrib.learn, tf.contrib.distribute


def test_run_config_has_the_arguments_of_contrib(tmp_path):
    config = learn.RunConfig(
        "", 2, True, 0.25, 7, save_checkpoints_steps=50, model_dir=str(tmp_path),
        keep_checkpoint_max=3, log_step_count_steps=9, save_summary_steps=11)
    session = config.session_config
    assert (session.intra_op_parallelism_threads, session.inter_op_parallelism_threads) == (2, 2)
    assert session.log_device_placement and session.allow_soft_placement
    assert session.gpu_options.per_process_gpu_memory_fraction == 0.25
    assert (config.tf_random_seed, config.save_checkpoints_steps, config.save_checkpoints_secs,
            config.keep_checkpoint_max, config.log_step_count_steps, config.save_summary_steps,
            config.model_dir) == (7, 50, None, 3, 9, 11, str(tmp_path))
    assert isinstance(config, v1.estimator.RunConfig)
    usual = learn.RunConfig()
    assert usual.save_checkpoints_secs == 600 and usual.save_checkpoints_steps is None
    assert usual.session_config == v1.estimator.RunConfig().session_config
    given = v1.ConfigProto(inter_op_parallelism_threads=5)
    assert learn.RunConfig(session_config=given).session_config == given


@pytest.mark.parametrize("arguments, sentence", [
    ({"master": "grpc://x"}, "`master` must be empty, got 'grpc://x'. Set TF_CONFIG"),
    ({"evaluation_master": "y"}, "`evaluation_master` must be empty, got 'y'"),
    ({"num_cores": 1, "session_config": v1.ConfigProto()}, "`session_config` replaces .*1, False")])
def test_run_config_refuses(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        learn.RunConfig(**arguments)


def test_modes_and_hooks():
    assert (learn.ModeKeys.TRAIN, learn.ModeKeys.EVAL, learn.ModeKeys.INFER) == (
        tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL, tf.estimator.ModeKeys.PREDICT)
    hook = v1.train.StopAtStepHook(last_step=3)
    replace = learn.monitors.replace_monitors_with_hooks
    assert replace([hook], estimator=None) == [hook] and replace(None, None) == []
    with pytest.raises(TypeError, match="must have hooks.* got 3. Derive it from tf.train.Session"):
        replace([3], None)


@pytest.mark.parametrize("arguments, sentence", [
    ({"num_gpus": 1, "num_gpus_per_worker": 2}, "cannot specify both `num_gpus` and .* 1 and 2"),
    ({"devices": ["CPU:0"], "num_gpus": 1}, "Must only specify one of `devices` and"),
    ({"num_gpus": 99}, "`num_gpus` must be at most the number of GPUs, .*, got 99"),
    ({"auto_shard_dataset": True}, "`auto_shard_dataset` must be False, got True")])
def test_mirrored_strategy_refuses(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        distribute.MirroredStrategy(**arguments)


@pytest.mark.long
def test_strategies_train():
    """Each replica gets a batch of the dataset; an Estimator trains under each strategy."""
    done = run_python("""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        distribute = tf.contrib.distribute

        mirrored = distribute.MirroredStrategy(
            ["/cpu:0", "/cpu:1"], cross_tower_ops=distribute.AllReduceCrossDeviceOps("ring"))
        with tf.Graph().as_default(), mirrored.scope(), tf.Session() as session:
            batches = mirrored.make_dataset_iterator(tf.data.Dataset.range(12).batch(3))
            seen = mirrored.experimental_local_results(batches.get_next())
            session.run(batches.initialize())
            print([[part.tolist() for part in session.run(seen)] for _ in range(2)])

        def input_fn():
            return tf.data.Dataset.from_tensors(([[1.0]], [[3.0]])).repeat()

        def model_fn(features, labels, mode):
            loss = tf.reduce_mean((tf.layers.dense(features, 1, use_bias=False) - labels) ** 2)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.train.
                GradientDescentOptimizer(0.25).minimize(loss, tf.train.get_global_step()))

        for strategy in (distribute.MirroredStrategy(), distribute.OneDeviceStrategy("/cpu:0"),
                         distribute.ParameterServerStrategy(),
                         distribute.CollectiveAllReduceStrategy(num_gpus_per_worker=0), mirrored):
            config = tf.estimator.RunConfig(train_distribute=strategy)
            estimator = tf.estimator.Estimator(model_fn, config=config)
            estimator.train(input_fn, steps=20)
            kernel = estimator.get_variable_value("dense/kernel")
            print(type(strategy).__name__, abs(kernel - 3).max() < 0.01)
        """)
    first, *trained = done.stdout.splitlines()
    assert first == "[[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]"
    assert [line.partition(" ") for line in trained] == [
        (name, " ", "True") for name in (
            "MirroredStrategy", "OneDeviceStrategyV1", "ParameterServerStrategy",
            "CollectiveAllReduceStrategy", "MirroredStrategy")]
