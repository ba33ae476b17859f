# SPDX-License-Identifier: Apache-2.0
"""Parsed records against `tf.io.parse_example`, which is the oracle throughout."""

import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fronts.io import random_examples
from tests.fronts.io.random_examples import (
    MIXED,
    OTHER_SPECIFICATION,
    REQUIRED,
    SPARSE,
    SPECIFICATION,
    bytes_list,
    entry,
    example,
    float_list,
    int64_list,
)
from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding import io

pytestmark = pytest.mark.every_tensorflow

FUZZ = settings(max_examples=120, deadline=None,
                suppress_health_check=[HealthCheck.function_scoped_fixture])
SENTENCES = (r"Could not parse example input, value: '|Unsupported datatype\.|"
             r"Name: \S+, (Key: \S+, Index: \d+\.  .*|Feature: .* could not be found\.)")


@pytest.fixture(params=["native", "tf"], scope="module", autouse=True)
def kernels(request):
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose_kernels(request.param, monkeypatch)
        yield request.param


@pytest.fixture
def native(kernels):
    if kernels != "native":
        pytest.skip("without the kernels, the oracle itself runs")


def outcome(parse, *arguments):
    """Returns the flat tensors, or the sentence of the error."""
    try:
        return tf.nest.flatten(parse(*arguments), expand_composites=True)
    except tf.errors.InvalidArgumentError as error:
        found = re.search(SENTENCES, error.message)
        assert found, error.message
        return re.sub(r" \[Op:.*", "", found[0])
    except UnicodeDecodeError:  # of the bytes that the message quotes
        return "Could not parse example input, value: '"


