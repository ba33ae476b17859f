# SPDX-License-Identifier: Apache-2.0
"""Orders of calls in which a TPU waits forever: errors, after which the program may continue."""

import threading

import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import SGD, FeatureConfig, TableConfig, TPUEmbedding
from tpu_estimator_embedding.mid_level.execution.waiting_batches import CAPACITY

IDS = {"title": tf.constant([1, 2])}
GRADIENTS = {"title": tf.ones([2, 1])}


@pytest.fixture
def table():
    return TableConfig(4, 1, tf.zeros_initializer(), name="words")


@pytest.fixture
def embedding(table):
    return TPUEmbedding({"title": FeatureConfig(table)}, SGD(1.0))


def train(embedding):
    embedding.enqueue(IDS)
    embedding.dequeue()
    embedding.apply_gradients(GRADIENTS)


@pytest.mark.parametrize("call", [
    lambda embedding: embedding.dequeue(),
    lambda embedding: embedding.apply_gradients(GRADIENTS)])
def test_calls_before_the_first_enqueue_are_errors(embedding, call):
    with pytest.raises(RuntimeError, match="called on unbuilt TPUEmbedding object. Please either"):
        call(embedding)


@pytest.mark.all_cases
@pytest.mark.parametrize("ids, weights", [
    (tf.constant([1.0]), None), (tf.constant([True]), None), (tf.constant(["1"]), None),
    (tf.sparse.from_dense([[1]]), tf.sparse.from_dense([["1"]]))])
def test_a_first_batch_that_is_refused_fixes_no_shapes(embedding, ids, weights):
    with pytest.raises(ValueError, match="of feature 'title' must be"):
        embedding.enqueue({"title": ids}, weights and {"title": weights})
    train(embedding)


def test_dequeue_of_nothing_is_an_error(embedding):
    train(embedding)
    with pytest.raises(RuntimeError, match="`dequeue` must come after enqueue"):
        embedding.dequeue()
    train(embedding)


def rows(embedding, table):
    return embedding.embedding_tables[table].numpy().ravel().tolist()


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("wrap", [lambda call: call, tf.function])
def test_batches_may_be_enqueued_before_the_gradients_of_others(table, wrap, pipelined):
    embedding = TPUEmbedding({"title": FeatureConfig(table)}, SGD(1.0), pipelined)
    embedding.build(2)

    @wrap
    def step(ids):  # the next batch comes between the activations and their gradients
        activations = embedding.dequeue()
        embedding.enqueue({"title": ids})
        embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations))

    embedding.enqueue({"title": tf.constant([0, 1])})
    for ids in ([1, 2], [2, 3], [3, 0]):
        step(tf.constant(ids))
    assert rows(embedding, table) == [-1.0, -2.0, -2.0, -1.0]
    embedding.dequeue()
    embedding.apply_gradients(GRADIENTS)
    assert rows(embedding, table) == [-2.0, -2.0, -2.0, -2.0]


@pytest.mark.parametrize("wrap", [lambda call: call, tf.function])
def test_threads_enqueue_what_another_thread_trains(table, wrap):
    embedding = TPUEmbedding({"title": FeatureConfig(table)}, SGD(1.0))
    embedding.build(2)
    room, ready = threading.Semaphore(CAPACITY), threading.Semaphore(0)
    enqueue = wrap(lambda ids: embedding.enqueue({"title": ids}))
    step = wrap(lambda: (embedding.dequeue(), embedding.apply_gradients(GRADIENTS))[1])
    enqueue(tf.constant([0, 1]))
    step()  # both are traced

    def produce(row):
        for _ in range(40):
            room.acquire()
            enqueue(tf.constant([row, row]))
            ready.release()

    producers = [threading.Thread(target=produce, args=[row]) for row in (1, 2, 3)]
    for producer in producers:
        producer.start()
    for _ in range(120):
        ready.acquire()
        step()
        room.release()
    for producer in producers:
        producer.join()
    assert rows(embedding, table) == [-1.0, -81.0, -80.0, -80.0]


def test_first_batches_of_two_threads_share_one_queue(embedding, table):
    start = threading.Barrier(4)

    def first():
        start.wait()
        embedding.enqueue(IDS)

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in threads:
        embedding.dequeue()
        embedding.apply_gradients(GRADIENTS)
    assert rows(embedding, table) == [0.0, -4.0, -4.0, 0.0]


def test_missing_gradients_are_an_error_at_the_next_dequeue(embedding, table):
    embedding.enqueue(IDS)
    embedding.enqueue({"title": tf.constant([3, 3])})
    embedding.dequeue()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="`apply_gradients` must be called for every batch"):
            embedding.dequeue()
    embedding.apply_gradients(GRADIENTS)
    embedding.dequeue()
    embedding.apply_gradients(GRADIENTS)
    assert rows(embedding, table) == [0.0, -1.0, -1.0, -2.0]


