# SPDX-License-Identifier: Apache-2.0
"""However a model_fn minimizes its loss, the tables get the gradient of the activations."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    VOCABULARY,
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.spec import oracle_optimizers
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdamParameters,
    FrequencyEstimatorParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.ops.captured_gradients import DUMMY_VARIABLE_NAME

v1 = tf.compat.v1


def descent():
    return v1.train.GradientDescentOptimizer(1.0)


def step():
    return v1.train.get_global_step()


def clipped(loss):
    """The clipping that almost every model has; the tables' gradients pass it untouched."""
    optimizer = descent()
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    gradients, _ = tf.clip_by_global_norm(gradients, 1e-3)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True), global_step=step())


def by_hand(loss):
    variables = v1.trainable_variables()
    gradients = tf.gradients(loss, variables)
    return descent().apply_gradients(zip(gradients, variables, strict=True), global_step=step())


def in_cross_shard_optimizer(loss):
    return v1.tpu.CrossShardOptimizer(descent()).minimize(loss, global_step=step())


def keras_get_updates(loss):
    optimizer = tf.keras.optimizers.legacy.SGD(1.0)
    return tf.group(step().assign_add(1),
                    *optimizer.get_updates(loss, v1.trainable_variables()))


def keras_apply_gradients(loss):
    optimizer = tf.keras.optimizers.legacy.Adam(0.1)
    optimizer.iterations = step()
    variables = v1.trainable_variables()
    return optimizer.apply_gradients(
        zip(optimizer.get_gradients(loss, variables), variables, strict=True))


def with_gate_gradients(loss):
    return descent().minimize(loss, step(), gate_gradients=v1.train.Optimizer.GATE_GRAPH)


# Others are in the grammar of tests/programs: scaled, regularized, by two optimizers.
WAYS = [count, clipped, by_hand, in_cross_shard_optimizer, keras_get_updates, keras_apply_gradients,
        with_gate_gradients]


def model_fn_of(train_op):
    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [], initializer=v1.ones_initializer())
        loss = -tf.reduce_sum(features["id"]) + tf.square(kernel) / 4
        return TPUEstimatorSpec(mode, loss=loss, train_op=train_op(loss))
    return model_fn


@pytest.mark.parametrize("train_op", WAYS)
def test_gradients_are_captured_however_they_are_computed(tmp_path, train_op):
    estimator = new_estimator(tmp_path, model_fn_of(train_op))
    estimator.train(input_of([0, 0, 1, 2]), max_steps=100)
    assert counts(estimator) == counts_of(0, 0, 1, 2)
    assert estimator.get_variable_value("kernel") != 1  # the model was trained, too
    assert estimator.get_variable_value("global_step") == 2


def test_gradients_computed_twice_are_refused(tmp_path):
    def twice(loss):
        return tf.group(descent().minimize(loss), descent().minimize(2 * loss, step()))

    with pytest.raises(RuntimeError, match="gradients of embedding activations must be computed "
                                           "once per model_fn, got a second computation for "
                                           "feature 'id' of table 'counts'"):
        new_estimator(tmp_path, model_fn_of(twice)).train(input_of([0]), max_steps=1)


def without_tables(loss):
    """BERT's way to freeze: the dummies, too, have "embedding" in their names."""
    variables = [variable for variable in v1.trainable_variables()
                 if "embedding" not in variable.name]
    gradients = tf.gradients(loss, variables)
    return v1.tpu.CrossShardOptimizer(descent()).apply_gradients(
        zip(gradients, variables, strict=True), step())


