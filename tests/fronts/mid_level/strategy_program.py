# SPDX-License-Identifier: Apache-2.0
"""Trains under every strategy, in a process with two logical CPUs, and prints what differs.

Every way of calling trains on the same global batches, so that every table has to be equal.
"""

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

from tests.spec.oracle import Entry, Feature, Optimizer, Oracle, Table  # noqa: E402
from tpu_estimator_embedding.mid_level import (  # noqa: E402
    SGD,
    Adagrad,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
)

STEPS = 3
START = np.random.default_rng(0).uniform(-1, 1, [10, 2]).astype(np.float32)
IDS = np.random.default_rng(1).integers(0, 10, [STEPS * 4, 3])  # batches of 4, of 3 ids


def new_embedding(accumulate=True, **options):
    table = TableConfig(10, 2, tf.compat.v1.constant_initializer(START), combiner="mean")
    optimizer = Adagrad(0.5, use_gradient_accumulation=accumulate)
    return TPUEmbedding({"bag": FeatureConfig(table), "one": FeatureConfig(table)}, optimizer,
                        **options)


def dataset(batch_size=4):
    return tf.data.Dataset.from_tensor_slices(IDS).batch(batch_size, drop_remainder=True).map(
        lambda ids: {"bag": tf.RaggedTensor.from_tensor(ids).to_sparse(), "one": ids[:, :1]})


def loss_of(activations):
    return tf.reduce_sum(activations["bag"] ** 2) + tf.reduce_sum(activations["one"])


def enqueue_by_device(embedding, strategy, features):
    """Gives each replica its ids by itself, the last one first."""
    for replica, device in reversed(list(enumerate(strategy.extended.worker_devices))):
        embedding.enqueue(tf.nest.map_structure(
            lambda value, replica=replica: strategy.experimental_local_results(value)[replica],
            features), training=True, device=device)


def train(embedding, strategy, *, inside, loop, by_device=False):
    def replica(features):
        if inside:
            embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = loss_of(activations)
        embedding.apply_gradients(tape.gradient(loss, activations))

    def step(features):
        if by_device:
            enqueue_by_device(embedding, strategy, features)
        elif not inside:
            embedding.enqueue(features, training=True)
        strategy.run(replica, args=(features,))

    @tf.function
    def steps(iterator, count):
        for _ in tf.range(count):
            step(next(iterator))

    iterator = iter(strategy.experimental_distribute_dataset(dataset()))
    if loop:
        steps(iterator, STEPS)
    else:
        for features in iterator:
            step(features)


def oracle_tables(accumulate=True, num_cores=1):
    oracle = Oracle([Table("t", START, "mean", Optimizer("Adagrad", 0.5, accumulate=accumulate))],
                    [Feature("bag", "t"), Feature("one", "t")], num_cores=num_cores)
    for step in range(STEPS):
        ids = IDS[4 * step:4 * step + 4]
        batch = {"bag": [[Entry(id) for id in row] for row in ids],
                 "one": [[Entry(row[0])] for row in ids]}
        activations = oracle.activations(batch)
        oracle.apply(batch, {"bag": 2 * activations["bag"],
                             "one": np.ones_like(activations["one"])}, step)
    return {"table_0": oracle.tables["t"].values,
            "table_0/accumulators": oracle.tables["t"].slots["accumulators"]}


def check(name, embedding, **options):
    for key, values in oracle_tables(**options).items():
        variable = embedding._trackable_children()[key]
        np.testing.assert_allclose(variable, values, rtol=1e-5, atol=1e-6, err_msg=name)
        assert type(variable).__name__ == "ResourceVariable", name
    print(name)


def expect(error, message, call):
    try:
        call()
    except error as raised:
        assert message in str(raised), raised
    else:
        raise AssertionError(message)


two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
STRATEGIES = {"mirrored": two, "one device": tf.distribute.OneDeviceStrategy("CPU:1"),
              "default": tf.distribute.get_strategy()}
WAYS = {"outside": {"inside": False, "loop": True}, "inside": {"inside": True, "loop": True},
        "eager": {"inside": True, "loop": False},
        "by device": {"inside": False, "loop": True, "by_device": True},
        "by device, eager": {"inside": False, "loop": False, "by_device": True}}
for kind, strategy in STRATEGIES.items():
    for way in WAYS if strategy is two else ("outside",):
        with strategy.scope():
            embedding = new_embedding()
        embedding.build(4 // strategy.num_replicas_in_sync)
        train(embedding, strategy, **WAYS[way])
        check(f"{kind}, {way}", embedding)

with two.scope():
    unaccumulated = new_embedding(accumulate=False)
    former = TPUEmbedding(FeatureConfig(TableConfig(10, 2)), 4, Adagrad(0.5))
    expect(ValueError, "`batch_size` must be a multiple of the 2 replicas, got 3",
           lambda: TPUEmbedding(FeatureConfig(TableConfig(10, 2)), 3, Adagrad(0.5)))
unaccumulated.build(2)
train(unaccumulated, two, inside=False, loop=True)
check("unaccumulated", unaccumulated, accumulate=False, num_cores=2)

for pipelined, seen in ((False, [-6, -38]), (True, [-3, -19])):  # by hand, the third step
    table = TableConfig(4, 1, tf.zeros_initializer(), combiner="sum")
    with two.scope():
        embedding = TPUEmbedding([FeatureConfig(table)], SGD(1.0), pipelined)

    def replica(embedding=embedding):
        """Looks up [0], [1, 2] in the first replica, [1], [2, 3] in the second."""
        first = tf.distribute.get_replica_context().replica_id_in_sync_group
        ids = tf.RaggedTensor.from_row_lengths(tf.stack([first, first + 1, first + 2]), [1, 2])
        embedding.enqueue([ids], [ids.with_values(tf.constant([1.0, 2.0, 3.0]))])
        activations = embedding.dequeue()
        embedding.apply_gradients([tf.ones_like(activations[0])])
        return activations[0]

    embedding.build(2)
    step = tf.function(lambda replica=replica: two.run(replica))
    activations = [two.experimental_local_results(step())[1] for _ in range(3)][-1]
    assert activations.numpy().ravel().tolist() == seen
    assert embedding.embedding_tables[table].numpy().ravel().tolist() == [-3, -9, -15, -9]
print("ragged with weights, pipelined or not")

former.enqueue(tf.constant([1, 2]))  # the same ids for both replicas
assert two.experimental_local_results(two.run(former.dequeue))[1].shape == [2, 2]
expect(RuntimeError, "`dequeue` must be called inside strategy.run, because each of the 2",
       former.dequeue)
elsewhere = new_embedding()
expect(RuntimeError, "must be called under the strategy in whose scope the object was created, got "
       "MirroredStrategy", lambda: two.run(
           lambda: elsewhere.enqueue({"bag": tf.constant([1]), "one": tf.constant([1])})))
print("errors")
