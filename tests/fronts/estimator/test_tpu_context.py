# SPDX-License-Identifier: Apache-2.0
"""params['context'] gives input_fn and model_fn the same values, in every input mode."""

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, new_spec, run_config
from tests.fronts.estimator.replica_model import minimize
from tpu_estimator_embedding.compat import upstream

Modes = upstream.tpu_config.InputPipelineConfig
V1, V2 = Modes.PER_HOST_V1, Modes.PER_HOST_V2
HOST = "/replica:0/task:0/device:CPU:0"
def told_to_both(context):
    """What every member says that input_fn and model_fn may ask."""
    return {"replicas": context.num_replicas, "hosts": context.num_hosts,
            "replicas of host": context.num_of_replicas_per_host,
            "devices": [context.device_for_replica(replica)
                        for replica in range(context.num_replicas)],
            "host device": context.tpu_host_placement_function(0)}


class Program:
    """Notes for each mode what the contexts of the calls say, and the batch sizes."""

    def __init__(self, model_dir, input_mode, num_shards, has_embeddings, **tpu_options):
        self.calls, self.model, self.inputs = [], {}, []
        tpu_config = upstream.tpu_config.TPUConfig(
            num_shards=num_shards, per_host_input_for_training=input_mode, **tpu_options)
        self.estimator = new_estimator(
            model_dir, self.model_fn, config=run_config(tpu_config), train_batch_size=8,
            eval_batch_size=16, predict_batch_size=6,
            embedding_config_spec=new_spec() if has_embeddings else None)

    def input_fn(self, params):
        context, size = params["context"], params["batch_size"]
        with pytest.raises(RuntimeError, match="must not be called from input_fn"):
            context.device_assignment  # noqa: B018
        device, *deployment = context.current_input_fn_deployment()
        assert device == context.tpu_host_placement_function(context.current_host)
        self.calls.append((size, *deployment, context.current_host))
        self.inputs.append(told_to_both(context))
        with tf.device(device):
            ids = tf.data.Dataset.range(8).repeat(8).batch(size, drop_remainder=True)
            return ids.map(lambda ids: {"id": ids, "x": tf.cast(ids, tf.float32)})

    def model_fn(self, features, labels, mode, params):
        context = params["context"]
        assert context.device_assignment is None
        for ask in (lambda: context.current_host, context.current_input_fn_deployment):
            with pytest.raises(RuntimeError, match="must not be called from model_fn"):
                ask()
        assert features["x"].shape.as_list() == [params["batch_size"]]
        self.model = {"batch": params["batch_size"], **told_to_both(context)}
        with tf.device(context.tpu_host_placement_function(0)):
            weight = tf.compat.v1.get_variable("weight", [])
        predicted = weight * features["x"]
        if "id" in features and features["id"].dtype == tf.float32:
            predicted += features["id"][:, 0]
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"predicted": predicted})
        loss = tf.reduce_mean(tf.square(predicted))
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))


def devices(count):
    return [("/task:0/device:CPU:0", replica) for replica in range(count)]


def check(program, run, calls, batch_of_model, replicas):
    """Runs a mode; `calls` are (batch size, invocation, invocations, replicas) of each call."""
    program.calls.clear()
    program.inputs.clear()
    run()
    expected = {"replicas": replicas, "hosts": 1, "replicas of host": replicas,
                "devices": devices(replicas), "host device": HOST}
    assert program.calls == [(*call, 0) for call in calls]
    assert program.inputs == [expected] * len(calls)
    assert program.model == {"batch": batch_of_model, **expected}


@pytest.mark.slow
@pytest.mark.parametrize("has_embeddings, input_mode, training, evaluation", [
    # The calls of input_fn, and the batch of the model, in training and evaluation.
    (True, V1, ([(8, 0, 1, 4)], 2), ([(16, 0, 1, 4)], 4)),
    (True, V2, ([(2, 0, 1, 4)], 2), ([(4, 0, 1, 4)], 4)),
    (False, True, ([(8, 0, 1, 4)], 2), ([(16, 0, 1, 4)], 4)),
    (False, Modes.PER_SHARD_V1, ([(2, index, 4, 1) for index in range(4)], 2),
     ([(16, 0, 1, 4)], 4)),
    (False, False, ([(2, index, 4, 1) for index in range(4)], 2), ([(16, 0, 1, 4)], 4)),
    (False, Modes.BROADCAST, ([(8, 0, 1, 4)], 8), ([(16, 0, 1, 4)], 16)),
])
def test_contexts_of_all_modes(tmp_path, has_embeddings, input_mode, training, evaluation):
    program = Program(tmp_path, input_mode, 4, has_embeddings)
    estimator = program.estimator
    check(program, lambda: estimator.train(program.input_fn, max_steps=1), *training, 4)
    check(program, lambda: estimator.evaluate(program.input_fn, steps=1), *evaluation, 4)
    check(program, lambda: next(estimator.predict(program.input_fn)), [(6, 0, 1, 1)], 6, 1)


