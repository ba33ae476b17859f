# SPDX-License-Identifier: Apache-2.0
"""Surprising ways in which ids are read: each kind of tensor, and missing parts of it."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    new_spec,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

ROWS, LENGTH = 6, 3
def powers_of_ten(shape, dtype=tf.float32):
    """Row i is 10 to the power of i, so that every sum shows what was looked up."""
    return tf.cast(10 ** tf.range(shape[0]), dtype)[:, tf.newaxis] * tf.ones(shape, dtype)


def new_table_spec(combiner="sum", length=0, weights=None, **tables):
    return EmbeddingConfigSpec(
        table_to_config_dict={"t": TableConfig(ROWS, 1, powers_of_ten, combiner)},
        feature_to_config_dict={"f": FeatureConfig("t", length, weights)},
        optimization_parameters=AdagradParameters(0.1))


def sparse(places, values, rows, columns=5, dtype=np.int64):
    return tf.SparseTensor(np.reshape(np.asarray(places, np.int64), [-1, 2]),
                           np.asarray(values, dtype), [rows, columns])


def predicted(tmp_path, spec, features, keys=("f",)):
    """Returns what a model gets for the samples of one batch."""
    def model_fn(features, labels, mode, params):
        return TPUEstimatorSpec(mode, predictions={key: features[key] for key in keys})

    def input_fn(params):
        tensors = features()
        return tf.data.Dataset.from_tensors(tensors)

    predictions = list(new_estimator(tmp_path, model_fn, spec=spec).predict(input_fn))
    return [np.array([prediction[key] for prediction in predictions]).tolist() for key in keys]


IDS = {
    "dense with zeros and a combiner": (
        new_table_spec(), lambda: {"f": tf.constant([[0, 3], [0, 0], [2, 2]], tf.int64)},
        [1000, 0, 200]),
    "one dense id and a combiner": (
        new_table_spec(), lambda: {"f": tf.constant([0, 5, 1], tf.int64)}, [0, 100000, 10]),
    "one dense id without combiner": (
        new_table_spec(None), lambda: {"f": tf.constant([0, 5, 1], tf.int64)}, [1, 100000, 10]),
    "a column of dense ids without combiner": (
        new_table_spec(None), lambda: {"f": tf.constant([[0], [5]], tf.int64)}, [1, 100000]),
    "negative ids, dense": (
        new_table_spec(), lambda: {"f": tf.constant([[-1, 3], [-7, 0]], tf.int64)}, [1000, 0]),
    "negative ids, sparse": (
        new_table_spec(), lambda: {"f": sparse([[0, 0], [0, 1], [1, 0]], [-1, 3, -7], 2)},
        [1000, 0]),
    "zeros, sparse": (
        new_table_spec(), lambda: {"f": sparse([[0, 0], [2, 1], [2, 2]], [0, 0, 1], 3)},
        [1, 0, 11]),
    "no id at all, sparse": (new_table_spec("mean"), lambda: {"f": sparse([], [], 3)}, [0, 0, 0]),
    "no id at all, ragged": (
        new_table_spec("sqrtn"), lambda: {"f": tf.RaggedTensor.from_row_splits(
            tf.zeros([0], tf.int64), tf.constant([0, 0, 0], tf.int64))}, [0, 0]),
    "int32, sparse": (
        new_table_spec(), lambda: {"f": sparse([[0, 0], [1, 0]], [1, 2], 2, dtype=np.int32)},
        [10, 100]),
    "samples that decrease, with weights": (
        new_table_spec(weights="w"), lambda: {
            "f": sparse([[2, 0], [0, 1], [2, 1], [0, 0]], [1, 2, 3, 0], 3),
            "w": sparse([[2, 0], [0, 1], [2, 1], [0, 0]], [1, 2, 3, 4], 3, dtype=np.float32)},
        [204, 0, 3010]),
    "int32, dense": (
        new_table_spec(), lambda: {"f": tf.constant([[1], [2]], tf.int32)}, [10, 100]),
    "int32, without combiner": (
        new_table_spec(None), lambda: {"f": tf.constant([1, 2], tf.int32)}, [10, 100]),
    "int32, ragged with int32 splits": (
        new_table_spec(), lambda: {"f": tf.ragged.constant(
            [[1, 2], [], [0]], tf.int32, row_splits_dtype=tf.int32)}, [110, 0, 1]),
    "ragged, mean of duplicates": (
        new_table_spec("mean"), lambda: {"f": tf.ragged.constant([[2, 2, 0], [1]], tf.int64)},
        [67, 10]),
    "sparse weights": (
        new_table_spec(weights="w"), lambda: {
            "f": sparse([[0, 0], [0, 1], [1, 0]], [1, 2, 3], 2),
            "w": sparse([[0, 0], [0, 1], [1, 0]], [0.5, 2, -1], 2, dtype=np.float32)},
        [205, -1000]),
    "ragged weights, whole numbers": (
        new_table_spec("mean", weights="w"), lambda: {
            "f": tf.ragged.constant([[1, 2], []], tf.int64, ragged_rank=1),
            "w": tf.ragged.constant([[1, 2], []], tf.int32, ragged_rank=1)}, [70, 0]),
    "weights that sum to 0": (
        new_table_spec("mean", weights="w"), lambda: {
            "f": sparse([[0, 0], [0, 1]], [1, 2], 1),
            "w": sparse([[0, 0], [0, 1]], [1, -1], 1, dtype=np.float32)}, [0]),
}


@pytest.mark.filterwarnings("ignore:Feature 'f' is dense:UserWarning")
@pytest.mark.parametrize("case", IDS)
def test_ids_are_read_as_a_tpu_reads_them(tmp_path, case):
    spec, features, expected = IDS[case]
    [activations] = predicted(tmp_path, spec, features)
    np.testing.assert_allclose(np.ravel(activations), expected, 1e-6)


def sparse_sequence():
    """A hole at position 1, an id behind the end, no id, all positions."""
    return sparse([[0, 0], [0, 2], [1, 4], [3, 0], [3, 1], [3, 2], [3, 3]],
                  [1, 2, 3, 0, 1, 2, 3], 4)


def ragged_sequence():
    return tf.ragged.constant([[1], [0, 1, 2, 3], [], [4, 5]], tf.int64)


def shuffled_sequence():
    """The samples and positions decrease."""
    ids = sparse_sequence()
    order = [6, 2, 0, 4, 5, 1, 3]
    return tf.SparseTensor(tf.gather(ids.indices, order), tf.gather(ids.values, order),
                           ids.dense_shape)


SEQUENCES = {
    "shuffled": (shuffled_sequence, [[10, 0, 100], [0, 0, 0], [0, 0, 0], [1, 10, 100]],
                 [3, 3, 0, 3]),
    "sparse": (sparse_sequence, [[10, 0, 100], [0, 0, 0], [0, 0, 0], [1, 10, 100]],
               [3, 3, 0, 3]),
    "ragged": (ragged_sequence, [[10, 0, 0], [1, 10, 100], [0, 0, 0], [10000, 100000, 0]],
               [1, 3, 0, 2]),
}


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_are_cut_and_padded_and_tell_their_lengths(tmp_path, case, combiner):
    ids, expected, expected_lengths = SEQUENCES[case]
    activations, lengths = predicted(tmp_path, new_table_spec(combiner, LENGTH),
                                     lambda: {"f": ids()}, ("f", "f_seq_length_"))
    assert np.shape(activations) == (4, LENGTH, 1)
    assert np.squeeze(activations, 2).tolist() == expected
    assert lengths == expected_lengths


@pytest.mark.parametrize("options", [{}, {"pipeline_execution_with_tensor_core": True}], ids=str)
def test_batch_without_samples_trains_nothing(tmp_path, options):
    """It may stand at the start, in the middle and at the end of the input."""
    def input_fn(params):
        empty = tf.data.Dataset.from_tensors({"id": tf.zeros([0], tf.int64)})
        some = input_of(range(4))(params)
        return empty.concatenate(some).concatenate(empty).concatenate(some).concatenate(empty)

    estimator = new_estimator(tmp_path, spec=new_spec(**options))
    finish(estimator.train, input_fn, max_steps=100)
    assert counts(estimator) == counts_of(*range(4), *range(4))
    assert estimator.get_variable_value("global_step") == 7
    assert len(list(estimator.predict(input_fn))) == 8


@pytest.mark.slow
def test_dropped_zeros_are_logged_once_per_process(tmp_path):
    """Training twice, evaluating and predicting builds the lookup four times."""
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"t": TableConfig(ROWS, 1)},
        feature_to_config_dict={name: FeatureConfig("t") for name in ("first", "second")},
        optimization_parameters=AdagradParameters(0.1))

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["first"] + features["second"])
        return TPUEstimatorSpec(mode, loss=loss, predictions=features,
                                train_op=count(loss) if mode == "train" else None)

    def input_fn(params):
        ids = tf.data.Dataset.range(8).batch(4)
        return ids.map(lambda ids: {"first": ids[:, tf.newaxis] % 4, "second": ids % 4})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = new_estimator(tmp_path, model_fn, spec=spec)
        estimator.train(input_fn, steps=1)
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn)
        list(estimator.predict(input_fn))
    texts = sorted(str(warning.message) for warning in caught if "dense" in str(warning.message))
    assert texts == [
        f"Feature {name!r} is dense and its table has a combiner: zeros are treated as "
        "padding and dropped, as on a TPU, so id 0 is never looked up. Give a SparseTensor, or "
        "combiner=None for one id per sample, to look up id 0."
        for name in ("first", "second")]
