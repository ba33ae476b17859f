# SPDX-License-Identifier: Apache-2.0
"""From TensorFlow's real columns to tables and features."""

import copy

import pytest
import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc_v1

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.feature_column.columns_to_configs import (
    columns_to_configs,
    table_name_of,
)
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

fc = tf.feature_column
experimental = tf.compat.v1.tpu.experimental


def slow(step):
    return 0.01


def identity(name, size=10):
    return fc.categorical_column_with_identity(name, size)


@pytest.mark.parametrize("make", [embedding_column, experimental.embedding_column,
                                  tpu_fc_v1.embedding_column])
def test_single_column_is_a_table_and_a_feature(make):
    initializer = tf.compat.v1.ones_initializer()
    tables, features = columns_to_configs(
        [make(identity("words"), 4, "sqrtn", initializer, learning_rate_fn=slow)])
    assert features == {"words": FeatureConfig("tbl_words")}
    assert list(tables) == ["tbl_words"]
    table = tables["tbl_words"]
    assert (table.vocabulary_size, table.dimension, table.combiner) == (10, 4, "sqrtn")
    assert table.initializer is initializer and table.learning_rate_fn is slow
    assert table.optimization_parameters is None and table.learning_rate is None


def test_weighted_column_names_the_feature_after_its_ids():
    weighted = fc.weighted_categorical_column(identity("words"), "counts")
    column = embedding_column(weighted, 4)
    tables, features = columns_to_configs([column])
    assert features == {"words": FeatureConfig(table_name_of(column), weight_key="counts")}
    assert list(tables) == ["tbl_words_weighted_by_counts"]


def test_sequence_column_has_a_length():
    steps = fc.sequence_categorical_column_with_identity("steps", 10)
    _, features = columns_to_configs([embedding_column(steps, 4, max_sequence_length=7)])
    assert features == {"steps": FeatureConfig("tbl_steps", 7)}


@pytest.mark.parametrize("make", [shared_embedding_columns, experimental.shared_embedding_columns,
                                  tpu_fc_v1.shared_embedding_columns])
def test_shared_columns_are_one_table_and_several_features(make):
    columns = make(
        [identity("title"), fc.sequence_categorical_column_with_identity("steps", 10),
         fc.weighted_categorical_column(identity("body"), "counts")], 4, "sum",
        shared_embedding_collection_name="text", max_sequence_lengths=[0, 7, 0],
        learning_rate_fn=slow)
    tables, features = columns_to_configs(columns)
    assert features == {"title": FeatureConfig("tbl_text"), "steps": FeatureConfig("tbl_text", 7),
                        "body": FeatureConfig("tbl_text", weight_key="counts")}
    assert list(tables) == ["tbl_text"]
    assert (tables["tbl_text"].combiner, tables["tbl_text"].learning_rate_fn) == ("sum", slow)


def test_vocabulary_column_has_the_size_of_its_vocabulary(tmp_path):
    path = tmp_path / "colours.txt"
    path.write_text("red\ngreen\n")
    listed = fc.categorical_column_with_vocabulary_list("size", ["s", "m", "l"], num_oov_buckets=2)
    from_file = fc.categorical_column_with_vocabulary_file("colour", str(path), 2)
    hashed = fc.categorical_column_with_hash_bucket("url", 50)
    tables, _ = columns_to_configs(
        [embedding_column(column, 4) for column in (listed, from_file, hashed)])
    assert {name: table.vocabulary_size for name, table in tables.items()} == {
        "tbl_size": 5, "tbl_colour": 2, "tbl_url": 50}


@pytest.mark.parametrize("make", [embedding_column, experimental.embedding_column])
def test_class_of_an_initializer_makes_one_without_arguments(make):
    tables, _ = columns_to_configs([make(identity("words"), 4,
                                         initializer=tf.compat.v1.zeros_initializer)])
    assert type(tables["tbl_words"].initializer) is tf.compat.v1.zeros_initializer


def test_class_of_an_initializer_that_needs_arguments_raises():
    class Filled:
        def __init__(self, value):
            self.value = value

        def __call__(self, shape, dtype):
            return tf.fill(shape, tf.cast(self.value, dtype))

    column = experimental.embedding_column(identity("words"), 4, initializer=Filled)
    with pytest.raises(TypeError, match="column of 'words'.*needs no arguments.*'value'"):
        columns_to_configs([column])