def test_sliced_evaluation_gives_every_replica_its_share(tmp_path):
    program = Program(tmp_path, V2, 4, True, eval_training_input_configuration=Modes.SLICED)
    estimator = program.estimator
    check(program, lambda: estimator.train(program.input_fn, max_steps=1), [(2, 0, 1, 4)], 2, 4)
    check(program, lambda: estimator.evaluate(program.input_fn, steps=1), [(16, 0, 1, 4)], 4, 4)


def test_tables_of_several_hosts_read_one_input(tmp_path):
    """Hosts split tables; input_fn is called on this machine, which is one."""
    program = Program(tmp_path, V1, None, True)
    program.estimator = new_estimator(
        tmp_path, program.model_fn, num_hosts=3, train_batch_size=8)
    check(program, lambda: program.estimator.train(program.input_fn, max_steps=1),
          [(8, 0, 1, 1)], 8, 1)


def test_without_engine_there_is_no_context(tmp_path):
    """As ever with use_tpu=False: input_fn and model_fn know their batch size only."""
    seen = {}

    def input_fn(params):
        seen["input_fn"] = params
        return {"x": tf.ones([params["batch_size"]])}

    def model_fn(features, labels, mode, params):
        seen["model_fn"] = params
        loss = tf.reduce_sum(features["x"]) * tf.compat.v1.get_variable("weight", [])
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    new_estimator(tmp_path, model_fn, use_tpu=False, batch_size=8).train(input_fn, steps=1)
    assert seen == {"input_fn": {"batch_size": 8}, "model_fn": {"batch_size": 8,
                                                                "use_tpu": False}}


def replicas_seen(model_dir, monkeypatch, cores, **tpu_options):
    """Returns what the context of a training with the stub's cores set from outside says."""
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_CORES", str(cores))
    seen = []

    def model_fn(features, labels, mode, params):
        context = params["context"]
        assignment = context.device_assignment
        seen.append((context.num_replicas, params["batch_size"],
                     assignment and (assignment.num_replicas, assignment.num_cores_per_replica)))
        weight = tf.compat.v1.get_variable("weight", [], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(features["x"]) * weight
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    config = run_config(upstream.tpu_config.TPUConfig(per_host_input_for_training=V2,
                                                      **tpu_options))
    estimator = new_estimator(model_dir, model_fn, config=config, train_batch_size=16,
                              embedding_config_spec=None)
    estimator.train(lambda params: tf.data.Dataset.from_tensors(
        {"x": tf.ones([params["batch_size"]])}).repeat(), steps=1)
    return seen[0]


@pytest.mark.parametrize("options, expected", [
    ({}, (8, 2, None)), ({"num_shards": 8}, (8, 2, None)),
    ({"num_cores_per_replica": 2}, (4, 4, (4, 2))),
    ({"num_cores_per_replica": 8, "num_shards": 1}, (1, 16, (1, 8)))])
def test_cores_from_outside_are_the_replicas(tmp_path, monkeypatch, options, expected):
    assert replicas_seen(tmp_path, monkeypatch, 8, **options) == expected


@pytest.mark.parametrize("cores, options, error, sentence", [
    (8, {"num_shards": 4}, ValueError, "^TPUConfig.num_shards is not set correctly"),
    (2, {"num_cores_per_replica": 4}, ValueError, "^The num of cores required by the model par"),
    (6, {"num_cores_per_replica": 4}, RuntimeError, r"^The num of cores in the system \(6\)"),
    (5, {}, ValueError, "^train batch size 16 must be divisible by number of replicas 5")])
def test_what_does_not_fit_the_cores_is_upstreams_error(tmp_path, monkeypatch, cores, options,
                                                        error, sentence):
    with pytest.raises(error, match=sentence):
        replicas_seen(tmp_path, monkeypatch, cores, **options)
