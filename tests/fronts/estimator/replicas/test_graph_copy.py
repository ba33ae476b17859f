# SPDX-License-Identifier: Apache-2.0
"""Whatever a model is made of, its copies for further replicas compute what it computes."""

import numpy as np
import tensorflow as tf

from tests.fronts.estimator.replica_model import (
    BATCH_SIZE,
    WIDTH,
    TPUEstimatorSpec,
    check_replicas_agree,
    input_of,
    inputs_of,
    linear,
    new_model_fn,
    new_replicated,
    train,
    uniform,
    v1,
    variable,
)

NUM_REPLICAS = 4


def buckets(features):
    """`[batch]` integers in [0, 4)."""
    return tf.cast(2.0 * (features["x"][:, 0] + 1.0), tf.int64)


def layers_in_a_keras_model(features, params):
    given = tf.keras.Input([WIDTH])
    hidden = tf.keras.layers.Dense(3, "tanh", kernel_initializer=uniform())(given)
    output = tf.keras.layers.Dense(1, kernel_initializer=uniform())(hidden)
    return tf.keras.Model(given, output)(inputs_of(features))[:, 0]


def function_with_a_branch(features, params):
    kernel = variable("kernel", [WIDTH])

    @tf.function
    def predict(inputs):
        total = tf.linalg.matvec(inputs, kernel)
        for i in tf.range(2):
            if i > 0:
                total = tf.tanh(total)
            else:
                total *= 1.5
        return total

    return predict(inputs_of(features))


def gathered_variable(features, params):
    rows = variable("rows", [5, 2])
    picked = tf.reduce_sum(tf.gather(rows, buckets(features)), 1)
    return linear(features, params) + picked


def new_lookup_table():
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.range(3, dtype=tf.int64), tf.constant([0.5, -1.0, 2.0]))
    return tf.lookup.StaticHashTable(initializer, default_value=7.0)


def lookup_table_in_a_function(features, params):
    return linear(features, params) + tf.function(new_lookup_table().lookup)(buckets(features))


def py_function(features, params):
    sines = tf.py_function(lambda x: tf.reduce_sum(tf.sin(x), 1), [features["x"]], tf.float32)
    return linear(features, params) + tf.reshape(sines, [-1])


def checks_before(features, params):
    checked = [tf.debugging.assert_less(features["x"], 100.0),
               tf.debugging.assert_equal(v1.train.get_global_step() >= 0, True)]
    with tf.control_dependencies(checked):
        return linear(features, params)


def nested_loops(features, params):
    kernel = variable("square", [WIDTH, WIDTH])

    def step(position, total):
        total = tf.cond(position > 1, lambda: tf.tanh(total @ kernel), lambda: total + 1.0)
        _, total = tf.while_loop(lambda i, _: i < 2, lambda i, total: (i + 1, 0.9 * total),
                                 [0, total])
        return position + 1, total

    _, total = tf.while_loop(lambda position, _: position < 3, step, [0, inputs_of(features)])
    return tf.reduce_sum(total, 1)


def branch_on_the_step(features, params):
    """The branch of the first step computes from no input at all."""
    total = tf.cond(v1.train.get_global_step() > 0, lambda: inputs_of(features),
                    lambda: tf.ones([params["batch_size"], WIDTH]))
    return tf.linalg.matvec(total, variable("kernel", [WIDTH]))


def waiting(features, params):
    """What is read after a write is read after it in every copy."""
    calls = new_counter()
    with tf.control_dependencies([calls.assign_add(1.0, read_value=False)]):
        scale = tf.cond(tf.reduce_mean(features["x"]) < 100.0, lambda: tf.identity(calls),
                        lambda: 0.0)
    return linear(features, params) * scale


def new_counter():
    return v1.get_variable("calls", [], initializer=v1.zeros_initializer(), trainable=False,
                           use_resource=True)


# In addition to those in the grammar of tests/programs.
MODELS = [layers_in_a_keras_model, function_with_a_branch, gathered_variable,
          lookup_table_in_a_function, py_function, checks_before]


