# SPDX-License-Identifier: Apache-2.0
"""The arguments of an input_fn, and what it may return."""

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding.compat import upstream

TPUConfig = upstream.tpu_config.TPUConfig


def from_tensors(ids):
    """Features that every step computes again, here the same each time."""
    return {"id": tf.constant(ids, tf.int64)}


def one_shot(ids):
    return tf.compat.v1.data.make_one_shot_iterator(input_of(ids)({})).get_next()


def initializable(ids):
    iterator = tf.compat.v1.data.make_initializable_iterator(input_of(ids)({}))
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS,
                                   iterator.initializer)
    return iterator.get_next()


@pytest.mark.parametrize("make", [one_shot, initializable])
def test_tensors_of_an_iterator_end_with_it(tmp_path, make):
    estimator = new_estimator(tmp_path)
    finish(estimator.train, lambda params: make(range(5)), max_steps=100)
    assert counts(estimator) == counts_of(*range(5))


def test_features_of_input_fn_are_left_as_they_are(tmp_path):
    given = {}

    def input_fn(params):
        given.update(from_tensors([0, 1]))
        return given

    new_estimator(tmp_path).train(input_fn, steps=1)
    assert list(given) == ["id"]
