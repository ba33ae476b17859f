# SPDX-License-Identifier: Apache-2.0
"""Batches for replicas: shares of one or one for each, and what is left at the end."""


import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import replica_model
from tests.fronts.estimator.counting import counts, counts_of, new_estimator, run_config
from tests.fronts.estimator.hang import finish
from tests.fronts.estimator.replica_model import (
    BATCH_SIZE,
    V1,
    V2,
    assert_same_values,
    input_of,
    linear,
    minimize,
    new_model_fn,
    new_replicated,
    train,
    v1,
)
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.input.input_reader import split_batch


@pytest.fixture
def lines(logged):
    """Returns a function that returns the warnings about dropped batches."""
    return lambda: logged("were dropped.")


def trained_steps(tmp_path, num_samples, num_replicas, input_mode, **options):
    values = train(tmp_path, new_model_fn(linear), num_replicas, input_of(num_samples),
                   input_mode=input_mode, **options)
    return values[-1]["global_step"]


@pytest.mark.parametrize("input_mode, num_samples, steps, dropped", [
    (V1, 19, 2, 1),  # batches of 8, 8 and 3
    (V1, 20, 3, 0),  # the last 4 fill four replicas
    (V1, 3, 0, 1),
    (V2, 21, 2, 3),  # batches of 2; two full ones and one of 1 are left
    (V2, 24, 3, 0),
    (V2, 3, 0, 2)])
def test_batches_that_cannot_fill_all_replicas_are_dropped_and_counted(
        tmp_path, lines, input_mode, num_samples, steps, dropped):
    assert finish(trained_steps, tmp_path, num_samples, 4, input_mode) == steps
    expected = (f"tpu_estimator_embedding: {dropped} batch(es) at the end of the input could not "
                "fill all replicas and were dropped.")
    assert lines() == [expected] * (dropped > 0)


@pytest.mark.parametrize("input_mode", [V1, V2])
def test_nothing_counts_as_dropped_when_training_stops_first(tmp_path, lines, input_mode):
    assert trained_steps(tmp_path, 100, 4, input_mode, max_steps=2) == 2
    assert lines() == []


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas, input_mode, num_samples", [
    (4, V1, 19), (2, V2, 21), (8, V2, 2)])
def test_evaluation_counts_every_sample_once(tmp_path, lines, num_replicas, input_mode,
                                             num_samples):
    """What does not fill all replicas is evaluated on fewer of them."""
    estimator = new_replicated(tmp_path, new_model_fn(linear), num_replicas, input_mode=input_mode)
    estimator.train(input_of(), max_steps=1)
    metrics = estimator.evaluate(input_of(num_samples))
    assert lines() == []
    errors = (np.array([each["y"] for each in estimator.predict(input_of(num_samples))])
              - replica_model.arrays(num_samples)["y"]) ** 2
    np.testing.assert_allclose(metrics["error"], errors.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], np.mean(
        list(losses_of_steps(errors, num_replicas, input_mode))), rtol=1e-5)


