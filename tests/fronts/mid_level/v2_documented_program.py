# SPDX-License-Identifier: Apache-2.0
"""The calls of the documents of TPUEmbeddingV2 and PartialTPUEmbedding, with a small model.

The part with TPUEmbeddingV2 is written for a TPU: it does not know this package.
"""

import tensorflow as tf

BATCH_SIZE, STEPS = 8, 60  # of each replica


def dataset(batch_size):
    def features(number):
        ids = tf.random.stateless_uniform([batch_size, 3], [0, number], 0, 10, tf.int64)
        return {"item": ids[:, 0], "seen": tf.sparse.from_dense(ids + 1)}, tf.cast(
            ids[:, :1] % 2, tf.float32)
    return tf.data.Dataset.counter().map(features)


def train_v2():
    embedding_api = tf.tpu.experimental.embedding
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    table = embedding_api.TableConfig(vocabulary_size=11, dim=4)
    feature_config = {"item": embedding_api.FeatureConfig(table=table, output_shape=[BATCH_SIZE]),
                      "seen": embedding_api.FeatureConfig(table=table, output_shape=[BATCH_SIZE])}
    with strategy.scope():
        embedding = embedding_api.TPUEmbeddingV2(feature_config, embedding_api.Adagrad(0.3))
        weights = tf.Variable(tf.ones([8, 1]))
    iterator = iter(strategy.distribute_datasets_from_function(
        lambda context: dataset(BATCH_SIZE)))

    @tf.function
    def train(iterator, steps):
        def tpu_step(features, labels):
            activations, preserved_outputs = embedding.embedding_lookup(features)
            with tf.GradientTape() as tape:
                tape.watch(activations)
                logits = tf.concat([activations["item"], activations["seen"]], 1) @ weights
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
            embedding.apply_gradients(tape.gradient(loss, activations), preserved_outputs)
            return loss

        loss = 0.0
        for _ in tf.range(steps):
            losses = strategy.run(tpu_step, args=next(iterator))
            loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
        return loss

    first, last = train(iterator, 1), train(iterator, STEPS)
    print("TPUEmbeddingV2 learns:", bool(last < 0.5 * first))
    print(sorted(embedding.embedding_tables), type(strategy).__name__)


def train_partial():
    from tpu_estimator_embedding.mid_level import PartialTPUEmbedding
    embedding_api, keras = tf.tpu.experimental.embedding, tf.keras
    feature_config = {"item": embedding_api.FeatureConfig(embedding_api.TableConfig(11, 4)),
                      "seen": embedding_api.FeatureConfig(embedding_api.TableConfig(20_000, 4))}
    layer = PartialTPUEmbedding(feature_config, embedding_api.Adagrad(0.3), size_threshold=10_000)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = layer, keras.layers.Dense(1)

        def call(self, features):
            activations = self.embedding(features)
            return self.dense(tf.concat([activations["item"], activations["seen"]], 1))

    model = Model()
    model.compile(keras.optimizers.Adagrad(0.3), keras.losses.BinaryCrossentropy(
        from_logits=True))
    losses = model.fit(dataset(BATCH_SIZE), steps_per_epoch=30, epochs=2, verbose=0).history["loss"]
    print("PartialTPUEmbedding learns:", losses[1] < 0.7 * losses[0])
    print(list(layer.keras_embedding_layers))


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    train_v2()
    train_partial()
