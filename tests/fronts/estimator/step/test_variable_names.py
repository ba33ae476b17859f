# SPDX-License-Identifier: Apache-2.0
"""Tables and slots have the names that they have on a TPU, and without one."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    input_of,
    new_estimator,
)
from tests.runners import to_parameters
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle_optimizers import SUFFIXES, initial_slots, suffixes
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

fc = tf.feature_column
v1 = tf.compat.v1


def identity(name):
    return fc.categorical_column_with_identity(name, 9)


def embed(*names):
    return [embedding_column(identity(name), 2) for name in names]


def share():
    return shared_embedding_columns([identity("a"), identity("b")], 2)


def name_shared():
    return shared_embedding_columns([identity("a"), identity("b")], 2,
                                    shared_embedding_collection_name="words")


def weighted():
    return [embedding_column(fc.weighted_categorical_column(identity("a"), "weights"), 2)]


def sequence():
    return [embedding_column(fc.sequence_categorical_column_with_identity("a", 9), 2,
                             max_sequence_length=2)]


def dense_features(columns, features):
    return tf.keras.layers.DenseFeatures(columns)(features)


def dense_features_v1(columns, features):
    return v1.keras.layers.DenseFeatures(columns)(features)


def named_dense_features(columns, features):
    return tf.keras.layers.DenseFeatures(columns, name="inputs")(features)


def two_dense_features(columns, features):
    return tf.concat([dense_features(columns[:1], features),
                      dense_features(columns[1:], features)], 1)


def input_layer(columns, features):
    return v1.feature_column.input_layer(features, columns)


def sequence_features(columns, features):
    return tf.reduce_sum(tf.keras.experimental.SequenceFeatures(columns)(features)[0], 1)


def sequential(columns, features):
    return tf.keras.Sequential([tf.keras.layers.DenseFeatures(columns),
                                tf.keras.layers.Dense(1)])(features)


def scoped(use):
    def use_in_scope(columns, features):
        with v1.variable_scope("tower"):
            return use(columns, features)
    return use_in_scope


def reopened(use):
    """The second time a variable scope is opened, its name scope is another."""
    def use_in_scope(columns, features):
        with v1.variable_scope("tower"):
            tf.identity(1.0)
        with v1.variable_scope("tower"):
            return use(columns, features)
    return use_in_scope


A = "a_embedding/embedding_weights"
USES = {
    "DenseFeatures": (dense_features, embed("a"), [f"dense_features/{A}"]),
    "DenseFeatures V1": (dense_features_v1, embed("a"), [f"dense_features/{A}"]),
    "named": (named_dense_features, embed("a"), [f"inputs/{A}"]),
    "two layers": (two_dense_features, embed("a", "b"), [
        f"dense_features/{A}", "dense_features_1/b_embedding/embedding_weights"]),
    "input_layer": (input_layer, embed("a", "b"), [
        f"input_layer/{A}", "input_layer/b_embedding/embedding_weights"]),
    "input_layer in a scope": (scoped(input_layer), embed("a"), [f"tower/input_layer/{A}"]),
    "DenseFeatures in a scope": (scoped(dense_features), embed("a"), [
        f"tower/dense_features/{A}"]),
    "DenseFeatures V1 in a scope": (scoped(dense_features_v1), embed("a"), [
        f"tower/dense_features/{A}"]),
    "input_layer, reopened": (reopened(input_layer), embed("a"), [f"tower/input_layer/{A}"]),
    "DenseFeatures, reopened": (reopened(dense_features), embed("a"), None),
    "DenseFeatures V1, reopened": (reopened(dense_features_v1), embed("a"), None),
    "Sequential": (sequential, embed("a"), None),
    "weighted": (dense_features, weighted(), [
        "dense_features/a_weighted_by_weights_embedding/embedding_weights"]),
    "shared": (dense_features, share(), ["a_b_shared_embedding"]),
    "shared, named": (dense_features, name_shared(), ["words"]),
    "shared in a scope": (scoped(dense_features), share(), None),
    "sequence": (sequence_features, sequence(), [f"sequence_features/{A}"]),
}


def input_fn(params):
    ids = tf.sparse.from_dense([[1, 2], [3, 0]])
    weights = tf.SparseTensor(ids.indices, tf.ones([3]), ids.dense_shape)
    return {"a": ids, "b": ids, "weights": weights}


def model_fn_of(use, columns):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(use(columns, features))
        step = v1.train.get_global_step()
        return TPUEstimatorSpec(mode, loss=loss, train_op=v1.train.AdagradOptimizer(
            0.1).minimize(loss, global_step=step))
    return model_fn


def checkpoint_of(tmp_path, use, columns, use_tpu):
    estimator = new_estimator(
        tmp_path / str(use_tpu), model_fn_of(use, columns), use_tpu=use_tpu,
        spec=EmbeddingConfigSpec(columns, AdagradParameters(0.1)))
    estimator.train(input_fn, steps=1)
    shapes = dict(tf.train.list_variables(str(tmp_path / str(use_tpu))))
    assert (TABLE_LAYOUTS_KEY in shapes) == use_tpu
    return {name: shape for name, shape in shapes.items() if name != TABLE_LAYOUTS_KEY}


@pytest.mark.parametrize("case", USES)
def test_tables_of_columns_are_named_after_the_scope_of_their_use(tmp_path, case):
    """With Adagrad, the checkpoint has the names and shapes of one with use_tpu=False."""
    use, columns, tables = USES[case]
    with_engine = checkpoint_of(tmp_path, use, columns, True)
    assert with_engine == checkpoint_of(tmp_path, use, columns, False)
    if tables is not None:
        names = [name for table in tables for name in (table, f"{table}/Adagrad")]
        assert sorted(with_engine) == sorted(["global_step", *names])


def test_column_used_in_two_scopes_is_refused(tmp_path):
    columns = embed("a")

    def use(columns, features):
        return scoped(input_layer)(columns, features) + input_layer(columns, features)

    with pytest.raises(ValueError, match="scope"):
        checkpoint_of(tmp_path, use, columns, True)


def test_column_may_be_used_twice_in_one_scope(tmp_path):
    columns = embed("a")

    def use(columns, features):
        layer = tf.keras.layers.DenseFeatures(columns)
        return layer(features) + layer(features)

    assert sorted(checkpoint_of(tmp_path, use, columns, True)) == [
        f"dense_features/{A}", f"dense_features/{A}/Adagrad", "global_step"]


@pytest.mark.parametrize("kind", [  # tables of a FrequencyEstimator have one column
    kind for kind in SUFFIXES if kind != "FrequencyEstimator"])
def test_slots_have_the_names_of_their_optimizer(tmp_path, kind):
    values = initial_slots(kind, CASES[kind].hyperparameters)
    slots = {suffix: values[slot] for slot, suffix in suffixes(kind).items()}
    estimator = new_estimator(
        tmp_path, model_fn_of(dense_features, columns := embed("a")),
        spec=EmbeddingConfigSpec(columns, to_parameters(CASES[kind])))
    estimator.train(input_fn, steps=1)
    table = f"dense_features/{A}"
    assert sorted(estimator.get_variable_names()) == sorted(
        ["global_step", table, *[f"{table}/{slot}" for slot in slots]])
    first = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0"))
    for slot, value in slots.items():
        np.testing.assert_array_equal(first.get_tensor(f"{table}/{slot}"),
                                      np.full([9, 2], value, np.float32))


def optimize(make_optimizer):
    def train_op(loss):
        return make_optimizer().minimize(loss, global_step=v1.train.get_global_step())
    return train_op


def keras_optimizer(loss):
    optimizer = tf.keras.optimizers.legacy.Adam(0.1)
    optimizer.iterations = v1.train.get_global_step()
    return tf.group(optimizer.get_updates(loss, v1.trainable_variables()))


def averaged(loss):
    average = v1.train.ExponentialMovingAverage(0.9, v1.train.get_global_step())
    with tf.control_dependencies([count(loss)]):
        return average.apply(v1.trainable_variables())


def centered(loss):
    return optimize(lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.9, centered=True))(loss)


HIDING = {
    "Adam": (optimize(lambda: v1.train.AdamOptimizer(0.1)),
             ["beta1_power", "beta2_power", "kernel/Adam", "kernel/Adam_1"]),
    "Adagrad": (optimize(lambda: v1.train.AdagradOptimizer(0.1)), ["kernel/Adagrad"]),
    "Momentum": (optimize(lambda: v1.train.MomentumOptimizer(0.1, 0.9)), ["kernel/Momentum"]),
    "RMSProp": (centered, ["kernel/RMSProp", "kernel/RMSProp_1", "kernel/RMSProp_2"]),
    "Adam in CrossShardOptimizer": (
        optimize(lambda: v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(0.1))),
        ["beta1_power", "beta2_power", "kernel/Adam", "kernel/Adam_1"]),
    "moving averages": (averaged, ["kernel/ExponentialMovingAverage"]),
    "Keras": (keras_optimizer, None),
}


@pytest.mark.parametrize("case", HIDING)
def test_helpers_of_gradient_capture_are_not_in_the_checkpoint(tmp_path, case):
    train_op, slots = HIDING[case]

    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [1])
        loss = tf.reduce_sum(features["id"] * kernel)
        return TPUEstimatorSpec(mode, loss=loss, train_op=train_op(loss))

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of(range(8)), max_steps=2)
    names = estimator.get_variable_names()
    assert not [name for name in names if "dummy" in name]
    if slots is not None:
        assert sorted(names) == sorted(["counts", "global_step", "kernel", *slots])
    assert estimator.get_variable_value("global_step") == 2
    estimator.train(input_of(range(8)), max_steps=4)  # what is saved restores
    assert estimator.get_variable_value("global_step") == 4


@pytest.mark.parametrize("choose, is_warned", [
    (v1.trainable_variables, True), (lambda: [v1.trainable_variables()[-1]], False)])
def test_moving_averages_leave_tables_out_with_a_warning(tmp_path, recwarn, choose, is_warned):
    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [1])
        loss = tf.reduce_sum(features["id"] * kernel)
        with tf.control_dependencies([count(loss)]):
            train_op = v1.train.ExponentialMovingAverage(0.9).apply(choose())
        return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_of(range(8)), max_steps=2)
    said = [warning for warning in recwarn if "moving averages" in str(warning.message)]
    assert len(said) == is_warned
    assert "kernel/ExponentialMovingAverage" in estimator.get_variable_names()