def losses_of_steps(errors, num_replicas, input_mode):
    """Yields the mean over the replicas that have a batch; one has a batch that is not split."""
    size, together = (BATCH_SIZE, 1) if input_mode is V1 else (
        BATCH_SIZE // num_replicas, num_replicas)
    batches = [part.mean() for part in np.split(errors, range(size, len(errors), size))]
    for start in range(0, len(batches), together):
        yield np.mean(batches[start:start + together])


def test_batch_in_the_middle_that_cannot_be_split_is_an_error(tmp_path):
    def input_fn(params):
        return input_of(8)(params).concatenate(input_of(3)(params)).concatenate(
            input_of(8)(params))

    with pytest.raises(tf.errors.InvalidArgumentError,
                       match="Batch size must be divisible by the number of replicas, 4, got"):
        finish(train, tmp_path, new_model_fn(linear), 4, input_fn, input_mode=V1)


@pytest.mark.slow
@pytest.mark.parametrize("as_read", [
    lambda ids: ids, tf.sparse.to_dense, tf.RaggedTensor.from_sparse],
    ids=["sparse", "dense", "ragged"])
def test_empty_batch_is_trained_on_as_with_one_replica(as_read, tmp_path):
    def model_fn(features, labels, mode, params):
        errors = tf.square(linear(features, params) - labels)
        loss = tf.math.divide_no_nan(tf.reduce_sum(errors), tf.cast(tf.size(errors), tf.float32))
        return upstream.tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    def input_fn(params):
        def of_size(size):
            return replica_model.to_features({name: tf.constant(value)[:size]
                                              for name, value in arrays.items()})

        arrays = {name: value.clip(0) if name == "id" else value
                  for name, value in replica_model.arrays(BATCH_SIZE).items()}
        sizes = tf.data.Dataset.from_tensor_slices(np.int64([BATCH_SIZE, 0, 4, 0]))
        return sizes.map(of_size).map(lambda features, labels: (
            {**features, "id": as_read(features["id"])}, labels))

    one, *several = (train(tmp_path / str(number), model_fn, number, input_fn)
                     for number in (1, 2, 4))
    for values in several:
        assert values[-1]["global_step"] == 4
        assert_same_values(values[-1], one[-1])


def test_every_batch_is_used_once_and_in_order(tmp_path):
    """Replica k takes batch k of its step: with one id per batch, each is counted once."""
    def model_fn(features, labels, mode, params):
        seen.append(features["id"].shape.as_list())
        loss = -tf.reduce_sum(features["id"])
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0),
                                               reduction=v1.losses.Reduction.SUM)
        return upstream.tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, v1.train.get_global_step()))

    def input_fn(params):
        ids = tf.data.Dataset.range(9).batch(1, drop_remainder=True)
        return ids.map(lambda ids: {"id": ids})

    seen = []
    config = run_config(upstream.tpu_config.TPUConfig(
        num_shards=2, per_host_input_for_training=V2))
    estimator = new_estimator(tmp_path, model_fn, config=config)
    estimator.train(input_fn, max_steps=100)
    assert counts(estimator) == counts_of(*range(8))
    assert seen == [[1, 1]]


def test_tensors_are_split_anew_for_every_step(tmp_path):
    arrays = replica_model.arrays(BATCH_SIZE)

    def input_fn(params):
        return replica_model.to_features({name: tf.constant(value)
                                          for name, value in arrays.items()})

    one, two = (train(tmp_path / str(number), new_model_fn(linear), number, input_fn, max_steps=3)
                for number in (1, 2))
    assert_same_values(two[-1], one[-1])
    assert two[-1]["global_step"] == 3


@pytest.mark.parametrize("input_mode", [V2])
def test_tensors_cannot_give_a_batch_for_each_replica(tmp_path, input_mode):
    def input_fn(params):
        return {"id": tf.constant([[1], [2]])}, tf.constant([0.0, 1.0])

    with pytest.raises(TypeError, match="must be a Dataset with PER_HOST_V2"):
        train(tmp_path, new_model_fn(linear), 2, input_fn, input_mode=input_mode)


@pytest.mark.slow
def test_batch_axis_says_along_which_axis_a_tensor_is_split(tmp_path, lines):
    """x lies on its side, and is not the first tensor whose size would be looked at."""
    def predict(features, params):
        return linear({**features, "x": tf.transpose(features["x"])}, params)

    def input_fn(params):
        return input_of(19)(params).map(
            lambda features, y: ({**features, "x": tf.transpose(features["x"])}, y))

    one = train(tmp_path / "one", new_model_fn(predict), 1, input_fn, max_steps=2)
    two = train(tmp_path / "two", new_model_fn(predict), 2, input_fn, batch_axis=[1, 0])
    assert_same_values(two[-1], one[-1])
    assert len(lines()) == 1


