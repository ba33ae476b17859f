# SPDX-License-Identifier: Apache-2.0
"""However a model_fn minimizes its loss, the tables get the gradient of the activations."""

import pytest
import tensorflow as tf

from tests.estimator.counting import (
    VOCABULARY,
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    FrequencyEstimatorParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

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


def clipped_in_cross_shard_optimizer(loss):
    optimizer = v1.tpu.CrossShardOptimizer(descent())
    return optimizer.apply_gradients(
        [(tf.clip_by_norm(gradient, 1e-3), variable)
         for gradient, variable in optimizer.compute_gradients(loss)], global_step=step())


def two_optimizers(loss):
    kernels = [variable for variable in v1.trainable_variables() if "kernel" in variable.name]
    others = [variable for variable in v1.trainable_variables() if "kernel" not in variable.name]
    return tf.group(descent().minimize(loss, var_list=others),
                    v1.train.AdamOptimizer(0.1).minimize(loss, step(), var_list=kernels))


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


def with_regularization(loss):
    total = loss + tf.add_n([tf.nn.l2_loss(variable) for variable in v1.trainable_variables()])
    return count(total)


def with_gate_gradients(loss):
    return descent().minimize(loss, step(), gate_gradients=v1.train.Optimizer.GATE_GRAPH)


WAYS = [count, clipped, by_hand, in_cross_shard_optimizer, clipped_in_cross_shard_optimizer,
        two_optimizers, keras_get_updates, keras_apply_gradients, with_regularization,
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


def test_gradients_never_computed_are_missed(tmp_path):
    def without_tables(loss):
        kernels = [variable for variable in v1.trainable_variables()
                   if "kernel" in variable.name]
        return descent().minimize(loss, step(), var_list=kernels)

    with pytest.raises(RuntimeError, match="`?model_fn`? must compute the gradients of its loss "
                                           "over all trainable variables, got no gradient .* "
                                           "Leave out the `var_list`"):
        new_estimator(tmp_path, model_fn_of(without_tables)).train(input_of([0]), max_steps=1)


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
