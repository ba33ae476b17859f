# SPDX-License-Identifier: Apache-2.0
"""EmbeddingConfigSpec: what it holds, and every error that it raises."""

import copy
import pickle

import pytest
import tensorflow as tf

from tpu_estimator_embedding import multipliers
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import (
    EmbeddingConfigSpec,
    spec_to_plan,
)

fc = tf.feature_column
experimental = tf.compat.v1.tpu.experimental
words = fc.categorical_column_with_identity("words", 10)
others = fc.categorical_column_with_identity("others", 10)
COLUMN = experimental.embedding_column(words, 4)
ON_TENSOR_CORE = experimental.embedding_column(
    others, 4, embedding_lookup_device="tpu_tensor_core", tensor_core_shape=[None, 3])
ADAGRAD = AdagradParameters(0.1)
TABLES, FEATURES = {"words": TableConfig(10, 4)}, {"title": FeatureConfig("words")}


def of_columns(columns=(COLUMN,), **options):
    return EmbeddingConfigSpec(feature_columns=list(columns),
                               **{"optimization_parameters": ADAGRAD, **options})


def of_dictionaries(tables=TABLES, features=FEATURES, **options):
    return EmbeddingConfigSpec(table_to_config_dict=tables, feature_to_config_dict=features,
                               **options)


def scale(step):
    return 0.5


def test_columns_and_settings_are_kept():
    spec = EmbeddingConfigSpec([COLUMN], ADAGRAD, 0.5, True, scale, None, None, "mod", "/profile")
    assert spec.feature_columns == [COLUMN] and spec.tensor_core_feature_columns == []
    assert spec.optimization_parameters is ADAGRAD
    assert spec[3:] == (0.5, True, scale, None, None, "mod", "/profile", None)


def test_what_was_given_may_be_changed_later():
    tables, features, columns = dict(TABLES), dict(FEATURES), [COLUMN]
    of_dictionaries_, of_columns_ = (EmbeddingConfigSpec(
        feature_to_config_dict=features, table_to_config_dict=tables), of_columns(columns))
    for given in (tables, features, columns):
        given.clear()
    assert of_dictionaries_.table_to_config_dict == TABLES
    assert of_dictionaries_.feature_to_config_dict == FEATURES
    assert of_columns_.feature_columns == [COLUMN]


def test_columns_of_a_tensor_core_are_set_apart():
    columns = [ON_TENSOR_CORE, COLUMN]
    spec = of_columns(columns)
    assert spec.feature_columns == [COLUMN]
    assert spec.tensor_core_feature_columns == [ON_TENSOR_CORE]
    assert columns == [ON_TENSOR_CORE, COLUMN]


def test_columns_may_come_from_a_generator():
    spec = EmbeddingConfigSpec((column for column in [COLUMN, ON_TENSOR_CORE]), ADAGRAD)
    assert (spec.feature_columns, spec.tensor_core_feature_columns) == (
        [COLUMN], [ON_TENSOR_CORE])


@pytest.mark.parametrize("columns", [
    [fc.embedding_column(words, 4)], [fc.numeric_column("price")],
    experimental.shared_embedding_columns([words, others], 4)],
    ids=["embedding", "number", "shared"])
def test_columns_that_need_no_tpu_are_accepted(columns):
    assert of_columns(columns).feature_columns == columns


def test_column_that_is_not_in_a_list_raises():
    with pytest.raises(TypeError, match="`feature_columns` must be a list of columns, got _TPU"):
        EmbeddingConfigSpec(COLUMN, ADAGRAD)


@pytest.mark.parametrize("arguments", [
    {}, {"feature_columns": []}, {"table_to_config_dict": TABLES},
    {"feature_to_config_dict": FEATURES},
    {"feature_columns": [COLUMN], "table_to_config_dict": TABLES,
     "feature_to_config_dict": FEATURES},
    {"feature_columns": [COLUMN], "table_to_config_dict": TABLES},
    {"table_to_config_dict": TABLES, "feature_to_config_dict": {}}])
def test_neither_columns_nor_both_dictionaries_raises(arguments):
    with pytest.raises(ValueError, match="Pass either feature_columns, or both "
                                         "feature_to_config_dict and table_to_config_dict, got "):
        EmbeddingConfigSpec(optimization_parameters=ADAGRAD, **arguments)


def test_pipelining_that_is_a_text_raises():
    with pytest.raises(ValueError, match="`pipeline_execution_with_tensor_core` must be one of "
                                         "True, False, None, got 'False'"):
        EmbeddingConfigSpec([COLUMN], ADAGRAD, pipeline_execution_with_tensor_core="False")


@pytest.mark.parametrize("keyword", ["column", "columns"])
def test_keyword_of_older_documentation_names_the_right_one(keyword):
    with pytest.raises(TypeError, match=f"`{keyword}` must be passed as `feature_columns`, got"):
        EmbeddingConfigSpec(**{keyword: [COLUMN]}, optimization_parameters=ADAGRAD)


@pytest.mark.parametrize("make", [of_columns, of_dictionaries])
def test_clipping_limit_that_is_not_positive_raises(make):
    with pytest.raises(ValueError, match="`clipping_limit` must be a positive number or None, "
                                         "got 0"):
        make(clipping_limit=0)
    with pytest.raises(TypeError, match="`clipping_limit` must be a positive number or None, "
                                        "got '1'"):
        make(clipping_limit="1")


def test_multiplier_that_cannot_be_called_raises():
    with pytest.raises(ValueError, match="`experimental_gradient_multiplier_fn` must be a "
                                         "callable or None, got 0.5"):
        of_columns(experimental_gradient_multiplier_fn=0.5)


@pytest.mark.parametrize("spec", [of_columns([COLUMN, ON_TENSOR_CORE], clipping_limit=1.0),
                                  of_dictionaries(partition_strategy="mod")],
                         ids=["columns", "dictionaries"])
def test_spec_copies_and_replaces(spec):
    copied = copy.deepcopy(spec)
    assert type(copied) is EmbeddingConfigSpec
    assert (copied.clipping_limit, copied.partition_strategy) == (
        spec.clipping_limit, spec.partition_strategy)
    for name in ("feature_columns", "tensor_core_feature_columns", "table_to_config_dict"):
        assert len(getattr(copied, name) or []) == len(getattr(spec, name) or [])
    assert spec._replace(clipping_limit=2.0).clipping_limit == 2.0


def test_multipliers_of_tables_reach_the_plan_and_survive_copies():
    spec = of_dictionaries({"words": TableConfig(10, 4, optimization_parameters=ADAGRAD)},
                           table_multipliers={"wor*": "warmup:9"})
    for copied in (spec, copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)),
                   spec._replace(clipping_limit=2.0)):
        [table] = spec_to_plan(copied, training=True).tables
        assert table.multiplier == multipliers.linear_warmup(9)
        [table] = spec_to_plan(copied, training=False).tables
        assert table.multiplier is None


def test_multiplier_of_an_unknown_table_is_an_error():
    spec = of_dictionaries({"words": TableConfig(10, 4, optimization_parameters=ADAGRAD)},
                           table_multipliers={"wrods": 0.5})
    for training in (True, False):
        with pytest.raises(ValueError, match="got 'wrods'. Nearest: words."):
            spec_to_plan(spec, training=training)
