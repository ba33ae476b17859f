# SPDX-License-Identifier: Apache-2.0
"""The runtime checks: when they fail, and their messages."""

import re

import pytest
import tensorflow as tf

from tpu_estimator_embedding.ops import id_checks


def int64(values):
    return tf.constant(values, tf.int64)


PASSING = {
    "ids": (id_checks.check_ids, int64([0, 4, -1]), "f", 5),
    "no ids": (id_checks.check_ids, int64([]), "f", 1),
    "narrow ids": (id_checks.check_ids, tf.constant([4]), "f", 5),
    "row splits": (id_checks.check_row_splits, int64([0, 0, 3]), "f"),
    "no row splits": (id_checks.check_row_splits, int64([]), "f"),
    "samples": (id_checks.check_samples, int64([0, 0, 2]), int64(3), "f"),
    "no samples": (id_checks.check_samples, int64([]), int64(0), "f"),
    "count": (id_checks.check_sample_count, int64(3), int64(3), "f"),
    "aligned": (id_checks.check_aligned, int64(3), int64(3), "weights", "f"),
    "batch": (id_checks.check_batch_size, int64(3), int64(3), "f", "g"),
    "batches": (id_checks.check_batch_size, int64([3, 3]), int64(3), ["e", "f"], "g"),
}

FAILING = {
    "id": ((id_checks.check_ids, int64([0, 7, 5]), "f", 5),
           "Ids of feature 'f' must be in [0, 5), its vocabulary_size, got 7. Raise "
           "vocabulary_size, or map the ids into the vocabulary in input_fn."),
    "order": ((id_checks.check_row_splits, int64([0, 3, 2]), "f"),
              "Row splits of feature 'f' must be in increasing order, got some that decrease."),
    "sample": ((id_checks.check_samples, int64([0, 3]), int64(3), "f"),
               "Sample indices of feature 'f' must be in [0, 3), the batch size, got [0 3]. "
               "Give every feature the same batch size."),
    "negative sample": ((id_checks.check_samples, int64([-1, 2]), int64(3), "f"), "got [-1 2]."),
    "sample of an empty batch": ((id_checks.check_samples, int64([0]), int64(0), "f"),
                                 "must be in [0, 0), the batch size, got [0 0]."),
    "count": ((id_checks.check_sample_count, int64(2), int64(3), "f"),
              "Samples of feature 'f' must be 3, the batch size, got 2. Give every feature "
              "the same batch size."),
    "alignment": ((id_checks.check_aligned, int64(2), int64(3), "weights", "f"),
                  "Weights of feature 'f' must be as many as its ids, 3, got 2. Make both from "
                  "tensors with the same indices."),
    "batch": ((id_checks.check_batch_size, int64(2), int64(3), "f", "g"),
              "Batch of feature 'f' must be as large as that of feature 'g', 3, got 2."),
    "batches": ((id_checks.check_batch_size, int64([3, 2, 1]), int64(3), ["d", "e", "f"], "g"),
                "Batch of feature 'e' must be as large as that of feature 'g', 3, got 2."),
}


@pytest.mark.parametrize("case", PASSING)
def test_good_values_pass(case):
    check, *arguments = PASSING[case]
    assert check(*arguments) == []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(check(*in_graph(arguments)))


@pytest.mark.parametrize("case", FAILING)
def test_bad_values_raise_at_once_when_eager(case):
    (check, *arguments), sentence = FAILING[case]
    with pytest.raises(tf.errors.InvalidArgumentError, match=pattern(sentence)):
        check(*arguments)


@pytest.mark.parametrize("case", FAILING)
def test_bad_values_raise_when_a_session_runs_the_op(case):
    (check, *arguments), sentence = FAILING[case]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        op = check(*in_graph(arguments))
        with pytest.raises(tf.errors.InvalidArgumentError, match=pattern(sentence)):
            session.run(op)


@pytest.mark.parametrize("name", ["a b", "50%", "{}", "it's", "Größe"])
def test_any_name_of_a_feature_can_be_shown(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="got 9") as caught:
        id_checks.check_ids(int64([9]), name, 5)
    if name.isascii():
        assert name in str(caught.value).replace("\\'", "'")


def in_graph(arguments):
    return [tf.constant(value.numpy()) if tf.is_tensor(value) else value for value in arguments]


def pattern(sentence):
    """The sentence as a pattern; the kernel of Assert puts backslashes before quotes."""
    return re.escape(sentence).replace("'", r"\\?'")