def assert_same(serialized, features, names=None):
    expected = outcome(tf.io.parse_example, tf.constant(serialized, tf.string), features, names)
    parsed = outcome(io.parse_examples, tf.constant(serialized, tf.string), [], features, names)
    if isinstance(expected, str) or isinstance(parsed, str):
        assert parsed == expected
        return
    for ours, theirs in zip(parsed, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.slow
@FUZZ
@given(st.lists(random_examples.typed_records(), max_size=5))
def test_examples_of_the_right_types(native, serialized):
    for features in (SPECIFICATION, OTHER_SPECIFICATION):
        assert_same(serialized, features)


@pytest.mark.slow
@FUZZ
@given(st.lists(random_examples.records, max_size=3),
       st.sampled_from([MIXED, SPARSE, REQUIRED]))
def test_any_examples(native, serialized, features):
    assert_same(serialized, features, [f"record-{i}" for i in range(len(serialized))])


@pytest.mark.slow
@FUZZ
@given(st.lists(random_examples.damaged_records(), min_size=1, max_size=2),
       st.sampled_from([MIXED, SPARSE, REQUIRED]))
def test_damaged_examples(native, serialized, features):
    assert_same(serialized, features)


@FUZZ
@given(st.binary(max_size=40))
def test_bytes_that_are_no_example(native, record):
    assert_same([record], MIXED)


def test_last_entry_of_a_key_is_valid_unless_it_is_empty_and_dense():
    record = example([entry("a", int64_list([1])), entry("b", float_list([2.0])),
                      entry("a", int64_list([3, 4])), entry("b", b"")])
    parsed = io.parse_examples([record], [], {
        "a": tf.io.VarLenFeature(tf.int64), "b": tf.io.FixedLenFeature([], tf.float32)})
    assert parsed["a"].values.numpy().tolist() == [3, 4] and parsed["b"].numpy().tolist() == [2.0]


@pytest.mark.parametrize("count", [1, 31, 32, 33, 500])
def test_batches_that_threads_share(count):
    random = np.random.default_rng(count)
    serialized = [example([entry("a", int64_list(random.integers(0, 2 ** 20, k % 7).tolist())),
                           entry("c", bytes_list([b"x" * (k % 3)]))]) for k in range(count)]
    assert_same(serialized, SPECIFICATION)
    assert_same(serialized, {**SPECIFICATION, "a": tf.io.VarLenFeature(tf.int64)})


def test_error_of_the_first_wrong_example_of_many():
    right, wrong = (example([entry("a", int64_list([1] * count))]) for count in (2, 3))
    serialized = [right] * 400 + [wrong] + [right] * 50 + [wrong] + [b"\x0a\x02"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Name: <unknown>, Key: a, Index: 400"
                       r"\.  Number of int64 values != expected\.  Values size: 3 but output "
                       r"shape: \[2\]"):
        io.parse_examples(serialized, [], {"a": tf.io.FixedLenFeature([2], tf.int64)})


@pytest.mark.parametrize("names", [None, ["first", "second"]])
@pytest.mark.parametrize("where", ["map", "session"])
def test_errors_in_graphs_are_those_of_tensorflow(where, names):
    records = [b"", b"no example"]

    def parsed(records):
        return io.parse_examples(records, [], SPECIFICATION, names)["a"]

    with pytest.raises(tf.errors.InvalidArgumentError,
                       match="Could not parse example input, value: 'no example'"):
        if where == "map":
            list(tf.data.Dataset.from_tensors(records).map(parsed))
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                session.run(parsed(tf.constant(records)))


def test_features_that_tensorflow_parses_are_parsed_too():
    record = example([entry("a", int64_list([5, 6, 7])), entry("b", float_list([1, 2])),
                      entry("starts", int64_list([0, 2])), entry("other", int64_list([4]))])
    assert_same([record, record], {
        "a": tf.io.RaggedFeature(tf.int64, partitions=[tf.io.RaggedFeature.RowStarts("starts")]),
        "b": tf.io.RaggedFeature(tf.float32), "again": tf.io.RaggedFeature(tf.float32, "b"),
        "rows": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
        "other": tf.io.FixedLenFeature([], tf.int64)})


def test_ragged_feature_with_a_key_of_its_own():
    record = example([entry("a", int64_list([5, 6]))])
    assert_same([record], {"ids": tf.io.RaggedFeature(tf.int64, value_key="a")})


def test_inside_a_dataset_and_a_graph():
    serialized = [example([entry("a", int64_list([k, 300]))]) for k in range(6)]
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(serialized).batch(4).map(
            lambda batch: io.parse_examples(batch, [], SPECIFICATION), num_parallel_calls=2)
        spec = dataset.element_spec
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        with tf.compat.v1.Session() as session:
            results = [session.run(batch["a"]).to_list() for _ in range(2)]
    assert results == [[[k, 300] for k in range(4)], [[4, 300], [5, 300]]]
    assert spec["label"].shape.as_list() == [None, 1] and spec["a"].shape.as_list() == [None, None]


def test_static_batch_size_is_kept():
    parse = tf.function(lambda batch: io.parse_examples(batch, [], OTHER_SPECIFICATION))
    shapes = parse.get_concrete_function(tf.TensorSpec([7], tf.string)).structured_outputs
    assert shapes["b"].shape == [7, 5] and shapes["other"].shape == [7]
    assert shapes["label"].shape.as_list() == [7, None]


@pytest.mark.parametrize("serialized", [b"", [[b""]]])
def test_what_is_no_batch_is_refused(serialized):
    with pytest.raises(ValueError, match=r"`serialized` must be a batch, of shape \[batch\], got"):
        io.parse_examples(serialized, [], SPECIFICATION)


def test_nothing_to_parse_is_refused():
    with pytest.raises(ValueError, match="have at least one feature"):
        io.parse_examples([b""], [])


@pytest.mark.parametrize("features, sentence", [
    ("p", "`features` must be a mapping of keys to specifications, or None, got 'p'"),
    ({1: tf.io.FixedLenFeature([1], tf.float32)}, "`features` must be keyed by strings, got {1:")])
def test_features_that_are_no_specifications_are_refused(features, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        io.parse_examples([b""], [], features)


def test_specifications_that_tensorflow_refuses_get_its_errors():
    with pytest.raises(ValueError, match="First dimension of shape for feature a unknown"):
        io.parse_examples([b""], [], {"a": tf.io.FixedLenFeature([None], tf.int64)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 values, but the requested shape"):
        io.parse_examples([b""], [], {"a": tf.io.FixedLenFeature([2], tf.int64, default_value=7)})
