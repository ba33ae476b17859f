# SPDX-License-Identifier: Apache-2.0
"""The ways in which programs bring a Saver: trained, stopped, continued, evaluated."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import replica_model as model
from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, run_config

v1 = tf.compat.v1

SAVERS = {
    "of all": lambda: v1.train.Saver(v1.global_variables()),
    "without a list": v1.train.Saver,
    "by name": lambda: v1.train.Saver({each.op.name: each for each in v1.global_variables()}),
    "sharded": lambda: v1.train.Saver(sharded=True),
    "deferred": lambda: v1.train.Saver(defer_build=True)}
# How the Saver is brought, which one, and whether it is made before the call of minimize().
WAYS = [("collection", "of all", False), ("collection", "of all", True),
        ("hook", "by name", False), ("hook", "sharded", True),
        ("scaffold", "without a list", False), ("scaffold", "by name", True),
        ("scaffold", "deferred", True),
        ("scaffold_fn", "without a list", False), ("scaffold_fn", "sharded", False)]


def new_model_fn(way, kind, is_before, has_tables, model_dir):
    def new_saver():
        with tf.control_dependencies(None):  # as libraries do
            return SAVERS[kind]()

    def model_fn(features, labels, mode, params):
        x = model.inputs_of(features) if has_tables else features["x"]
        predictions = tf.linalg.matvec(x, model.variable("kernel", [x.shape[1]]))
        loss = tf.reduce_mean(tf.square(predictions - labels))
        saver = new_saver() if is_before else None
        options = {}
        if mode == "train":
            options["train_op"] = model.minimize(loss, model.cross_shard_sgd(0.1))
        else:
            options["eval_metrics"] = model.metrics_of, [labels, predictions]
        saver = saver or (new_saver() if way in ("collection", "hook", "scaffold") else None)
        if way == "collection":
            v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
        if way in ("collection", "hook") and mode == "train":
            options["training_hooks"] = [v1.train.CheckpointSaverHook(
                str(model_dir), save_steps=2, saver=saver)]
        if way in ("scaffold", "scaffold_fn"):
            options["scaffold_fn"] = lambda: v1.train.Scaffold(saver=saver or new_saver())
        return TPUEstimatorSpec(mode, loss=loss, **options)

    return model_fn


def input_from(step, has_tables):
    def input_fn(params):
        dataset = model.input_of(64)(params).repeat().skip(step)
        return dataset if has_tables else dataset.map(
            lambda features, labels: ({"x": features["x"]}, labels))
    return input_fn


def values_after(stops, model_dir, has_tables, way="none", kind="of all", is_before=False,
                 **options):
    step = 0
    for stop in stops:
        estimator = new_estimator(
            model_dir, new_model_fn(way, kind, is_before, has_tables, model_dir),
            config=run_config(save_checkpoints_steps=2, tf_random_seed=1), batch_size=8,
            embedding_config_spec=model.new_spec() if has_tables else None, **options)
        estimator.train(input_from(step, has_tables), max_steps=stop)
        step = stop
    values = {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}
    return {**values, **estimator.evaluate(input_from(0, has_tables), steps=2)}


@pytest.fixture(scope="module", name="in_one_run")
def a_training_in_one_run(tmp_path_factory):
    return {has_tables: values_after([6], tmp_path_factory.mktemp("whole"), has_tables)
            for has_tables in (True, False)}


@pytest.mark.slow
@pytest.mark.parametrize("way, kind, is_before", WAYS)
@pytest.mark.parametrize("has_tables", [True, False], ids=["tables", "no tables"])
def test_a_program_with_its_own_saver_goes_on(way, kind, is_before, has_tables, in_one_run,
                                              tmp_path):
    values = values_after([4, 6], tmp_path, has_tables, way, kind, is_before)
    expected = in_one_run[has_tables]
    assert values.keys() == expected.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_it_does_while_training_goes_on(in_one_run, tmp_path):
    values = values_after([4, 6], tmp_path, True, "collection", async_checkpoints=True)
    for name, value in values.items():
        np.testing.assert_allclose(value, in_one_run[True][name], rtol=1e-5, err_msg=name)


def test_a_saver_of_scaffold_fn_saves_what_the_program_chose(tmp_path, monkeypatch):
    monkeypatch.setitem(SAVERS, "dense", lambda: v1.train.Saver(
        [each for each in v1.global_variables() if each.op.name in ("kernel", "global_step")]))
    estimator = new_estimator(
        tmp_path, new_model_fn("scaffold_fn", "dense", False, True, tmp_path),
        config=run_config(tf_random_seed=1), batch_size=8, embedding_config_spec=model.new_spec())
    estimator.train(input_from(0, True), max_steps=2)
    assert set(estimator.get_variable_names()) == {"kernel", "global_step"}


def test_a_saver_for_another_directory_saves_what_the_program_chose(tmp_path):
    def model_fn(features, labels, mode, params):
        kernel = model.variable("kernel", [model.WIDTH])
        loss = tf.reduce_mean(tf.linalg.matvec(model.inputs_of(features), kernel))
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=model.minimize(loss), training_hooks=[
                v1.train.CheckpointSaverHook(str(tmp_path / "kernel"), save_steps=1,
                                             saver=v1.train.Saver([kernel])),
                v1.train.CheckpointSaverHook(str(tmp_path / "model"), save_steps=1)])

    new_estimator(tmp_path / "model", model_fn, spec=model.new_spec(), batch_size=8).train(
        model.input_of(), max_steps=1)
    saved = tf.train.list_variables(tf.train.latest_checkpoint(str(tmp_path / "kernel")))
    assert [name for name, _ in saved] == ["kernel"]


def test_a_hook_that_a_program_keeps_serves_both_ways_of_saving(tmp_path):
    saved = []

    class Listener(v1.train.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            saved.append(global_step_value)

    hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=10, listeners=[Listener()])
    for steps, is_asynchronous in ((1, True), (2, False)):
        new_estimator(tmp_path, async_checkpoints=is_asynchronous).train(
            lambda params: tf.data.Dataset.from_tensors({"id": [1, 2]}).repeat(), max_steps=steps,
            hooks=[hook])
        assert type(hook) is v1.train.CheckpointSaverHook
    assert saved == [0, 1, 1, 2]
