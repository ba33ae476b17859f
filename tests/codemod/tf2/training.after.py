# SPDX-License-Identifier: Apache-2.0
# === a model_fn of all modes: TEE101 TEE105 TEE401 TEE403
from tpu_estimator_embedding.trainer import ModeKeys, Outputs, Trainer, activations_of
import embedding_config
import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    net = activations_of(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == ModeKeys.PREDICT:
        return Outputs(mode=mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        return Outputs(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    return Outputs(mode=mode, loss=loss)


def dense_learning_rate(global_step, params):
    """Returns the learning rate of a step, as model_fn computed it."""
    # The rate falls.
    step = global_step
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    return rate


def make_optimizer(learning_rate, params):
    """Returns the legacy optimizer of the dense variables."""
    return tf.train.MomentumOptimizer(learning_rate, momentum=0.9)


def main():
    estimator = Trainer(
        model_fn, embedding_config, make_optimizer, dense_learning_rate,
        params={"columns": columns},
        model_dir="model",
        train_batch_size=64,
        save_checkpoints_steps=50)
    estimator.train(input_fn, max_steps=100)
# === a model_fn inside of a method: TEE101 TEE105 TEE401 TEE403
from tpu_estimator_embedding.trainer import ModeKeys, Outputs, Trainer, activations_of
import embedding_config
import tensorflow.compat.v1 as tf


def dense_learning_rate(global_step, params):
    """Returns the learning rate of a step, as model_fn computed it."""
    # The rate falls.
    step = global_step
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    return rate


def make_optimizer(learning_rate, params):
    """Returns the legacy optimizer of the dense variables."""
    return tf.train.MomentumOptimizer(learning_rate, momentum=0.9)


class Task:
    def make(self, rate_0):
        def model_fn(features, labels, mode, params):
            net = activations_of(features, params["columns"])
            logits = tf.layers.dense(net, 1)
            if mode == ModeKeys.PREDICT:
                return Outputs(mode=mode, predictions={"logits": logits})
            loss = tf.losses.sigmoid_cross_entropy(labels, logits)
            if mode == ModeKeys.EVAL:
                return Outputs(
                    mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
            return Outputs(mode=mode, loss=loss)
        return model_fn


def main():
    estimator = Trainer(
        Task().make(0.1), embedding_config, make_optimizer, dense_learning_rate,
        params={"columns": columns},
        model_dir="model",
        train_batch_size=64,
        save_checkpoints_steps=50)
    estimator.train(input_fn, max_steps=100)
# === minimize in all modes but one: TEE101 TEE105 TEE401 TEE403
from tpu_estimator_embedding.trainer import ModeKeys, Outputs, Trainer, activations_of
import embedding_config
import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    net = activations_of(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == ModeKeys.PREDICT:
        return Outputs(mode=mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        return Outputs(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    return Outputs(mode=mode, loss=loss)


def dense_learning_rate(global_step, params):
    """Returns the learning rate of a step, as model_fn computed it."""
    # The rate falls.
    step = global_step
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    return rate


def make_optimizer(learning_rate, params):
    """Returns the legacy optimizer of the dense variables."""
    return tf.train.MomentumOptimizer(learning_rate, momentum=0.9)


def main():
    estimator = Trainer(
        model_fn, embedding_config, make_optimizer, dense_learning_rate,
        params={"columns": columns},
        model_dir="model",
        train_batch_size=64,
        save_checkpoints_steps=50)
    estimator.train(input_fn, max_steps=100)
# === minimize in other modes only: TEE101 TEE105 TEE402:22:5
from tpu_estimator_embedding import (
    CrossShardOptimizer,
    RunConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    tf_estimator,
)
import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        return TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = CrossShardOptimizer(optimizer)
    train_op = None
    if mode != tf_estimator.ModeKeys.TRAIN:
        train_op = optimizer.minimize(loss, global_step=step)
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
# === pairs of gradients and variables under a name: TEE101 TEE105 TEE401 TEE403
from tpu_estimator_embedding.trainer import ModeKeys, Outputs, Trainer, activations_of
import embedding_config
import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    net = activations_of(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == ModeKeys.PREDICT:
        return Outputs(mode=mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        return Outputs(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    return Outputs(mode=mode, loss=loss)


def dense_learning_rate(global_step, params):
    """Returns the learning rate of a step, as model_fn computed it."""
    # The rate falls.
    step = global_step
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    return rate


def make_optimizer(learning_rate, params):
    """Returns the legacy optimizer of the dense variables."""
    return tf.train.MomentumOptimizer(learning_rate, momentum=0.9)


class GradientTrainer(Trainer):
    """Changes the gradients of dense variables as model_fn did."""

    def transform_gradients(self, gradients, variables):
        params = self.params
        grads_and_vars = list(zip(gradients, variables))
        gradients, variables = (gradients, variables)
        clipped, _ = tf.clip_by_global_norm(gradients, params["clip"])
        return list(clipped)


def main():
    estimator = GradientTrainer(
        model_fn, embedding_config, make_optimizer, dense_learning_rate,
        params={"columns": columns},
        model_dir="model",
        train_batch_size=64,
        save_checkpoints_steps=50)
    estimator.train(input_fn, max_steps=100)
