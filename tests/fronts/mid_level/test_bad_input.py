# SPDX-License-Identifier: Apache-2.0
"""Bad input to TPUEmbedding: an error that names the feature, before anything changes."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import Adagrad, FeatureConfig, TableConfig, TPUEmbedding

TITLE, WORDS = tf.constant([1, 2]), tf.sparse.from_dense([[1, 2], [3, 0]])


class Embeddings:
    """A dense, a combined and a sequence feature that share a table, in a nest."""

    def __init__(self):
        self.table = TableConfig(10, 2, tf.ones_initializer(), combiner="sum", name="shared")
        self.embedding = TPUEmbedding({
            "query": {"title": FeatureConfig(self.table), "words": FeatureConfig(self.table)},
            "page": (FeatureConfig(self.table, max_sequence_length=2),)}, Adagrad(0.1))
        self.embedding.build(2)

    def enqueue(self, title=TITLE, words=WORDS, page=WORDS, weights=None):
        self.embedding.enqueue(
            {"query": {"title": title, "words": words}, "page": (page,)},
            {"query": {"title": weights.get("title"), "words": weights.get("words")},
             "page": (weights.get("page"),)} if weights else None)


@pytest.fixture
def embeddings():
    """Checks that after the errors nothing waits, nothing has changed, and training works."""
    embeddings = Embeddings()
    yield embeddings
    with pytest.raises(RuntimeError, match="`dequeue` must come after enqueue"):
        embeddings.embedding.dequeue()
    for value in embeddings.embedding._trackable_children().values():
        assert len(set(value.numpy().ravel().tolist())) == 1
    embeddings.enqueue()
    embeddings.embedding.apply_gradients(embeddings.embedding.dequeue())


SPARSE = tf.SparseTensor([[0, 0], [1, 0]], [1, 2], [2, 1])
FLOATS = tf.SparseTensor([[0, 0], [1, 0]], [1.0, 2.0], [2, 1])


@pytest.mark.parametrize("features, message", [
    ({"page": TITLE}, "Input of sequence feature 'page/0' must be sparse or ragged, got 'a de"),
    ({"title": tf.constant([1.0, 2.0])}, "Ids of feature 'query/title' must be integers"),
    ({"title": tf.constant([1, 2, 3])},
     r"^Inconsistent shape founded for input feature query/title, Output shape is set to be \[2\], "
     r"But got incoming output shape \[3\]\. Batch of feature 'query/title' must be \[2\] as "
     r"in earlier calls, got \[3\]"),
])
def test_kinds_and_shapes_of_input(embeddings, features, message):
    with pytest.raises(ValueError, match=message):
        embeddings.enqueue(**features)


TEXTS = tf.SparseTensor([[0, 0], [1, 0]], ["1", "2"], [2, 1])
COMPLEX = tf.SparseTensor([[0, 0], [1, 0]], [1j, 2j], [2, 1])


@pytest.mark.parametrize("features, weights, message", [
    ({}, {"words": TEXTS},
     "^Cast string to float is not supported. Weights of feature 'query/words' must be numbers, "
     "floats for instance, got 'string'. Convert them in input_fn, strings with tf.strings.to_num"),
    ({}, {"page": COMPLEX}, "Weights of feature 'page/0' must be numbers.* got 'complex128'"),
    ({"words": tf.ragged.constant([[1], [2]])}, {"words": FLOATS},
     "Weight for query/words is type .* match type input which is RaggedT"),
])
def test_kinds_of_weights(embeddings, features, weights, message):
    with pytest.raises(ValueError, match=message):
        embeddings.enqueue(**features, weights=weights)


@pytest.mark.parametrize("features, weights, message", [
    ({"title": np.array([1, 10])}, {},
     r"Ids of feature 'query/title' must be in \[0, 10\), its vocabulary_size, got 10"),
    ({"words": tf.SparseTensor([[0, 0], [1, 0]], tf.constant([1, 2 ** 40], tf.int64), [2, 1])}, {},
     "Ids of feature 'query/words' must be in .*got 1099511627776"),
    ({"page": tf.ragged.constant([[1], [2 ** 31]], dtype=tf.int64)}, {},
     "Ids of feature 'page/0' must be in .*got 2147483648"),
    ({"title": np.array([1, 2 ** 63], np.uint64)}, {},
     "Ids of feature 'query/title' must be in .*got 9223372036854775807"),
    ({}, {"words": FLOATS},
     "Weights of feature 'query/words' must be as many as its ids, 3, got 2"),
    ({"words": tf.SparseTensor([[0, 0], [2, 0]], [1, 2], [2, 1])}, {},
     r"Sample indices of feature 'query/words' must be in \[0, 2\), the batch size"),
])
def test_values_that_only_running_knows(embeddings, features, weights, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        embeddings.enqueue(**features, weights=weights)
    assert re.search(message, str(error.value).replace("\\'", "'"))


@pytest.mark.parametrize("features, error, message", [
    ({"query": {"title": TITLE}, "page": (WORDS,)}, ValueError,
     r"`features` must have the structure of feature_config, .* Missing: \['query/words'\]"),
    ({"query": {"title": TITLE, "words": WORDS, "x": TITLE}, "page": (WORDS,)}, ValueError,
     r"Not configured: \['query/x'\]"),
    ({"query": {"title": TITLE, "words": WORDS}, "page": ()}, ValueError, "Missing: .'page/0'."),
    ({"query": {"title": TITLE, "words": WORDS}, "page": [WORDS]}, TypeError, "`features` must"),
])
@pytest.mark.parametrize("argument", ["features", "weights"])
def test_structures(embeddings, argument, features, error, message):
    right = {"query": {"title": TITLE, "words": WORDS}, "page": (WORDS,)}
    given = (features,) if argument == "features" else (right, features)
    with pytest.raises(error, match=message.replace("features", argument)):
        embeddings.embedding.enqueue(*given)


@pytest.mark.parametrize("device, error", [
    (3, TypeError), (b"/TPU:0", TypeError), (["/TPU:0"], TypeError), ("nonsense", ValueError)])
def test_device_that_is_no_name_of_a_device_is_refused(embeddings, device, error):
    features = {"query": {"title": TITLE, "words": WORDS}, "page": (WORDS,)}
    start = re.escape(f"Non-TPU device {device} passed to enqueue. `device` must be None, one of [")
    end = re.escape(f"], or '/TPU:0' to '/TPU:0' for the replicas in order, got {device!r}.")
    with pytest.raises(error, match=f"{start}'.*device:CPU:0'{end}"):
        embeddings.embedding.enqueue(features, device=device)


@pytest.mark.parametrize("rate, received", [
    (lambda: [0.1, 0.2], r"\[0.1, 0.2\]"), (lambda: "0.1", "'0.1'"), (lambda: None, "None"),
    (lambda: tf.constant([0.1, 0.2]), r"<tf.Tensor.* shape=\(2,\)")])
def test_learning_rate_that_is_no_number_is_refused(rate, received):
    table = TableConfig(10, 2, tf.ones_initializer(), name="words")
    embedding = TPUEmbedding([FeatureConfig(table)], Adagrad(rate))
    embedding.enqueue([TITLE])
    with pytest.raises(ValueError, match="Result of the learning rate function of table 'words' "
                       f"must be one number, a scalar, got {received}.* `learning_rate` of a TF2 "):
        embedding.apply_gradients(embedding.dequeue())
    assert (embedding.embedding_tables[table].numpy() == 1.0).all()


def test_schedule_of_the_step_as_learning_rate_is_refused():
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    table = TableConfig(10, 2, name="words")
    with pytest.raises(ValueError, match="^`learning_rate` of the optimizer of table 'words' must "
                       r"be a function of no arguments, got 'a function of \(step\)'. Pass a "
                       r"schedule of the step as `lambda: schedule\(step\)`"):
        TPUEmbedding([FeatureConfig(table)], Adagrad(schedule))


@pytest.mark.parametrize("gradients, error, message", [
    ({"title": np.ones([2, 2])}, ValueError,
     "Gradient of feature 'query/title' must be a Tensor or None, got 'ndarray'"),
    ({"title": tf.IndexedSlices(tf.ones([1, 2]), [0])}, ValueError, "got 'IndexedSlices'"),
    ({"title": tf.ones([2, 3])}, ValueError,
     r"at path query/title. Expected shape \[2, 2\]"),
    ({"page": tf.ones([2, 2])}, ValueError,
     r"at path page/0. Expected shape \[2, 2, 2\]"),
])
def test_gradients(embeddings, gradients, error, message):
    embeddings.enqueue()
    right = embeddings.embedding.dequeue()
    given = {"query": {"title": gradients.get("title", right["query"]["title"]),
                       "words": right["query"]["words"]},
             "page": (gradients.get("page", right["page"][0]),)}
    with pytest.raises(error, match=message):
        embeddings.embedding.apply_gradients(given)
    with pytest.raises(ValueError, match=r"`gradients` must have .*Missing: \['page/0'\]"):
        embeddings.embedding.apply_gradients({"query": right["query"], "page": ()})
    with pytest.raises(TypeError, match="`gradients` must have the structure"):
        embeddings.embedding.apply_gradients({"query": right["query"], "page": [right["page"][0]]})
    for variable in embeddings.embedding._trackable_children().values():
        assert len(set(variable.numpy().ravel().tolist())) == 1
    zeros = tf.nest.map_structure(tf.zeros_like, right)
    embeddings.embedding.apply_gradients(zeros)


def test_errors_of_a_function_leave_the_tables():
    table = TableConfig(10, 1, tf.ones_initializer(), name="words")
    embedding = TPUEmbedding([FeatureConfig(table)], Adagrad(0.1))

    @tf.function
    def step(ids):
        embedding.enqueue([ids])
        embedding.apply_gradients(embedding.dequeue())

    with pytest.raises(tf.errors.InvalidArgumentError, match="must be in .0, 10.*got 11"):
        step(tf.constant([1, 11]))
    assert (embedding.embedding_tables[table].numpy() == 1.0).all()
    step(tf.constant([1, 2]))
    assert (embedding.embedding_tables[table].numpy() < 1.0).sum() == 2


def test_first_batch_has_samples():
    embedding = TPUEmbedding({"a": FeatureConfig(TableConfig(10, 2))}, Adagrad(0.1))
    with pytest.raises(ValueError, match=r"Batch of feature 'a' must have at least 1 sample, got "):
        embedding.enqueue({"a": tf.zeros([0], tf.int64)})
    embedding.enqueue({"a": tf.constant([1])})
    assert embedding.dequeue()["a"].shape == (1, 2)


@pytest.mark.parametrize("shape", [[10, 3], [5, 2], [2]])
def test_initializers_return_the_shape_of_the_table(shape):
    table = TableConfig(10, 2, lambda *_, **__: tf.ones(shape), name="words")
    with pytest.raises(ValueError, match="Value of the initializer of table 'words' must be of "
                       rf"shape \[10, 2\], got {re.escape(str(shape))}"):
        TPUEmbedding({"a": FeatureConfig(table)}, Adagrad(0.1)).build(2)
