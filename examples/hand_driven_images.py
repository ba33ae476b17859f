# SPDX-License-Identifier: Apache-2.0
r"""Classifies images by a convolutional network that drives the TPU by hand, without tables.

One graph reads images by tf.data and feeds every core; another trains in a loop on all cores, with
moments of batch normalization over all of them, and counts right answers in a loop of evaluation;
a third one takes the loss of every step from the outfeed.

    python examples/synthetic_data.py images /tmp/images
    tpu-estimator-embedding run --cores 2 examples/hand_driven_images.py \
        --data_dir=/tmp/images --model_dir=/tmp/images/model
"""

import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from tensorflow.python.tpu import tpu_feed, training_loop
from tensorflow.python.tpu.ops import tpu_ops

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Where images.npz is.", required=True)
flags.DEFINE_string("model_dir", None, "Where the checkpoint goes.", required=True)
flags.DEFINE_string("tpu", "", "The TPU.")
flags.DEFINE_integer("num_cores", 2, "Cores of the TPU.")
flags.DEFINE_integer("batch_size", 128, "Images of a step on all cores.")
flags.DEFINE_integer("train_steps", 80, "Steps of training.")
flags.DEFINE_float("learning_rate", 0.05, "At the start; it falls by a cosine.")

NUM_CLASSES = 10


def load_images():
    """Returns the images and labels of training, and those of evaluation."""
    with np.load(os.path.join(FLAGS.data_dir, "images.npz")) as file:
        images, labels = file["images"], file["labels"]
    num_eval = len(labels) // 4 // FLAGS.batch_size * FLAGS.batch_size
    return (images[num_eval:], labels[num_eval:]), (images[:num_eval], labels[:num_eval])


def infeed_of(shape):
    return tpu_feed.InfeedQueue(
        tuple_types=[tf.float32, tf.int32],
        tuple_shapes=[[FLAGS.batch_size, *shape], [FLAGS.batch_size]])


def feed(train, evaluation):
    """Enqueues the batches of all training steps, then those of the evaluation."""
    share = FLAGS.batch_size // FLAGS.num_cores
    with tf.Graph().as_default():
        batches = tf.data.Dataset.from_tensor_slices(train).shuffle(4096, seed=1).repeat().batch(
            FLAGS.batch_size, drop_remainder=True).take(FLAGS.train_steps)
        batches = batches.concatenate(tf.data.Dataset.from_tensor_slices(evaluation).batch(
            FLAGS.batch_size, drop_remainder=True))
        images, labels = tf.data.make_one_shot_iterator(batches).get_next()
        enqueue = []
        for core in range(FLAGS.num_cores):
            rows = slice(core * share, (core + 1) * share)
            enqueue.append(tpu_ops.infeed_enqueue_tuple(
                [images[rows], labels[rows]], [[share, *images.shape[1:]], [share]],
                device_ordinal=core))
        with tf.Session(FLAGS.tpu) as session:
            try:
                while True:
                    session.run(enqueue)
            except tf.errors.OutOfRangeError:
                return


def collect_losses(losses):
    with tf.Graph().as_default(), tf.Session(FLAGS.tpu) as session:
        dequeue = [tpu_ops.outfeed_dequeue(tf.float32, [], core)
                   for core in range(FLAGS.num_cores)]
        for _ in range(FLAGS.train_steps):
            losses.append(np.mean(session.run(dequeue)))


def normalize(values, name, is_training):
    """Batch normalization, with moments over the images of all cores."""
    channels = values.shape.as_list()[-1]
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [channels], initializer=tf.ones_initializer())
        shift = tf.get_variable("shift", [channels], initializer=tf.zeros_initializer())
        averages = [tf.get_variable(moment, [channels], initializer=initializer, trainable=False)
                    for moment, initializer in (("mean", tf.zeros_initializer()),
                                                ("mean_square", tf.ones_initializer()))]
    updates = []
    moments = averages
    if is_training:
        axes = [0, 1, 2]
        moments = [tpu_ops.cross_replica_sum(tf.reduce_mean(value, axes)) / FLAGS.num_cores
                   for value in (values, tf.square(values))]
        updates = [average.assign_sub(0.1 * (average - moment))
                   for average, moment in zip(averages, moments, strict=True)]
    mean, mean_square = moments
    with tf.control_dependencies(updates):
        return (values - mean) * tf.math.rsqrt(mean_square - mean ** 2 + 1e-3) * scale + shift


def model(images, is_training):
    """Returns logits `[batch, NUM_CLASSES]`."""
    values = images
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE, use_resource=True):
        for layer, channels in enumerate((16, 32)):
            kernel = tf.get_variable(f"kernel_{layer}",
                                     [5, 5, values.shape.as_list()[-1], channels],
                                     initializer=tf.glorot_normal_initializer(seed=layer))
            values = tf.nn.conv2d(values, kernel, strides=2 - layer, padding="SAME")
            values = tf.nn.relu(normalize(values, f"norm_{layer}", is_training))
        kernel = tf.get_variable("logits", [channels, NUM_CLASSES],
                                 initializer=tf.glorot_normal_initializer(seed=2))
        return tf.reduce_max(values, [1, 2]) @ kernel


def train_step(images, labels):
    step = tf.train.get_global_step()
    loss = tf.losses.sparse_softmax_cross_entropy(labels, model(images, is_training=True))
    rate = tf.train.cosine_decay(FLAGS.learning_rate, step, FLAGS.train_steps)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(rate, 0.9))
    return optimizer.minimize(loss, step), tpu_ops.outfeed_enqueue(loss)


def evaluation_step(right, images, labels):
    answers = tf.argmax(model(images, is_training=False), axis=1, output_type=tf.int32)
    return right + tf.reduce_sum(tf.cast(tf.equal(answers, labels), tf.int32))


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments {argv[1:]}")
    train, evaluation = load_images()
    eval_steps = len(evaluation[1]) // FLAGS.batch_size
    shape = train[0].shape[1:]
    losses = []
    threads = [threading.Thread(target=feed, args=[train, evaluation], daemon=True),
               threading.Thread(target=collect_losses, args=[losses], daemon=True)]

    def train_loop():
        return training_loop.repeat(FLAGS.train_steps, train_step, infeed_queue=infeed_of(shape))

    def evaluation_loop():
        return training_loop.repeat(eval_steps, evaluation_step, [tf.constant(0)],
                                    infeed_queue=infeed_of(shape))

    with tf.Graph().as_default(), tf.Session(FLAGS.tpu) as session:
        tf.train.create_global_step()
        training = tf.tpu.shard(train_loop, num_shards=FLAGS.num_cores)
        [right] = tf.tpu.shard(evaluation_loop, num_shards=FLAGS.num_cores)
        session.run(tf.tpu.initialize_system())
        session.run(tf.global_variables_initializer())
        for thread in threads:
            thread.start()
        session.run(training)
        accuracy = session.run(right).sum() / len(evaluation[1])
        for thread in threads:
            thread.join()
        tf.train.Saver().save(session, os.path.join(FLAGS.model_dir, "model.ckpt"),
                              FLAGS.train_steps)
        session.run(tf.tpu.shutdown_system())
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    app.run(main)
