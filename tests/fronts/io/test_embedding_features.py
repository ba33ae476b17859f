# SPDX-License-Identifier: Apache-2.0
"""What each kind of configuration has parsed."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.io.random_examples import bytes_list, entry, example, float_list, int64_list
from tpu_estimator_embedding import (
    EmbeddingConfigSpec,
    FeatureConfig,
    StochasticGradientDescentParameters,
    TableConfig,
    embedding_column,
    io,
    mid_level,
    shared_embedding_columns,
)
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

fc = tf.feature_column
SGD = StochasticGradientDescentParameters(0.1)


def identity(key):
    return fc.categorical_column_with_identity(key, 400)


def columns():
    weighted = fc.weighted_categorical_column(identity("ids"), "weights")
    sequence = fc.sequence_categorical_column_with_identity("pages", 400)
    return [embedding_column(weighted, 4),
            embedding_column(sequence, 4, max_sequence_length=3),
            *shared_embedding_columns([identity("one"), identity("two")], 4)]


RECORDS = [
    example([entry("ids", int64_list([1, 300])), entry("weights", float_list([0.5, 2.0])),
             entry("pages", int64_list([9, 8, 7, 6])), entry("one", int64_list([1]))]),
    example([entry("two", int64_list([2]))])]
PARSED = {"ids": [[1, 300], []], "weights": [[0.5, 2.0], []], "pages": [[9, 8, 7, 6], []],
          "one": [[1], []], "two": [[], [2]]}


def config_dicts():
    return EmbeddingConfigSpec(
        table_to_config_dict={"table": TableConfig(400, 4)},
        feature_to_config_dict={
            "ids": FeatureConfig("table", weight_key="weights"),
            "pages": FeatureConfig("table", max_sequence_length=3),
            "one": FeatureConfig("table"), "two": FeatureConfig("table")},
        optimization_parameters=SGD)


def plan():
    return EmbeddingPlan.build(
        [TablePlan("table", 400, 4, None)],
        [FeaturePlan("ids", "table", weight_key="weights"), FeaturePlan("pages", "table", 3),
         FeaturePlan("one", "table"), FeaturePlan("two", "table")])


@pytest.mark.parametrize("embeddings", [
    columns, lambda: EmbeddingConfigSpec(feature_columns=columns(), optimization_parameters=SGD),
    config_dicts, plan])
def test_estimator_configurations(embeddings):
    parsed = io.parse_examples(RECORDS, embeddings())
    assert {key: tensor.to_list() for key, tensor in parsed.items()} == PARSED
    for key, tensor in parsed.items():
        assert tensor.dtype == (tf.float32 if key == "weights" else tf.int64)
        assert tensor.row_splits.dtype == tf.int64


def test_feature_config_of_tf2():
    table = mid_level.TableConfig(400, 4)
    parsed = io.parse_examples(
        [example([entry("user/one", int64_list([3])), entry("two", int64_list([4, 5]))])],
        {"user": {"one": mid_level.FeatureConfig(table)}, "two": mid_level.FeatureConfig(table)})
    assert {key: ids.to_list() for key, ids in parsed.items()} == {
        "user/one": [[3]], "two": [[4, 5]]}


def test_columns_of_strings_and_without_embeddings():
    words = fc.categorical_column_with_vocabulary_list("words", ["a", "b"])
    parsed = io.parse_examples(
        [example([entry("words", bytes_list([b"b", b"a"])), entry("price", float_list([1.5]))])],
        [embedding_column(words, 4), fc.numeric_column("price")])
    assert parsed["words"].to_list() == [[b"b", b"a"]]
    np.testing.assert_array_equal(parsed["price"], [[1.5]])


def test_features_override_how_ids_are_parsed():
    parsed = io.parse_examples(RECORDS, columns(), {
        "ids": tf.io.VarLenFeature(tf.int64), "one": tf.io.FixedLenFeature([1], tf.int64, [7])})
    assert parsed["ids"].indices.numpy().tolist() == [[0, 0], [0, 1]]
    assert parsed["one"].numpy().tolist() == [[1], [7]]


@pytest.mark.parametrize("embeddings", [3, "ids", None, fc.numeric_column("price")])
def test_other_configurations_are_refused(embeddings):
    with pytest.raises(TypeError, match="`embeddings` must be a list of feature columns"):
        io.parse_examples(RECORDS, embeddings)