CHANGED_IDS = [  # the column of a feature, what changes its ids, and the length of a sequence
    (lambda name: fc.categorical_column_with_hash_bucket(name, 9, tf.int64), "hash", 0),
    (lambda name: fc.categorical_column_with_hash_bucket(name, 9), None, 0),  # of strings
    (lambda name: fc.categorical_column_with_vocabulary_list(name, [7, 8]), "vocabulary", 0),
    (lambda name: fc.categorical_column_with_vocabulary_list(name, ["a", "b"]), None, 0),
    (lambda name: fc.sequence_categorical_column_with_vocabulary_list(name, [7, 8]),
     "vocabulary", 3),
    (lambda name: fc.categorical_column_with_identity(name, 9, 0), "default_value 0", 0),
    (lambda name: fc.weighted_categorical_column(fc.categorical_column_with_identity(
        name, 9, 0), "w"), "default_value 0", 0),
    (identity, None, 0),
]


@pytest.mark.parametrize("case", range(len(CHANGED_IDS)))
def test_what_a_column_does_to_ids_without_a_tpu_is_warned_of_once(recwarn, case):
    make, change, length = CHANGED_IDS[case]
    name = f"words{case}"
    for _ in range(2):
        columns_to_configs([embedding_column(make(name), 4, max_sequence_length=length)])
    said = [str(warning.message) for warning in recwarn if name in str(warning.message)]
    assert len(said) == (change is not None)
    assert all(f"the {change} of its categorical column" in text for text in said)


def test_copies_of_columns_give_the_same_configs():
    columns = [embedding_column(identity("words"), 4, learning_rate_fn=slow),
               *shared_embedding_columns([identity("title"), identity("body")], 4)]
    tables, features = columns_to_configs(columns)
    copied_tables, copied_features = columns_to_configs(copy.deepcopy(columns))
    assert copied_features == features
    assert copied_tables["tbl_words"].learning_rate_fn is slow
    assert list(copied_tables) == list(tables)


def test_columns_copied_one_by_one_still_share_their_table():
    columns = shared_embedding_columns([identity("title"), identity("body")], 4,
                                       initializer=tf.compat.v1.constant_initializer([0.5] * 4))
    tables, _ = columns_to_configs([copy.deepcopy(column) for column in columns])
    assert list(tables) == ["tbl_body_title_shared_embedding"]


@pytest.mark.parametrize(("field", "first", "second"), [
    ("combiner", {"combiner": "sum"}, {"combiner": "mean"}),
    ("dimension", {"dimension": 4}, {"dimension": 8}),
    ("learning_rate_fn", {"learning_rate_fn": slow}, {}),
    ("learning_rate_fn", {"learning_rate_fn": slow}, {"learning_rate_fn": lambda step: 0.01}),
    ("initializer", {"initializer": tf.compat.v1.ones_initializer()}, {}),
    ("initializer", {"initializer": tf.compat.v1.constant_initializer([1.0, 2.0])},
     {"initializer": tf.compat.v1.constant_initializer([1.0, 3.0])})])
def test_columns_that_disagree_about_their_table_raise(field, first, second):
    columns = [column for name, options in (("title", first), ("body", second))
               for column in shared_embedding_columns(
                   [identity(name)], **{"dimension": 4, **options},
                   shared_embedding_collection_name="text")]
    with pytest.raises(ValueError, match=f"(?i)`?{field}`? of table 'tbl_text' must be the same "
                                         "in all columns that share it, got "):
        columns_to_configs(columns)


def test_columns_of_several_calls_share_a_table_by_its_name():
    columns = [column for name in ("title", "body") for column in shared_embedding_columns(
        [identity(name)], 4, shared_embedding_collection_name="text")]
    tables, features = columns_to_configs(columns)
    assert list(tables) == ["tbl_text"] and list(features) == ["title", "body"]


def test_vocabularies_that_differ_raise():
    columns = [column for name, size in (("title", 10), ("body", 20))
               for column in shared_embedding_columns(
                   [identity(name, size)], 4, shared_embedding_collection_name="text")]
    with pytest.raises(ValueError, match=r"`vocabulary_size` of table 'tbl_text' must be the "
                                         r"same in all columns that share it, got \[10, 20\]"):
        columns_to_configs(columns)
