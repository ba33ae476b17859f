# SPDX-License-Identifier: Apache-2.0
"""tf-slim, through tf.contrib and directly: layers, training and metrics, against NumPy."""

import io

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
slim = tf.contrib.slim
layers = tf.contrib.layers
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(1, 2, [4, 5, 5, 3]).astype(np.float32)
ROWS = RANDOM.normal(1, 2, [6, 3]).astype(np.float32)


pytestmark = pytest.mark.usefixtures("session")


def initialize(session):
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])


def variables(session):
    return {variable.op.name: session.run(variable) for variable in v1.global_variables()}


def normalized(values, axes, epsilon):
    mean, variance = values.mean(axes, keepdims=True), values.var(axes, keepdims=True)
    return (values - mean) / np.sqrt(variance + epsilon)


def convolved(images, kernel):
    height, width = (images.shape[1 + i] - kernel.shape[i] + 1 for i in (0, 1))
    return sum(images[:, y:y + height, x:x + width] @ kernel[y, x]
               for y in range(kernel.shape[0]) for x in range(kernel.shape[1]))


@pytest.mark.parametrize("fused", [True, False])
def test_conv2d_with_batch_norm(session, fused):
    arguments = {"decay": 0.9, "scale": True, "fused": fused}
    is_training = v1.placeholder_with_default(True, [])
    with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, padding="VALID",
                        normalizer_params={**arguments, "is_training": is_training}):
        outputs = slim.conv2d(tf.constant(IMAGES), 4, [2, 3], scope="conv")
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    initialize(session)
    values = variables(session)
    assert list(values) == [f"conv/{name}" for name in (
        "weights", "BatchNorm/gamma", "BatchNorm/beta", "BatchNorm/moving_mean",
        "BatchNorm/moving_variance")] or set(values) == {f"conv/{name}" for name in (
            "weights", "BatchNorm/gamma", "BatchNorm/beta", "BatchNorm/moving_mean",
            "BatchNorm/moving_variance")}
    found, _ = session.run([outputs, updates])
    expected = convolved(IMAGES, values["conv/weights"])
    np.testing.assert_allclose(
        found, np.maximum(normalized(expected, (0, 1, 2), 1e-3), 0), rtol=1e-4, atol=1e-5)
    count = expected[..., 0].size
    after = variables(session)
    mean = 0.1 * expected.mean((0, 1, 2))
    variance = 0.9 + 0.1 * expected.var((0, 1, 2)) * (count / (count - 1) if fused else 1)
    np.testing.assert_allclose(after["conv/BatchNorm/moving_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(after["conv/BatchNorm/moving_variance"], variance, rtol=1e-5)
    np.testing.assert_allclose(
        session.run(outputs, {is_training: False}),
        np.maximum((expected - mean) / np.sqrt(variance + 1e-3), 0), rtol=1e-4, atol=1e-5)


def test_separable_conv2d(session):
    outputs = slim.separable_conv2d(tf.constant(IMAGES), 4, 2, depth_multiplier=2,
                                    normalizer_fn=slim.batch_norm, activation_fn=None,
                                    padding="VALID", scope="sep")
    initialize(session)
    values = variables(session)
    depthwise = values["sep/depthwise_weights"]
    channels = [convolved(IMAGES[..., c:c + 1], depthwise[:, :, c:c + 1]) for c in range(3)]
    expected = np.concatenate(channels, axis=-1) @ values["sep/pointwise_weights"][0, 0]
    np.testing.assert_allclose(session.run(outputs), normalized(expected, (0, 1, 2), 1e-3),
                               rtol=1e-3, atol=1e-4)


def test_fully_connected(session):
    outputs = layers.fully_connected(
        tf.constant(ROWS), 2, normalizer_fn=layers.batch_norm, scope="dense",
        weights_regularizer=layers.l2_regularizer(0.5))
    initialize(session)
    weights = variables(session)["dense/weights"]
    np.testing.assert_allclose(
        session.run(outputs), np.maximum(normalized(ROWS @ weights, 0, 1e-3), 0), rtol=1e-3,
        atol=1e-5)
    [penalty] = session.run(v1.losses.get_regularization_losses())
    assert penalty == pytest.approx(0.25 * (weights ** 2).sum())


@pytest.mark.parametrize("name, values, axes, epsilon", [
    ("layer_norm", IMAGES, (1, 2, 3), 1e-12), ("instance_norm", IMAGES, (1, 2), 1e-6)])
def test_norms(session, name, values, axes, epsilon):
    outputs = getattr(layers, name)(tf.constant(values))
    initialize(session)
    np.testing.assert_allclose(session.run(outputs), normalized(values, axes, epsilon),
                               rtol=1e-4, atol=1e-5)


def test_group_norm(session):
    values = np.tile(IMAGES, 2)
    outputs = layers.group_norm(tf.constant(values), groups=2)
    initialize(session)
    expected = normalized(values.reshape(4, 5, 5, 2, 3), (1, 2, 4), 1e-6).reshape(values.shape)
    np.testing.assert_allclose(session.run(outputs), expected, rtol=1e-4, atol=1e-5)


def test_optimize_loss(session):
    step = v1.train.get_or_create_global_step()
    w = v1.get_variable("w", initializer=[3.0, 4.0])
    u = v1.get_variable("u", initializer=[1.0])
    train_op = layers.optimize_loss(
        tf.reduce_sum(w ** 2) / 2 + u[0] * 2, step, 0.1, "SGD", clip_gradients=1.0,
        gradient_multipliers={"u:0": 0.5}, learning_rate_decay_fn=lambda rate, step:
            v1.train.exponential_decay(rate, step, 1, 0.5),
        summaries=["loss", "learning_rate", "gradients", "gradient_norm", "global_gradient_norm"])
    merged = v1.summary.merge_all()
    initialize(session)
    w_now, u_now = np.array([3.0, 4.0]), 1.0
    for count in range(3):
        summary, loss = session.run([merged, train_op])
        norm = np.sqrt((w_now ** 2).sum() + 1)  # the gradient of u is multiplied by 0.5
        found = {value.tag: value.simple_value for value in v1.Summary.FromString(summary).value}
        rate = 0.1 * 0.5 ** count
        assert loss == pytest.approx((w_now ** 2).sum() / 2 + 2 * u_now)
        for tag, value in (("loss", loss), ("learning_rate_1", rate),
                           ("global_norm/gradient_norm", norm),
                           ("global_norm/clipped_gradient_norm", 1)):
            assert found[f"OptimizeLoss/{tag}"] == pytest.approx(value, rel=1e-5), tag
        assert "OptimizeLoss/gradients/w_0" in found and "OptimizeLoss/gradient_norm/u_0" in found
        w_now, u_now = w_now * (1 - rate / norm), u_now - rate / norm
    assert session.run(step) == 3
    np.testing.assert_allclose(session.run(w), w_now, rtol=1e-5)
    np.testing.assert_allclose(session.run(u), [u_now], rtol=1e-5)


@pytest.mark.parametrize("module", [slim.learning, tf.contrib.training])
def test_create_train_op(session, module):
    w = v1.get_variable("w", initializer=[3.0, 4.0])
    v1.losses.add_loss(tf.reduce_sum(w ** 2) / 2)
    moving = v1.get_variable("moving", initializer=0.0, trainable=False)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_add(moving, 1.0))
    clipping = {"clip_gradient_norm": 1.0} if module is slim.learning else {
        "transform_grads_fn": module.clip_gradient_norms_fn(1.0)}
    train_op = module.create_train_op(
        v1.losses.get_total_loss(), v1.train.GradientDescentOptimizer(0.5), **clipping,
        summarize_gradients=True)
    initialize(session)
    assert session.run(train_op) == pytest.approx(12.5)
    np.testing.assert_allclose(session.run(w), [3 - 0.5 * 0.6, 4 - 0.5 * 0.8], rtol=1e-6)
    assert session.run([moving, v1.train.get_global_step()]) == [1, 1]
    assert v1.get_collection(v1.GraphKeys.SUMMARIES)


def test_decoder_of_examples(session):
    image = RANDOM.integers(0, 255, [3, 2, 3], np.uint8)
    example = tf.train.Example(features=tf.train.Features(feature={
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(
            value=[session.run(tf.io.encode_png(image))])),
        "image/format": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"png"])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[7])),
        "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 0.25]))}))
    decoder = slim.tfexample_decoder.TFExampleDecoder(
        {"image/encoded": v1.FixedLenFeature((), tf.string, ""),
         "image/format": v1.FixedLenFeature((), tf.string, "png"),
         "image/class/label": v1.FixedLenFeature([], tf.int64),
         "boxes": v1.VarLenFeature(tf.float32)},
        {"image": slim.tfexample_decoder.Image(shape=[3, 2, 3]),
         "label": slim.tfexample_decoder.Tensor("image/class/label"),
         "boxes": slim.tfexample_decoder.Tensor("boxes")})
    found, label, boxes = session.run(decoder.decode(
        tf.constant(example.SerializeToString()), ["image", "label", "boxes"]))
    np.testing.assert_array_equal(found, image)
    assert label == 7
    np.testing.assert_allclose(boxes, [0.5, 0.25])