FREEZING = {
    "stop_gradient": (tf.stop_gradient, in_cross_shard_optimizer),
    "unused activations": (tf.zeros_like, in_cross_shard_optimizer),
    "var_list": (tf.identity, lambda loss: descent().minimize(
        loss, step(), var_list=[v1.trainable_variables()[-1]])),
    "BERT's list of variables": (tf.identity, without_tables),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", FREEZING)
@pytest.mark.parametrize("options", [{}, {"pipeline_execution_with_tensor_core": True}], ids=str)
def test_frozen_tables_are_updated_with_zeros(tmp_path, way, options):
    """A warning says so. A lazy Adam moves the rows of the step by moments from before."""
    freeze, frozen_train_op = FREEZING[way]
    settings = {"beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}
    rate, gradient, start = 0.125, 2.0, 1.0
    spec = EmbeddingConfigSpec(
        table_to_config_dict={name: TableConfig(4, 1, v1.constant_initializer(start), None)
                              for name in ("A", "B")},
        feature_to_config_dict={"a": FeatureConfig("A"), "b": FeatureConfig("B")},
        optimization_parameters=AdamParameters(rate, **settings), **options)

    def model_fn_that(is_frozen):
        def model_fn(features, labels, mode, params):
            kernel = v1.get_variable("kernel", [], initializer=v1.ones_initializer())
            treat, train_op = (freeze, frozen_train_op) if is_frozen else (tf.identity, count)
            loss = tf.square(kernel) / 4 + gradient * tf.add_n(
                [tf.reduce_sum(treat(features[name])) for name in ("a", "b")])
            return TPUEstimatorSpec(mode, loss=loss, train_op=train_op(loss))
        return model_fn

    def input_fn(params):
        return tf.data.Dataset.from_tensors({"a": [0, 1], "b": [1, 2]}).repeat()

    new_estimator(tmp_path, model_fn_that(False), spec=spec).train(input_fn, max_steps=1)
    frozen = new_estimator(tmp_path, model_fn_that(True), spec=spec)
    kernel = frozen.get_variable_value("kernel")
    with pytest.warns(UserWarning) as warned:
        frozen.train(input_fn, max_steps=3)
    [said] = [text for warning in warned if "zeros" in (text := str(warning.message))]
    assert "['a', 'b']" in said and "['A', 'B']" in said and "var_list" in said

    row, slots = start, oracle_optimizers.initial_slots("Adam", settings)
    for step_gradient in (gradient, 0.0, 0.0):
        row, slots = oracle_optimizers.update_row(
            "Adam", settings, step_gradient, row, slots, rate, None)
    for table, touched in (("A", [0, 1]), ("B", [1, 2])):
        for name, value, untouched in ((table, row, start),
                                       (f"{table}/Adam/m", slots["momenta"], 0),
                                       (f"{table}/Adam/v", slots["velocities"], 0)):
            expected = np.full(4, float(untouched))
            expected[touched] = value
            np.testing.assert_allclose(frozen.get_variable_value(name)[:, 0], expected, 1e-6)
    assert frozen.get_variable_value("kernel") != kernel  # the model goes on training


def two_tables_model_fn(train_op):
    """`train_op(losses)` gets one loss for each table."""
    def model_fn(features, labels, mode, params):
        losses = [-tf.reduce_sum(features[name]) for name in ("a", "b")]
        return TPUEstimatorSpec(mode, loss=sum(losses), train_op=train_op(*losses))
    return model_fn


def train_two_tables(model_dir, train_op, parameters=None, start=0.0):
    """Trains on ids 0, 1 of one table and 2, 2 of the other; returns both tables' rows."""
    initializer = v1.constant_initializer(start)
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"A": TableConfig(3, 1, initializer, None),
                              "B": TableConfig(3, 1, initializer, None)},
        feature_to_config_dict={"a": FeatureConfig("A"), "b": FeatureConfig("B")},
        optimization_parameters=parameters or StochasticGradientDescentParameters(1.0))
    estimator = new_estimator(model_dir, two_tables_model_fn(train_op), spec=spec)
    estimator.train(lambda params: {"a": tf.constant([0, 1]), "b": tf.constant([2, 2])}, steps=1)
    return [estimator.get_variable_value(name)[:, 0].tolist() for name in ("A", "B")]


def test_two_losses_train_a_table_each(tmp_path):
    def train_op(loss, other_loss):
        return tf.group(descent().minimize(loss), descent().minimize(other_loss, step()))

    assert train_two_tables(tmp_path, train_op) == [[1, 1, 0], [0, 0, 2]]


def test_two_optimizers_take_a_dummy_variable_each(tmp_path):
    def train_op(loss, other_loss):
        [dummy], [other_dummy] = (
            [variable for variable in v1.trainable_variables()
             if variable.op.name == f"tpu_embedding_dummy_table_variable_{table}"]
            for table in ("A", "B"))
        total = loss + 10 * other_loss
        return tf.group(descent().minimize(total, var_list=[dummy]),
                        descent().minimize(total, step(), var_list=[other_dummy]))

    assert train_two_tables(tmp_path, train_op) == [[1, 1, 0], [0, 0, 20]]


def test_steps_leave_out_the_updates_of_dummies(tmp_path):
    graphs = []

    def train_op(loss, other_loss):
        graphs.append(v1.get_default_graph())
        kernel = v1.get_variable("kernel", [], initializer=v1.zeros_initializer())
        return v1.train.AdagradOptimizer(1.0).minimize(loss + other_loss + kernel, step())

    assert train_two_tables(tmp_path, train_op) == [[1, 1, 0], [0, 0, 2]]
    updates = [op for op in graphs[0].get_operations() if op.type == "ResourceApplyAdagrad"]
    of_dummies = [op for op in updates if DUMMY_VARIABLE_NAME in op.inputs[0].op.name]
    [of_kernel] = [op for op in updates if op not in of_dummies]
    assert of_kernel._control_outputs
    assert [op._control_outputs for op in of_dummies] == [[], []]