def sum_of(models):
    """Returns a model that sums what others predict; each has a variable scope."""
    def predict(features, params):
        total = 0.0
        for model in models:
            with v1.variable_scope(model.__name__):
                total += model(features, params)
        return total
    return predict


def test_copies_compute_what_the_model_computes(tmp_path):
    check_replicas_agree(tmp_path, new_model_fn(sum_of(MODELS)), [NUM_REPLICAS])


def test_copies_of_control_flow_compute_what_the_model_computes(tmp_path, control_flow):
    models = [nested_loops, branch_on_the_step, waiting]
    check_replicas_agree(tmp_path, new_model_fn(sum_of(models)), [NUM_REPLICAS])


def test_copies_go_to_the_gpus_there_are(tmp_path, monkeypatch):
    """There are none: a session puts what is meant for them on the CPU."""
    find = tf.config.list_logical_devices
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: (
        ["first", "second"] if kind == "GPU" else find(kind)))
    devices = {}

    class SeeDevices(v1.train.SessionRunHook):
        def begin(self):
            for op in v1.get_default_graph().get_operations():
                scope = op.name.partition("/")[0]
                if scope.startswith("replica_") and op.type == "MatMul":
                    devices.setdefault(scope, set()).add(op.device)

    def predict(features, params):
        return tf.squeeze(inputs_of(features) @ variable("kernel", [WIDTH, 1]), 1)

    train(tmp_path, new_model_fn(predict), 4, max_steps=1, hooks=[SeeDevices()])
    assert devices == {"replica_1": {"/device:GPU:1"}, "replica_2": {"/device:GPU:0"},
                       "replica_3": {"/device:GPU:1"}}


def test_sparse_gradients_stay_sparse(tmp_path):
    """Momentum moves the rows of a variable that a batch used, and no others."""
    def train_op(loss):
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
        return optimizer.minimize(loss, v1.train.get_global_step())

    values = check_replicas_agree(tmp_path, new_model_fn(gathered_variable, train_op), [2, 4])
    np.testing.assert_array_equal(values[-1]["rows"][4], values[0]["rows"][4])  # never used
    assert (values[-1]["rows"][:4] != values[0]["rows"][:4]).all()


# Each counts how often it is called.


def counted_before(features, params):
    with tf.control_dependencies([new_counter().assign_add(1.0, read_value=False)]):
        return tf.identity(linear(features, params))


def counted_in_a_function(features, params):
    calls, kernel = new_counter(), variable("kernel", [WIDTH])

    @tf.function
    def predict(inputs):
        calls.assign_add(1.0)
        return tf.linalg.matvec(inputs, kernel)

    return predict(inputs_of(features))


def counted_in_a_function_that_reads(features, params):
    """The prediction takes the number of calls, this one included."""
    calls, kernel = new_counter(), variable("kernel", [WIDTH])

    @tf.function
    def predict(inputs):
        return tf.linalg.matvec(inputs, kernel) + calls.assign_add(1.0)

    return predict(inputs_of(features))


def counted_in_a_branch(features, params):
    calls, predictions = new_counter(), linear(features, params)

    def count():
        with tf.control_dependencies([calls.assign_add(1.0)]):
            return tf.tanh(predictions)

    return tf.cond(tf.reduce_mean(features["x"]) < 100.0, count, lambda: predictions)


def counted_in_nested_functions(features, params):
    calls, predictions = new_counter(), linear(features, params)
    count = tf.function(lambda: calls.assign_add(1.0))

    @tf.function
    def predict(predictions):
        if tf.reduce_mean(predictions) < 100.0:
            count()
        return tf.tanh(predictions)

    return predict(predictions)


COUNTING = [counted_before, counted_in_a_function, counted_in_a_function_that_reads,
            counted_in_a_branch, counted_in_nested_functions]


def test_writes_happen_once(tmp_path, control_flow):
    values = check_replicas_agree(tmp_path, new_model_fn(sum_of(COUNTING)), [NUM_REPLICAS])
    for model in COUNTING:
        assert [of_step[f"{model.__name__}/calls"] for of_step in values] == [0, 1, 2, 3]