def test_program_that_drops_its_batches_starts_with_the_next(embedding, table):
    embedding.drop_batches()
    embedding.enqueue(IDS)
    embedding.enqueue({"title": tf.constant([0, 0])})
    embedding.dequeue()
    embedding.drop_batches()
    with pytest.raises(RuntimeError, match="`apply_gradients` must come, once, after"):
        embedding.apply_gradients(GRADIENTS)
    with pytest.raises(RuntimeError, match="`dequeue` must come after enqueue"):
        embedding.dequeue()
    train(embedding)
    assert rows(embedding, table) == [0.0, -1.0, -1.0, 0.0]


def test_rate_that_fails_leaves_the_batch(table):
    rates = iter([ValueError("no rate"), 1.0])

    def rate():
        value = next(rates)
        if isinstance(value, Exception):
            raise value
        return value

    embedding = TPUEmbedding({"title": FeatureConfig(table)}, SGD(rate))
    embedding.enqueue(IDS)
    embedding.dequeue()
    with pytest.raises(ValueError, match="no rate"):
        embedding.apply_gradients(GRADIENTS)
    embedding.apply_gradients(GRADIENTS)
    assert rows(embedding, table) == [0.0, -1.0, -1.0, 0.0]


def test_named_batches_without_gradients_are_for_inference(embedding, table):
    @tf.function
    def forward():
        embedding.enqueue(IDS, name="towers")
        return embedding.dequeue(name="towers")["title"]

    embedding.build(2)
    for _ in range(3):
        assert forward().numpy().tolist() == [[0.0], [0.0]]
    embedding.enqueue(IDS, name="towers")
    embedding.dequeue(name="towers")
    embedding.apply_gradients(GRADIENTS, name="towers")
    assert forward().numpy().tolist() == [[-1.0], [-1.0]]


@pytest.mark.parametrize("before", [
    lambda embedding: (embedding.enqueue(IDS, training=False), embedding.dequeue()),
    lambda embedding: embedding.enqueue(IDS), train])
def test_gradients_of_nothing_are_an_error(embedding, table, before):
    embedding.build(2)
    before(embedding)
    tables = embedding.embedding_tables[table].numpy()
    with pytest.raises(RuntimeError, match="`apply_gradients` must come, once, after"):
        embedding.apply_gradients(GRADIENTS)
    assert (embedding.embedding_tables[table].numpy() == tables).all()


def test_batches_that_are_never_dequeued_are_an_error(embedding, table):
    for _ in range(16):
        embedding.enqueue(IDS)
    with pytest.raises(RuntimeError, match="`enqueue` must be followed by dequeue, got 16"):
        embedding.enqueue(IDS)
    for _ in range(16):  # none is lost
        embedding.dequeue()
        embedding.apply_gradients(GRADIENTS)
    assert rows(embedding, table) == [0.0, -16.0, -16.0, 0.0]


def test_functions_fail_with_the_same_sentences(embedding, table):
    embedding.build(2)
    dequeue = tf.function(lambda: embedding.dequeue()["title"])
    forward = tf.function(lambda: (embedding.enqueue(IDS), embedding.dequeue())[1]["title"])
    update = tf.function(lambda: embedding.apply_gradients(GRADIENTS))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`dequeue` must come after enqueue"):
        dequeue()
    forward()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be called for every batch"):
        forward()
    update()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must come, once, after"):
        update()
    dequeue()  # of the batch that waited
    update()
    assert rows(embedding, table) == [0.0, -2.0, -2.0, 0.0]


def test_loop_without_gradients_fails(embedding):
    @tf.function
    def forward(steps):
        for _ in tf.range(steps):
            embedding.enqueue(IDS, training=True)
            embedding.dequeue()

    with pytest.raises(tf.errors.InvalidArgumentError, match="must be called for every batch"):
        forward(2)


def test_calls_of_a_step_may_be_in_functions_of_their_own(embedding, table):
    @tf.function
    def step():
        embedding.apply_gradients({"title": embedding.dequeue()["title"] - 1.0})

    for _ in range(3):
        embedding.enqueue(IDS)
        step()
    assert step.experimental_get_tracing_count() == 1
    assert embedding.embedding_tables[table].numpy().tolist() == [[0.0], [1.0], [1.0], [0.0]]


def test_tables_without_optimizer_are_not_trained(table):
    embedding = TPUEmbedding({"title": FeatureConfig(table)}, None)
    with pytest.raises(RuntimeError, match="Tables without an optimizer cannot be trained"):
        embedding.enqueue(IDS)
    embedding.enqueue(IDS, training=False)
    assert embedding.dequeue()["title"].numpy().tolist() == [[0.0], [0.0]]
    with pytest.raises(RuntimeError, match="`apply_gradients` must come, once, after"):
        embedding.apply_gradients(GRADIENTS)
    assert list(embedding._trackable_children()) == ["words"]


def test_replicas_in_other_processes_are_refused(table, monkeypatch):
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(strategy.extended, "_num_workers", 2, raising=False)
    with pytest.raises(RuntimeError, match="`strategy` must be one whose replicas are all in this "
                                           "process, or a ParameterServerStrategy, got "):
        TPUEmbedding({"title": FeatureConfig(table)}, SGD(1.0))


def test_graphs_for_sessions_are_refused(table):
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="must be created in eager"):
        TPUEmbedding({"title": FeatureConfig(table)}, SGD(1.0))