def test_table_without_gradient_is_updated_with_zeros(tmp_path):
    def train_op(loss, other_loss):
        return count(loss)

    decaying = StochasticGradientDescentParameters(1.0, weight_decay_factor=0.5)
    with pytest.warns(UserWarning, match=r"no gradient of the activations of features \['b'\] "
                                         r"of tables \['B'\]"):
        rows = train_two_tables(tmp_path, train_op, decaying, start=1.0)
    assert rows == [[1.5, 1.5, 1], [1, 1, 0.5]]


def test_frequency_estimator_needs_no_gradient(tmp_path, recwarn):
    """It counts steps between lookups; models stop the gradient of its activations."""
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"counts": TableConfig(
            3, 1, v1.zeros_initializer(), None,
            learning_rate_fn=lambda step: tf.cast(step, tf.float32))},
        feature_to_config_dict={"id": FeatureConfig("counts")},
        optimization_parameters=FrequencyEstimatorParameters(0.5, 10.0, 2.0, 1.0))

    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [])
        loss = tf.square(kernel) + tf.reduce_sum(tf.stop_gradient(features["id"]))
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn, spec=spec, batch_size=1)
    estimator.train(input_of([0, 1, 1, 0], 1), max_steps=100)
    # Id 0 was seen in steps 0 and 3, id 1 in steps 1 and 2.
    assert estimator.get_variable_value("counts/FrequencyEstimator")[:, 0].tolist() == [3, 2, 0]
    assert counts(estimator) == [3.0, 1.0, 0.0]
    assert not [warning for warning in recwarn if "no gradient" in str(warning.message)]


def test_gradients_with_respect_to_activations_are_the_models_own(tmp_path):
    """A gradient penalty, or an adversarial step: not what trains the tables."""
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        [sensitivity] = tf.gradients(loss, [features["id"]])
        loss += tf.reduce_sum(tf.square(sensitivity))
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of([0, 1]), max_steps=1)
    assert counts(estimator) == counts_of(0, 1)


def test_activations_in_a_loop_and_a_branch(tmp_path):
    def model_fn(features, labels, mode, params):
        activations = features["id"]
        _, total = tf.while_loop(
            lambda i, total: i < 3, lambda i, total: (i + 1, total - tf.reduce_sum(activations)),
            [0, 0.0])
        loss = total + tf.cond(total > -1e6, lambda: -tf.reduce_sum(activations), lambda: 0.0)
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of([0, 1, 1]), max_steps=100)
    assert counts(estimator) == counts_of(*[0, 1, 1] * 4)


@pytest.mark.parametrize("is_v2", [True, False], ids=["functions", "control flow of TF1"])
@pytest.mark.parametrize("around", [
    lambda minimize: tf.cond(step() < 9, minimize, tf.no_op),
    lambda minimize: tf.while_loop(lambda i: i < 2, lambda i: [minimize(), i + 1][1:], [0])[0].op,
], ids=["cond", "while_loop"])
def test_minimizing_in_a_branch_or_a_loop_raises(tmp_path, is_v2, around):
    """TensorFlow's own errors come from ops of the engine that no program names."""
    before = v1.control_flow_v2_enabled()

    def model_fn(features, labels, mode, params):
        (v1.enable_control_flow_v2 if is_v2 else v1.disable_control_flow_v2)()
        try:
            loss = -tf.reduce_sum(features["id"])
            return TPUEstimatorSpec(mode, loss=loss, train_op=around(
                lambda: descent().minimize(loss, global_step=step())))
        finally:
            (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()

    with pytest.raises(RuntimeError, match="must be computed outside of tf.cond, tf.while_loop and "
                       "tf.function, got those of feature 'id' of table 'counts' inside '.*"
                       "(cond|while)"):
        new_estimator(tmp_path, model_fn).train(input_of([0, 1]), max_steps=1)
    assert not list(tmp_path.glob("model.ckpt*"))


def test_two_losses_over_features_of_one_table(tmp_path):
    """Two towers with an optimizer each share a table; each computes its own gradients."""
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"counts": TableConfig(
            VOCABULARY, 1, v1.zeros_initializer(), combiner=None)},
        feature_to_config_dict={"id": FeatureConfig("counts"), "other": FeatureConfig("counts")},
        optimization_parameters=StochasticGradientDescentParameters(1.0))

    def model_fn(features, labels, mode, params):
        losses = [-tf.reduce_sum(features[name]) for name in ("id", "other")]
        dummies = v1.get_collection("tpu_embedding_dummy_table_variables")
        assert [dummy.op.name for dummy in dummies] == [
            "tpu_embedding_dummy_table_variable_counts"]
        return TPUEstimatorSpec(mode, loss=sum(losses), train_op=tf.group(
            descent().minimize(losses[0], var_list=dummies),
            descent().minimize(2 * losses[1], step())))

    def input_fn(params):
        return tf.data.Dataset.from_tensors({"id": [0, 1], "other": [1, 2]})

    estimator = new_estimator(tmp_path, model_fn, spec=spec)
    estimator.train(input_fn, max_steps=1)
    assert counts(estimator)[:4] == [1, 3, 2, 0]
