# SPDX-License-Identifier: Apache-2.0
# === a model_fn of all modes
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
# === a model_fn inside of a method
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class Task:
    def make(self, rate_0):
        def model_fn(features, labels, mode, params):
            net = tf.feature_column.input_layer(features, params["columns"])
            logits = tf.layers.dense(net, 1)
            if mode == tf.estimator.ModeKeys.PREDICT:
                return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
            loss = tf.losses.sigmoid_cross_entropy(labels, logits)
            if mode == tf.estimator.ModeKeys.EVAL:
                return tf.estimator.tpu.TPUEstimatorSpec(
                    mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
            # The rate falls.
            step = tf.train.get_or_create_global_step()
            rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
            optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
            if params["use_tpu"]:
                optimizer = tf.tpu.CrossShardOptimizer(optimizer)
            with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
                train_op = optimizer.minimize(loss, global_step=step)
            return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
        return model_fn


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        Task().make(0.1), config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
# === minimize in all modes but one
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    train_op = None
    if mode != tf.estimator.ModeKeys.EVAL:
        train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
# === minimize in other modes only
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    train_op = None
    if mode != tf.estimator.ModeKeys.TRAIN:
        train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
# === pairs of gradients and variables under a name
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    grads_and_vars = optimizer.compute_gradients(loss)
    gradients, variables = zip(*grads_and_vars)
    clipped, _ = tf.clip_by_global_norm(gradients, params["clip"])
    train_op = optimizer.apply_gradients(
        list(zip(clipped, variables)), global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
