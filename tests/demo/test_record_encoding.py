# SPDX-License-Identifier: Apache-2.0
"""The encoding against protobuf's own."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.demo.record_encoding import (
    float_feature,
    int64_feature,
    records,
    varint,
)


def example(**features) -> tf.train.Example:
    return tf.train.Example(features=tf.train.Features(feature={
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if all(isinstance(value, int) for value in values)
        else tf.train.Feature(float_list=tf.train.FloatList(value=values))
        for name, values in features.items()}))


def test_records_are_what_protobuf_parses_back():
    ids = int64_feature("ids", np.array([0, 127, 128, 2**31 + 5, 1]), np.array([4, 1]))
    weights = float_feature("weights", np.array([0.5, -1.25, 3.0]), np.array([1, 2]))
    parsed = [tf.train.Example.FromString(record) for record in records([ids, weights])]
    assert parsed == [example(ids=[0, 127, 128, 2**31 + 5], weights=[0.5]),
                      example(ids=[1], weights=[-1.25, 3.0])]


def test_records_with_values_too_long_for_lengths_of_one_byte():
    values = np.arange(1000)
    [record] = records([int64_feature("ids", values, np.array([1000])),
                        float_feature("weights", values / 2, np.array([1000]))])
    assert tf.train.Example.FromString(record) == example(
        ids=values.tolist(), weights=(values / 2).tolist())


def test_records_refuse_features_of_different_lengths():
    one = int64_feature("a", np.array([1]), np.array([1]))
    two = int64_feature("b", np.array([1, 2]), np.array([1, 1]))
    with pytest.raises(ValueError, match="shorter|longer"):
        list(records([one, two]))


@pytest.mark.parametrize(("value", "encoded"), [
    (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32, "8080808010")])
def test_varint(value, encoded):
    assert varint(value).hex() == encoded
