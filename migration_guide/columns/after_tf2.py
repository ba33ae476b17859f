# SPDX-License-Identifier: Apache-2.0
"""Columns: in a TF2 training loop, a table for each column."""

import sys

import tensorflow as tf
from tpu_estimator_embedding import checkpoint, mid_level

NUM_WORDS = 50


def feature_config():
    words = mid_level.TableConfig(
        NUM_WORDS, 4, tf.compat.v1.truncated_normal_initializer(stddev=0.1), combiner="mean",
        name="words")
    users = mid_level.TableConfig(NUM_WORDS, 4, combiner="mean", name="users")
    return {"words": mid_level.FeatureConfig(words), "users": mid_level.FeatureConfig(users)}


def input_fn(params):
    batch = params["batch_size"]
    ids = tf.data.Dataset.range(1000).batch(batch, drop_remainder=True)

    def example(row):
        words = tf.SparseTensor(
            tf.stack([tf.repeat(tf.range(batch, dtype=tf.int64), 2),
                      tf.tile(tf.constant([0, 1], tf.int64), [batch])], axis=1),
            tf.repeat(row, 2) * 7 % NUM_WORDS, [batch, 2])
        # The Estimator took a 0 in a dense tensor for padding.
        users = tf.sparse.from_dense(row[:, tf.newaxis] * 3 % NUM_WORDS)
        return {"words": words, "users": users}, tf.cast(row % 2, tf.float32)

    return ids.map(example).repeat()


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.zeros([8, 1]), name="kernel")

    def loss(self, activations, labels):
        # input_layer concatenated the columns in the order of their names.
        inputs = tf.concat([activations["users"], activations["words"]], axis=1)
        logits = tf.matmul(inputs, self.kernel)[:, 0]
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


def main(model_dir, estimator_checkpoint, steps=20):
    embedding = mid_level.TPUEmbedding(
        feature_config(), mid_level.Adam(0.1, epsilon=1e-6, clipvalue=0.01))
    embedding.build(per_replica_batch_size=8)
    model = Model()
    step = tf.Variable(0, dtype=tf.int64)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    optimizer.apply_gradients([(tf.zeros_like(model.kernel), model.kernel)])  # makes its slots

    saved = tf.train.Checkpoint(embedding=embedding, variables={
        "global_step": step,
        **{one.name[:-2]: one for one in [model.kernel, *optimizer.variables()]}})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tf2")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    @tf.function
    def train_step(features, labels):
        embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = model.loss(activations, labels)
        of_activations, of_kernel = tape.gradient(loss, (activations, model.kernel))
        embedding.apply_gradients(of_activations)
        optimizer.apply_gradients([(of_kernel, model.kernel)], global_step=step)
        return loss

    for features, labels in input_fn({"batch_size": 8}).take(int(steps)):
        loss = train_step(features, labels)
    print(f"loss {float(loss):.4f}")
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
