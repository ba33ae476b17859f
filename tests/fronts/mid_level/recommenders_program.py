# SPDX-License-Identifier: Apache-2.0
"""Two towers on the embedding layer of TensorFlow Recommenders, under a TPUStrategy.

Written for a TPU: it does not know this package. Prints what it learned as JSON.
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

BATCH_SIZE, SAMPLES, VOCABULARY = 32, 128, 16

embedding_api = tf.tpu.experimental.embedding
rng = np.random.default_rng(0)
IDS = {name: rng.integers(0, VOCABULARY, [SAMPLES, 1]).astype(np.int32)
       for name in ("user", "item")}
LABELS = ((IDS["user"] + IDS["item"]) % 2).astype(np.float32)


def rows(seed, shape):
    return tf.constant_initializer(np.random.default_rng(seed).normal(size=shape))


def make_model(optimizer, of_tables):
    configs = {name: embedding_api.FeatureConfig(embedding_api.TableConfig(
        VOCABULARY, 4, initializer=rows(seed, [VOCABULARY, 4]), name=name))
        for seed, name in enumerate(IDS)}
    inputs = {name: tf.keras.Input([1], BATCH_SIZE, dtype=tf.int32, name=name) for name in IDS}
    layer = tfrs.layers.embedding.TPUEmbedding(configs, of_tables)
    towers = layer(inputs)
    towers = [tf.keras.layers.Dense(4, kernel_initializer=rows(7, [4, 4]))(
        tf.keras.layers.Reshape([4])(towers[name])) for name in IDS]  # off TPUs [batch, 1, 4]
    model = tf.keras.Model(inputs, tf.keras.layers.Dot(1)(towers))
    model.compile(optimizer, tf.keras.losses.BinaryCrossentropy(from_logits=True),
                  metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)])
    return model, layer


def train_in_loop(strategy, model, dataset):
    """Trains as the layer's documents do, in a loop of the program's own; returns a loss."""
    def step(features, labels):
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.binary_crossentropy(
                labels, model(features, training=True), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH_SIZE)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    run = tf.function(lambda batch: strategy.reduce("sum", strategy.run(step, batch), axis=None))
    return [float(run(batch)) for batch in strategy.experimental_distribute_dataset(dataset)][-1]


def learn(strategy, of_tables=None):
    with strategy.scope():
        optimizer = tf.keras.optimizers.legacy.Adagrad(0.3)
        model, layer = make_model(optimizer, of_tables or optimizer)
    dataset = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(
        BATCH_SIZE, drop_remainder=True)
    untrained = model.evaluate(dataset, verbose=0)
    losses = model.fit(dataset, epochs=8, verbose=0).history["loss"]
    in_loop = train_in_loop(strategy, model, dataset)
    evaluated = model.evaluate(dataset, verbose=0)
    tables = {config.name: table for config, table in layer.embedding_tables.items()}
    slots = {} if of_tables else {
        name: optimizer.get_slot(table, "accumulator") for name, table in tables.items()}
    return {"evaluated": [untrained, evaluated, model.evaluate(dataset, verbose=0)],
            "losses": [*losses, in_loop],
            **{f"{kind} {name}": variable.numpy().tolist()
               for kind, variables in (("table", tables), ("slot", slots))
               for name, variable in variables.items()}}


def main():
    if "stock" in sys.argv:  # as TensorFlow trains it without a TPU
        json.dump([learn(tf.distribute.get_strategy())], sys.stdout)
        return
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    print(strategy.num_replicas_in_sync, "replicas", file=sys.stderr)
    json.dump([learn(strategy), learn(strategy, embedding_api.Adagrad(0.3))], sys.stdout)


main()
