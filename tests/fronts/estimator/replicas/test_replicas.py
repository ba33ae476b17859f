# SPDX-License-Identifier: Apache-2.0
"""Any number of replicas computes what one does: all variables, slots, metrics."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import replica_model
from tests.fronts.estimator.replica_model import (
    BATCH_SIZE,
    V1,
    V2,
    assert_same_values,
    new_replicated,
    uniform,
    v1,
)
from tests.subprocesses import start
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

fc = tf.feature_column
LENGTH = 3


def new_columns():
    a = fc.categorical_column_with_identity("a", 12)
    b = fc.categorical_column_with_identity("b", 7)
    s = fc.sequence_categorical_column_with_identity("s", 9)
    return ([embedding_column(a, 3, "mean", initializer=uniform(1)),
             embedding_column(b, 3, "sqrtn", initializer=uniform(2))],
            embedding_column(s, 3, max_sequence_length=LENGTH, initializer=uniform(3)))


def input_fn(params):
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(-1, rows, [3 * BATCH_SIZE, 4])
              for name, rows in (("a", 12), ("b", 7), ("s", 9))}
    arrays["x"] = rng.uniform(-1, 1, [3 * BATCH_SIZE, 2]).astype(np.float32)
    labels = rng.integers(0, 2, [3 * BATCH_SIZE, 1]).astype(np.float32)

    def to_features(arrays, labels):
        sparse = {name: tf.sparse.from_dense(arrays[name] + 1) for name in "abs"}
        return {"x": arrays["x"], **{name: tf.SparseTensor(ids.indices, ids.values - 1,
                                                           ids.dense_shape)
                                     for name, ids in sparse.items()}}, labels

    dataset = tf.data.Dataset.from_tensor_slices((arrays, labels))
    return dataset.batch(params["batch_size"]).map(to_features)


def over_time(sequence, x):
    """A loop over positions, with a branch in it and another one behind it."""
    def step(position, total):
        seen = sequence[:, position]
        seen = tf.cond(position > 0, lambda: tf.tanh(seen), lambda: 0.5 * seen)
        return position + 1, 0.5 * total + seen

    _, total = tf.while_loop(lambda position, _: position < LENGTH, step,
                             [0, tf.zeros_like(sequence[:, 0])])
    return tf.cond(tf.reduce_mean(x) > 100.0, lambda: 2 * total, lambda: total + 1.0)


def sum_clip_apply(loss, params):
    """Clips by the norm of the whole batch's gradient, so after the sum over replicas."""
    optimizer = v1.train.AdamOptimizer(0.01)
    gradients, variables = zip(*optimizer.compute_gradients(
        loss / params["context"].num_replicas), strict=True)
    gradients = [v1.tpu.cross_replica_sum(gradient) for gradient in gradients]
    gradients, _ = tf.clip_by_global_norm(gradients, 0.2)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True),
                                     v1.train.get_global_step())


def new_everything():
    """Returns columns and a model_fn that uses a bit of everything."""
    columns, sequence = new_columns()
    layers = tf.keras.layers

    def model_fn(features, labels, mode, params):
        combined = layers.DenseFeatures(columns)(features)
        steps, lengths = tf.keras.experimental.SequenceFeatures([sequence])(features)
        total = over_time(steps, features["x"]) * tf.cast(lengths, tf.float32)[:, tf.newaxis]
        net = tf.concat([combined, total, features["x"]], 1)
        net = layers.Dense(5, "relu", kernel_initializer=uniform(4))(net)
        logits = v1.layers.dense(net, 1, kernel_initializer=uniform(5),
                                 kernel_regularizer=lambda w: 0.01 * tf.reduce_sum(w * w))
        if mode == "infer":
            return replica_model.TPUEstimatorSpec(mode, predictions={"p": tf.sigmoid(logits)})
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        loss += v1.losses.get_regularization_loss()
        v1.summary.scalar("loss_of_first_replica", loss)
        return replica_model.TPUEstimatorSpec(
            mode, loss=loss, train_op=sum_clip_apply(loss, params) if mode == "train" else None,
            eval_metrics=(replica_model.metrics_of, [labels, logits]))

    return EmbeddingConfigSpec([*columns, sequence], AdagradParameters(0.1)), model_fn


def run_everything(model_dir, num_replicas, input_mode):
    spec, model_fn = new_everything()
    values = replica_model.Values()
    estimator = new_replicated(model_dir, model_fn, num_replicas, input_mode=input_mode, spec=spec)
    estimator.train(input_fn, max_steps=100, hooks=[values])
    assert len(values.of_step) == 4
    predictions = [prediction["p"] for prediction in estimator.predict(input_fn)]
    return values.of_step[-1], estimator.evaluate(input_fn), predictions


@pytest.fixture(scope="module")
def everything_on_one_replica(tmp_path_factory):
    return run_everything(tmp_path_factory.mktemp("one"), 1, V1)


@pytest.mark.filterwarnings("ignore:`tf.layers.dense` is deprecated:UserWarning")
@pytest.mark.parametrize("num_replicas, input_mode, control_flow", [
    (4, V1, "v2"), (4, V2, "v1"), (2, V2, "v2")], indirect=["control_flow"])
def test_replicas_compute_what_one_does(tmp_path, everything_on_one_replica, num_replicas,
                                        input_mode, control_flow):
    """Columns, Keras, v1 layers, loops, branches, sequences, clipping, regularizer, summary."""
    values, metrics, predictions = run_everything(tmp_path, num_replicas, input_mode)
    expected_values, expected_metrics, expected_predictions = everything_on_one_replica
    assert_same_values(values, expected_values)
    assert_same_values(metrics, expected_metrics)
    assert len(predictions) == 3 * BATCH_SIZE
    np.testing.assert_allclose(predictions, expected_predictions, 1e-5, 1e-6)


@pytest.mark.long
def test_programs_with_v1_behavior_have_replicas_and_pipelining_too(tmp_path):
    done = start([sys.executable, "-m", "tests.fronts.estimator.v1_replicas_program", tmp_path])
    assert done.stdout.endswith("done\n"), done.stderr