def test_batch_normalization_averages_the_first_replica_once(tmp_path):
    """As a TPU, which saves the first replica's variables."""
    momentum, seen = 0.75, []

    class SeeInputs(v1.train.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs("inputs_of_first:0")

        def after_run(self, run_context, run_values):
            seen.append(run_values.results)

    def predict(features, params):
        inputs = tf.identity(inputs_of(features), "inputs_of_first")
        layer = tf.keras.layers.BatchNormalization(momentum=momentum, name="norm")
        normalized = layer(inputs, training=True)
        for update in layer.updates:
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)
        return tf.linalg.matvec(normalized, variable("kernel", [WIDTH]))

    values = train(tmp_path, new_model_fn(predict), 2, hooks=[SeeInputs()])
    assert {len(inputs) for inputs in seen} == {BATCH_SIZE // 2}
    mean = np.zeros(WIDTH)
    for step, inputs in enumerate(seen, start=1):
        mean = momentum * mean + (1 - momentum) * inputs.mean(0)
        np.testing.assert_allclose(values[step]["norm/moving_mean"], mean, 1e-5, 1e-6)


def test_normalization_over_all_replicas_is_that_of_the_batch(tmp_path):
    """A sum over replicas in the middle of the model, with a gradient through it."""
    def predict(features, params):
        replicas, inputs = params["context"].num_replicas, inputs_of(features)
        mean = v1.tpu.cross_replica_sum(tf.reduce_mean(inputs, 0)) / replicas
        variance = v1.tpu.cross_replica_sum(tf.reduce_mean((inputs - mean) ** 2, 0)) / replicas
        normalized = (inputs - mean) * tf.math.rsqrt(variance + 0.1)
        return tf.linalg.matvec(normalized, variable("kernel", [WIDTH]))

    check_replicas_agree(tmp_path, new_model_fn(predict), [2, NUM_REPLICAS])


# Random ops: each gives `shape` numbers.


def drawn_by_a_seeded_op(shape):
    return tf.random.uniform(shape, seed=3)


def drawn_by_an_unseeded_op(shape):
    v1.set_random_seed(None)
    return tf.random.uniform(shape)


def drawn_in_a_function(shape):
    return tf.function(lambda: tf.random.uniform(shape, seed=3))()


def drawn_in_a_branch(shape):
    return tf.cond(v1.train.get_or_create_global_step() >= 0,
                   lambda: tf.random.uniform(shape, seed=3), lambda: tf.zeros(shape))


def drawn_in_a_loop(shape):
    return tf.while_loop(lambda i, _: i < 2, lambda i, total: (
        i + 1, total + tf.random.uniform(shape, seed=3)), [0, tf.zeros(shape)])[1]


def drawn_by_a_generator(shape):
    return tf.random.Generator.from_seed(3).uniform(shape)


def drawn_by_dropout(shape):
    """A dropout mask, read as binary numbers."""
    layer = tf.keras.layers.Dropout(0.5, seed=1)
    mask = layer(tf.ones([*shape, 20]), training=True) > 0.0
    return tf.linalg.matvec(tf.cast(mask, tf.float32), 2.0 ** tf.range(20.0))


# The last one makes the whole graph unseeded.
DRAWING = [drawn_by_a_seeded_op, drawn_in_a_function, drawn_in_a_branch, drawn_in_a_loop,
           drawn_by_a_generator, drawn_by_dropout, drawn_by_an_unseeded_op]


def test_replicas_draw_numbers_of_their_own(tmp_path, control_flow):
    def model_fn(features, labels, mode, params):
        drawn = {draw.__name__: draw([params["batch_size"]]) for draw in DRAWING}
        return TPUEstimatorSpec(mode, loss=tf.reduce_mean(linear(features, params)),
                                eval_metrics=(count_distinct, drawn))

    def count_distinct(**drawn):
        return {name: v1.metrics.mean(tf.size(tf.unique(numbers)[0]))
                for name, numbers in drawn.items()}

    metrics = new_replicated(tmp_path, model_fn, NUM_REPLICAS).evaluate(input_of(), steps=1)
    assert {draw.__name__: metrics[draw.__name__] for draw in DRAWING} == {
        draw.__name__: BATCH_SIZE for draw in DRAWING}
