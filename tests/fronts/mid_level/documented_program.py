# SPDX-License-Identifier: Apache-2.0
"""The code samples of TPUEmbedding's documents, of releases 2.3 and 2.4, with a small model.

Written for a TPU: it does not know this package.
"""

import tempfile

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

embedding_api = tf.tpu.experimental.embedding
BATCH_SIZE, STEPS = 8, 40

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)

table_config_one = embedding_api.TableConfig(vocabulary_size=20, dim=4)
table_config_two = embedding_api.TableConfig(vocabulary_size=10, dim=2)
feature_config = {
    "feature_one": embedding_api.FeatureConfig(table=table_config_one),
    "feature_two": embedding_api.FeatureConfig(table=table_config_one),
    "feature_three": embedding_api.FeatureConfig(table=table_config_two)}


def dataset_fn(context):
    def features(number):
        ids = tf.random.stateless_uniform([4, 3], [0, number], 0, 10, tf.int64)
        return {"feature_one": ids[:, :1], "feature_two": tf.sparse.from_dense(ids + 1),
                "feature_three": tf.sparse.from_dense(ids[:, :2])}, tf.cast(
                    ids[:, 0] % 2, tf.float32)
    assert context.get_per_replica_batch_size(BATCH_SIZE) == 4
    return tf.data.Dataset.counter().map(features)


def model_fn():
    model = tf.Module()
    model.weights = tf.Variable(tf.ones([10, 1]), name="weights")
    return model


def apply(model, activations):
    joined = tf.concat([activations[name] for name in sorted(activations)], 1)
    return tf.matmul(joined, model.weights)[:, 0]


def train_and_evaluate(new_embedding, strategy):
    with strategy.scope():
        embedding, model = new_embedding(), model_fn()
    distributed_dataset = strategy.distribute_datasets_from_function(
        dataset_fn=dataset_fn,
        options=tf.distribute.InputOptions(experimental_fetch_to_device=False))
    embedding.build(4)

    @tf.function
    def training_step(dataset_iterator, num_steps):
        def tpu_step(labels):
            with tf.GradientTape() as tape:
                activations = embedding.dequeue()
                tape.watch(activations)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
                    labels, apply(model, activations)))
            embedding_gradients = tape.gradient(loss, activations)
            embedding.apply_gradients(embedding_gradients)

        for _ in tf.range(num_steps):
            embedding_features, labels = next(dataset_iterator)
            embedding.enqueue(embedding_features, training=True)
            strategy.run(tpu_step, args=(labels,))

    @tf.function
    def evaluation_step(dataset_iterator, num_steps):
        def tpu_step(labels):
            logits = apply(model, embedding.dequeue())
            return tf.reduce_mean(tf.cast((logits > 0) == (labels > 0.5), tf.float32))

        accuracy = 0.0
        for _ in tf.range(num_steps):
            embedding_features, labels = next(dataset_iterator)
            embedding.enqueue(embedding_features, training=False)
            accuracy += strategy.reduce("MEAN", strategy.run(tpu_step, args=(labels,)), None)
        return accuracy / tf.cast(num_steps, tf.float32)

    iterator = iter(distributed_dataset)
    training_step(iterator, STEPS)
    print(f"replicas {strategy.num_replicas_in_sync}, "
          f"learned {float(evaluation_step(iterator, 5)) > 0.8}")
    return embedding, model


def save_and_serve(embedding, model, new_embedding, folder):
    path = tf.train.Checkpoint(model=model, embedding=embedding).save(f"{folder}/model")
    model = model_fn()
    embedding = new_embedding()
    checkpoint = tf.train.Checkpoint(model=model, embedding=embedding)
    checkpoint.restore(path)
    tables = embedding.embedding_tables
    looked_up = tf.nn.embedding_lookup(tables[table_config_one], [3])

    @tf.function(input_signature=[{"feature_one": tf.TensorSpec([None], tf.int64),
                                   "feature_two": tf.RaggedTensorSpec([None, None], tf.int64),
                                   "feature_three": tf.TensorSpec([None], tf.int64)}])
    def serve_tensors(embedding_features):
        return embedding_api.serving_embedding_lookup(
            embedding_features, None, embedding.embedding_tables, feature_config)

    model.embedding_api = embedding
    one = tf.constant([3], tf.int64)
    served = serve_tensors({"feature_one": one, "feature_three": one,
                            "feature_two": tf.ragged.constant([[3]], dtype=tf.int64)})
    print("served", bool(tf.reduce_all(served["feature_one"] == looked_up)))


strategy = tf.distribute.TPUStrategy(resolver)


def release_2_4():
    return embedding_api.TPUEmbedding(feature_config=feature_config,
                                      optimizer=embedding_api.Adagrad(1.0))


def release_2_3():
    return embedding_api.TPUEmbedding(feature_config=feature_config, batch_size=BATCH_SIZE,
                                      optimizer=embedding_api.SGD(1.0))


for release in (release_2_4, release_2_3):
    save_and_serve(*train_and_evaluate(release, strategy), release_2_4, tempfile.mkdtemp())
