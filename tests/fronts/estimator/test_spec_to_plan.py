# SPDX-License-Identifier: Apache-2.0
"""From an EmbeddingConfigSpec to a plan, for columns and for dictionaries."""


import pytest
import tensorflow as tf

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters, AdamParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import (
    EmbeddingConfigSpec,
    spec_to_plan,
)
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import shared_embedding_columns
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam

fc = tf.feature_column


def rate(step):
    return 0.125


def identity(name):
    return fc.categorical_column_with_identity(name, 10)


def columns():
    steps = fc.sequence_categorical_column_with_identity("steps", 10)
    weighted = fc.weighted_categorical_column(identity("words"), "counts")
    return [embedding_column(weighted, 8, learning_rate_fn=rate),
            *shared_embedding_columns([identity("title"), steps], 4, "sum",
                                      max_sequence_lengths=[0, 7])]


def new_spec(**options):
    return EmbeddingConfigSpec(**{"feature_columns": columns(),
                                  "optimization_parameters": AdagradParameters(0.5), **options})


def test_columns_become_tables_and_features():
    plan = spec_to_plan(new_spec(), training=True)
    assert [(t.name, t.dimension, t.combiner, t.optimizer.learning_rate) for t in plan.tables] == [
        ("tbl_steps_title_shared_embedding", 4, "sum", 0.5),
        ("tbl_words_weighted_by_counts", 8, "mean", rate)]
    assert [(f.name, f.table, f.max_sequence_length, f.weight_key) for f in plan.features] == [
        ("steps", "tbl_steps_title_shared_embedding", 7, None),
        ("title", "tbl_steps_title_shared_embedding", 0, None),
        ("words", "tbl_words_weighted_by_counts", 0, "counts")]


def test_dictionaries_become_tables_and_features():
    spec = new_spec(
        feature_columns=None, table_to_config_dict={
            "words": TableConfig(10, 4, optimization_parameters=AdamParameters(0.25)),
            "users": TableConfig(7, 3)},
        feature_to_config_dict={"title": FeatureConfig("words"), "user": FeatureConfig("users")})
    plan = spec_to_plan(spec, training=True)
    assert [(t.name, type(t.optimizer.rule)) for t in plan.tables] == [
        ("users", Adagrad), ("words", Adam)]
    assert [f.name for f in plan.features] == ["user", "title"]


def test_settings_of_the_spec_reach_the_plan():
    spec = new_spec(clipping_limit=0.25, pipeline_execution_with_tensor_core=True,
                    experimental_gradient_multiplier_fn=rate, partition_strategy="mod")
    with pytest.warns(UserWarning, match="clipping_limit clips"):
        plan = spec_to_plan(spec, training=True, num_hosts=3)
    assert {table.optimizer.gradient_limits for table in plan.tables} == {(-0.25, 0.25)}
    assert (plan.pipelined, plan.gradient_multiplier_fn) == (True, rate)
    assert (plan.partition_strategy, plan.num_hosts) == ("mod", 3)


def test_columns_of_a_tensor_core_are_left_out():
    on_tensor_core = embedding_column(identity("others"), 4, tensor_core_shape=[None, 3],
                                      embedding_lookup_device="tpu_tensor_core")
    plan = spec_to_plan(new_spec(feature_columns=[*columns(), on_tensor_core]), training=True)
    assert "tbl_others" not in plan.table_by_name and len(plan.tables) == 2
    alone = spec_to_plan(new_spec(feature_columns=[on_tensor_core]), training=True)
    assert (alone.tables, alone.features) == ((), ())


def test_profile_data_directory_is_warned_of(logged):
    for training in (True, False):
        plan = spec_to_plan(new_spec(profile_data_directory="/profile"), training=training)
        assert str(plan) == str(spec_to_plan(new_spec(), training=training))
    assert len(logged("profile_data_directory='/profile' is not used: only a TPU")) == 1


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="tensorflow_estimator imports by itself up to TensorFlow 2.15 only")
def test_spec_of_tensorflow_estimator_is_planned():
    from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding as upstream

    spec = upstream.EmbeddingConfigSpec(columns(), upstream.AdagradParameters(0.5))
    plan = spec_to_plan(spec, training=True)
    assert str(plan) == str(spec_to_plan(new_spec(), training=True))