def test_net_in_an_arg_scope(session):
    from tensorflow.contrib.slim.python.slim.nets import resnet_utils, resnet_v2
    with slim.arg_scope(resnet_utils.resnet_arg_scope(weight_decay=0.1)):
        logits, ends = resnet_v2.resnet_v2(
            tf.constant(IMAGES), [resnet_v2.resnet_v2_block("block1", 4, 1, 1)], num_classes=3,
            scope="small")
    initialize(session)
    assert session.run(logits).shape == (4, 1, 1, 3) and "small/block1" in ends
    kernels = [variable for variable in v1.trainable_variables() if "weights" in variable.name]
    assert len(v1.losses.get_regularization_losses()) == len(kernels) == 6


def test_streaming_metrics(session):
    metrics = tf.contrib.metrics
    predictions = v1.placeholder(tf.float32, [None])
    labels = v1.placeholder(tf.int64, [None])
    guesses = tf.cast(predictions > 0.5, tf.int64)
    values, updates = metrics.aggregate_metric_map({
        "accuracy": metrics.streaming_accuracy(guesses, labels),
        "precision": metrics.streaming_precision(guesses, labels),
        "recall": metrics.streaming_recall(guesses, labels),
        "mean": metrics.streaming_mean(predictions),
        "auc": metrics.streaming_auc(predictions, labels, num_thresholds=2000),
        "rmse": metrics.streaming_root_mean_squared_error(
            predictions, tf.cast(labels, tf.float32)),
        "pearson": metrics.streaming_pearson_correlation(
            predictions, tf.cast(labels, tf.float32))})
    initialize(session)
    p, y = RANDOM.uniform(size=[4, 25]).astype(np.float32), RANDOM.integers(0, 2, [4, 25])
    for batch in zip(p, y, strict=True):
        session.run(updates, dict(zip((predictions, labels), batch, strict=True)))
    p, y = p.ravel(), y.ravel()
    pairs = p[y == 1][:, None] - p[y == 0]
    assert session.run(values) == pytest.approx({
        "accuracy": ((p > 0.5) == y).mean(), "precision": y[p > 0.5].mean(),
        "recall": (p[y == 1] > 0.5).mean(), "mean": p.mean(), "auc": (pairs > 0).mean(),
        "rmse": np.sqrt(((p - y) ** 2).mean()), "pearson": np.corrcoef(p, y)[0, 1]}, rel=2e-3)


def test_directly(session):
    import tf_slim
    assert tf_slim.conv2d is slim.conv2d and tf_slim.batch_norm is layers.batch_norm
    assert tf.contrib.framework.arg_scope is tf_slim.arg_scope
    assert isinstance(tf_slim.evaluation, type(io))
