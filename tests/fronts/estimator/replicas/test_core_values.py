# SPDX-License-Identifier: Apache-2.0
"""Variables, inputs and the number of each core, as libraries of TPU programs use them."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.tpu import training_loop
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, run_config
from tpu_estimator_embedding.ops import replica_graphs

tpu_estimator_embedding.install()

v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)
W = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)


def enclosing_context():
    """Looks for the context as libraries do."""
    context = v1.get_default_graph()._get_control_flow_context()
    while context is not None and not isinstance(
            context, control_flow_ops.XLAControlFlowContext):
        context = context.outer_context
    return context


class Slices:
    """A variable of which each core has its own slice of the first axis."""

    def __init__(self, name, value, cores):
        with tf.control_dependencies(None):
            self.of_cores = [v1.get_variable(
                f"{name}_slice_{core}", part.shape, initializer=v1.constant_initializer(part),
                use_resource=True, trainable=False)
                for core, part in enumerate(np.split(value, cores))]
        self._name, self.shape = name, self.of_cores[0].shape

    @property
    def handle(self):
        context = enclosing_context()
        return self.of_cores[0].handle if context is None else context.get_replicated_var_handle(
            self._name, self.of_cores)

    def read(self):
        value = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.shape)

    def subtract(self, value):
        return tf.raw_ops.AssignSubVariableOp(resource=self.handle, value=value)


def sliced_regression(weights, x, y, cores):
    """Linear regression on all of x, whose columns and weights are shared out over the cores."""
    with tf.control_dependencies(None):  # as libraries do
        core = tpu_ops.tpu_replicated_input([tf.constant(core) for core in range(cores)])
    width = 8 // cores
    own = tf.slice(x, [0, core * width], [-1, width])
    kernel = weights.read()
    error = v1.tpu.cross_replica_sum(own @ kernel) - y
    loss = tf.reduce_mean(tf.square(error))
    return loss, weights.subtract(0.1 * 2 / tf.size(error, tf.float32) * tf.matmul(
        own, error, transpose_a=True))


def trained_by_numpy(steps):
    weights = W.astype(np.float64)
    for _ in range(steps):
        weights = weights - 0.1 * 2 / Y.size * X.T @ (X @ weights - Y)
    return weights


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_program_with_slices_on_each_core_trains_as_numpy(cores, session):
    made = []

    def computation(x, y):
        made.append(Slices("w", W, cores))
        return sliced_regression(made[0], x, y, cores)

    outputs = v1.tpu.replicate(computation, [[tf.constant(X), tf.constant(Y)]] * cores)
    session.run(v1.global_variables_initializer())
    for step in range(3):
        losses = [of_core[0] for of_core in session.run(outputs)]
        np.testing.assert_allclose(losses, np.mean((X @ trained_by_numpy(step) - Y) ** 2), 1e-5)
    np.testing.assert_allclose(np.concatenate(session.run(made[0].of_cores)),
                               trained_by_numpy(3), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2, 8])
def test_such_a_model_fn_trains_evaluates_and_goes_on_as_numpy(cores, tmp_path):
    def model_fn(features, labels, mode, params):
        weights = Slices("w", W, cores)
        loss, update = sliced_regression(weights, features, labels, cores)
        if mode == "train":
            count = v1.assign_add(v1.train.get_global_step(), 1)
            return TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(update, count))
        return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            lambda sums: {"sum": v1.metrics.mean(sums)}, [tf.reduce_sum(weights.read(), 0)]))

    def input_fn(params):
        return tf.data.Dataset.from_tensors((X, Y)).repeat()

    config = run_config(v1.estimator.tpu.TPUConfig(
        num_shards=cores, iterations_per_loop=2,
        per_host_input_for_training=v1.estimator.tpu.InputPipelineConfig.BROADCAST))
    for steps in (2, 5):
        estimator = new_estimator(tmp_path, model_fn, config=config, batch_size=16,
                                  embedding_config_spec=None)
        estimator.train(input_fn, max_steps=steps)
        weights = trained_by_numpy(steps)
        trained = [estimator.get_variable_value(f"w_slice_{core}") for core in range(cores)]
        np.testing.assert_allclose(np.concatenate(trained), weights, rtol=1e-5)
        metrics = estimator.evaluate(input_fn, steps=1)
        np.testing.assert_allclose(metrics["loss"], np.mean((X @ weights - Y) ** 2), 1e-5)
        np.testing.assert_allclose(metrics["sum"], weights.sum() / 3 / cores, 1e-4)


def test_each_core_has_its_own_in_loops_and_conditions(session):
    variables = [v1.get_variable(f"v{core}", initializer=float(core)) for core in range(2)]

    def computation(x):
        handle = enclosing_context().get_replicated_var_handle("v", "unique", variables)
        number = xla.replica_id()

        def body(total):
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            return total + value + tf.cast(number, tf.float32)

        in_loop = tf.while_loop(lambda total: total < 10, body, [x])[0]
        branch = tf.cond(number > 0, lambda: tf.constant(5.0), lambda: tf.constant(7.0))
        repeated = training_loop.repeat(3, lambda total: [body(total)], [x])
        return number, in_loop, branch, repeated[0]

    outputs = v1.tpu.replicate(computation, [[tf.constant(20.0)], [tf.constant(1.0)]])
    session.run(v1.global_variables_initializer())
    assert np.allclose(session.run(outputs), [[0, 20, 7, 20], [1, 11, 5, 7]])


def test_each_core_writes_in_every_iteration_of_a_training_loop(session):
    variables = [v1.get_variable(f"v{core}", initializer=0.0) for core in range(2)]

    def body(total):
        handle = tpu_ops.tpu_replicated_input([variable.handle for variable in variables])
        with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=handle,
                                                                     value=total)]):
            return total + 1

    loop = v1.tpu.replicate(lambda x: training_loop.repeat(3, body, [x]),
                            [[tf.constant(0.0)], [tf.constant(10.0)]])
    session.run(v1.global_variables_initializer())
    assert np.allclose(session.run(loop), [[3], [13]])
    assert session.run(variables) == [3, 33]


def test_what_cannot_be_told_apart_is_refused(session):
    variables = [v1.get_variable(f"v{core}", initializer=0.0) for core in range(2)]
    shared = v1.get_variable("shared", initializer=0.0)
    handles = [variable.handle for variable in variables]

    def replicate(computation):
        return v1.tpu.replicate(computation, [[tf.constant(0.0)], [tf.constant(1.0)]])

    with pytest.raises(ValueError, match="a value for each of the 2 replicas"):
        replicate(lambda x: x + tpu_ops.tpu_replicated_input([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="variables of one core, or to variables of all"):
        replicate(lambda x: tf.raw_ops.ResourceApplyMomentum(
            var=tpu_ops.tpu_replicated_input(handles), accum=shared.handle, lr=0.1, grad=x,
            momentum=0.9))
    with pytest.raises(ValueError, match="is_packed"):
        replicate(lambda x: enclosing_context().get_replicated_var_handle(
            "v", "id", handles, is_packed=True))

    @tf.function
    def assign(handle, value):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return value

    with pytest.raises(ValueError, match="A function must not write to a per-core variable"):
        replicate(lambda x: assign(tpu_ops.tpu_replicated_input(handles), x))

    def reads_first(x):
        handle = enclosing_context().get_replicated_var_handle("v", "id", handles)
        own = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        return own + tf.function(lambda: x + variables[0])()

    with pytest.raises(ValueError, match="must not capture a per-core variable") as refusal:
        replicate(reads_first)
    assert "get_replicated_var_handle" in str(refusal.value)
    assert session.run(tpu_ops.tpu_replicated_output(tf.constant(3), 1)) == [3]
    with pytest.raises(ValueError, match="num_replicas.*tpu.replicate returns"):
        tpu_ops.tpu_replicated_output(tf.constant(3), 2)
    alone = tpu_ops.tpu_replicated_input([1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="one_of_2_values_in_a_computation"):
        session.run(alone)
    with pytest.raises(RuntimeError, match="in a computation of replicas"):
        xla.replica_id()


def test_a_session_still_fetches_loops_of_a_computation_and_programs_their_ops(session):
    found = []

    def computation(x):
        found.append(tf.while_loop(lambda i: i < 3, lambda i: i + 1, [x])[0])
        return x

    v1.tpu.rewrite(computation, [tf.constant(0)])
    assert session.run(found[0]) == 3
    assert enclosing_context() is None
    assert tf.constant(1).op._get_control_flow_context() is None


def test_threads_build_computations_of_their_own_cores(session):
    seen, first, second = {}, threading.Event(), threading.Event()

    def build(cores, own, other):
        with replica_graphs.on_cores(list(range(cores))):
            own.set()
            other.wait(60)
            seen[cores] = replica_graphs.current_cores()

    threads = [threading.Thread(target=build, args=arguments)
               for arguments in ((2, first, second), (4, second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {2: [0, 1], 4: [0, 1, 2, 3]}