def test_batch_axis_counts_where_there_are_no_embeddings(tmp_path):
    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", [3, 1], initializer=v1.ones_initializer())
        loss = tf.reduce_mean(tf.square(tf.transpose(features) @ weight))
        return upstream.tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    def input_fn(params):
        data = np.arange(24, dtype=np.float32).reshape([3, 8])
        return tf.data.Dataset.from_tensors((data,)).map(lambda x: x).repeat(2)

    values = [train(tmp_path / str(number), model_fn, number, input_fn, batch_axis=[1],
                    embedding_config_spec=None) for number in (1, 2)]
    assert values[1][-1]["global_step"] == 2
    assert_same_values(values[1][-1], values[0][-1])


def test_split_batch_takes_every_kind_of_tensor():
    ragged = tf.ragged.constant([[1], [], [2, 3], [4]])
    shares = split_batch(
        {"ids": ragged.to_sparse(), "ragged": ragged, "inner": {"x": tf.range(8)[:4]}},
        (tf.range(4), None), 2, embedding_keys=["ids"])
    assert len(shares) == 2
    for share, (features, labels) in enumerate(shares):
        assert tf.sparse.to_dense(features["ids"]).numpy().tolist() == [
            [[1, 0], [0, 0]], [[2, 3], [4, 0]]][share]
        assert features["ragged"].to_list() == [[[1], []], [[2, 3], [4]]][share]
        assert features["inner"]["x"].numpy().tolist() == [[0, 1], [2, 3]][share]
        assert labels[0].numpy().tolist() == [[0, 1], [2, 3]][share]
        assert labels[1] is None


@pytest.mark.parametrize("features, options, error, sentence", [
    (tf.zeros([3, 1]), {}, ValueError,
     "Batch size must be divisible by the number of replicas, 2, got 3. Drop the remainder"),
    ({"x": tf.zeros([4])}, {"batch_axis": [0, 0]}, ValueError,
     "`batch_axis` must have one entry for each of the 1 tensors"),
    (tf.zeros([4]), {"embedding_keys": ["ids"]}, TypeError,
     "`features` must be a dictionary, because embedding features are found")])
def test_split_batch_refuses(features, options, error, sentence):
    with pytest.raises(error, match=sentence):
        split_batch(features, None, 2, **options)


@pytest.mark.parametrize("kind", ["dense", "sparse", "ragged"])
@pytest.mark.parametrize("size", [0, 3, 4])
def test_no_sample_of_a_batch_of_unknown_size_is_dropped(kind, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        size_of_step = tf.compat.v1.placeholder_with_default(tf.constant(size, tf.int64), [])
        values = tf.range(size_of_step)
        batch = {"dense": values, "ragged": tf.RaggedTensor.from_uniform_row_length(values, 1),
                 "sparse": tf.SparseTensor(values[:, tf.newaxis], values, [size_of_step])}[kind]
        shares = [features for features, _ in split_batch(batch, None, 2)]
        if size % 2:
            with pytest.raises(tf.errors.InvalidArgumentError, match="Batch size must be divisible "
                               f"by the number of replicas, 2, got {size}. Drop the remainder"):
                session.run(shares)
            return
        found = session.run(shares)
        assert [len(getattr(share, "values", share)) for share in found] == [size // 2] * 2


def test_arrays_of_the_program_are_not_written_into():
    memory = np.ones(20 * 12 * 16 + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4  # TensorFlow copies arrays at other addresses
    arrays = memory[first:first + 20 * 12 * 16].reshape(20, 12, 16)
    with tf.Graph().as_default(), v1.Session() as session:
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_generator(
            lambda: iter(arrays), output_signature=tf.TensorSpec([12, 16])))
        shares = split_batch({"x": iterator.get_next()}, None, 3)
        doubled = shares[1][0]["x"] * 2.0
        session.run(iterator.initializer)
        for _ in arrays:
            np.testing.assert_array_equal(session.run(doubled), 2.0)
    np.testing.assert_array_equal(arrays, 1.0)
