# SPDX-License-Identifier: Apache-2.0
"""Configs, columns and specs refuse with the sentences that TensorFlow refuses with.

Each case is tried on the classes of this package, and on TensorFlow's own where it has them.
"""

import importlib
import types

import pytest
import tensorflow as tf
from tensorflow.python.tpu import feature_column_v2

from tests.fronts.error_parity.refusals import check_refusal
from tests.fronts.low_level.tensorflows_own import load_tensorflows_own
from tpu_estimator_embedding.compat.modules import tpu_embedding
from tpu_estimator_embedding.compat.upstream import tpu_estimator
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

fc = tf.feature_column
WORDS = fc.categorical_column_with_identity("words", 10)
FEW = fc.categorical_column_with_identity("few", 5)
SEQUENCE = fc.sequence_categorical_column_with_identity("sequence", 10)

CONFIGS = [
    (lambda api: api.TableConfig(0, 4), ValueError, "vocabulary_size must >= 1."),
    (lambda api: api.TableConfig(10, 0), ValueError, "dimension must be a positive int."),
    (lambda api: api.TableConfig(10, 4, initializer=3), ValueError,
     "initializer must be callable if specified."),
    (lambda api: api.TableConfig(10, 4, combiner="max"), ValueError,
     'combiner must be "mean", "sum", "sqrtn" or None.'),
    (lambda api: api.TableConfig(10, 4, learning_rate=0.1, learning_rate_fn=abs), ValueError,
     "At most one of learning_rate and learning_rate_fn can be None."),
    (lambda api: api.TableConfig(10, 4, optimization_parameters="adagrad"), ValueError,
     "`optimization_parameters` must inherit from `_OptimizationParameters`."),
    (lambda api: api.FeatureConfig("words", -1), ValueError,
     "max_sequence_length must be zero or a positive int"),
    (lambda api: api.AdagradParameters(0.1, use_gradient_accumulation=False, clip_gradient_max=1.0),
     ValueError, "When using gradient clipping limits, gradient  accumulation must be enabled."),
    (lambda api: api.AdagradParameters(0.1, 0.0), ValueError,
     "Adagrad initial_accumulator must be greater than zero."),
    (lambda api: api.AdagradMomentumParameters(0.1, 0.9, epsilon=0.0), ValueError,
     "Adagrad momentum: epsilon must be positive"),
    (lambda api: api.AdagradMomentumParameters(0.1, 0.9, exponent=0.0), ValueError,
     "Adagrad momentum: Precondition exponent must >0"),
    (lambda api: api.ProximalAdagradParameters(0.1, -1.0), ValueError,
     "Adagrad initial_accumulator must be positive."),
    (lambda api: api.ProximalAdagradParameters(0.1, l1_regularization_strength=-1.0), ValueError,
     "l1_regularization_strength must be greater than or equal to 0."),
    (lambda api: api.ProximalAdagradParameters(0.1, l2_regularization_strength=-1.0), ValueError,
     "l2_regularization_strength must be greater than or equal to 0."),
    (lambda api: api.AdamParameters(0.1, beta1=2.0), ValueError, "beta1 must be between 0. and 1"),
    (lambda api: api.AdamParameters(0.1, beta2=-1.0), ValueError,
     "beta2 must be between 0. and 1"),
    (lambda api: api.AdamParameters(0.1, epsilon=0.0), ValueError, "epsilon must be positive"),
    (lambda api: api.AdamParameters(0.1, lazy_adam=False, use_gradient_accumulation=False),
     ValueError, "When disabling Lazy Adam, gradient accumulation must be used."),
    (lambda api: api.FtrlParameters(0.1, learning_rate_power=1.0), ValueError,
     "learning_rate_power must be less than or equal to 0."),
    (lambda api: api.FtrlParameters(0.1, initial_accumulator_value=-1.0), ValueError,
     "initial_accumulator_value must be greater than or equal to 0."),
    (lambda api: api.FtrlParameters(0.1, l1_regularization_strength=-1.0), ValueError,
     "l1_regularization_strength must be greater than or equal to 0."),
    (lambda api: api.ProximalYogiParameters(0.1, beta1=1.5), ValueError,
     "beta1 must be between 0. and 1"),
    (lambda api: api.ProximalYogiParameters(0.1, epsilon=0.0), ValueError,
     "epsilon must be positive"),
]


def spec(api, **options):
    return api.EmbeddingConfigSpec(**{
        "optimization_parameters": api.AdagradParameters(0.1),
        "table_to_config_dict": {"words": api.TableConfig(10, 4)},
        "feature_to_config_dict": {"title": api.FeatureConfig("words")}, **options})


SPECS = [
    (lambda api: api.EmbeddingConfigSpec(), ValueError,
     "Exactly one of `feature_columns` and the pair `feature_to_config_dict` and "
     "`table_to_config_dict` must be be specified."),
    (lambda api: spec(api, partition_strategy="row"), ValueError,
     'Invalid partition_strategy row. Must be one of "mod" or "div".'),
    (lambda api: api.EmbeddingConfigSpec(["words"], api.AdagradParameters(0.1)), TypeError,
     "All feature columns must be supported types in ("),
    (lambda api: api.EmbeddingConfigSpec([api.embedding_column(WORDS, 4)]), ValueError,
     "optimization_parameters must be an instance of type "),
    (lambda api: spec(api, feature_to_config_dict={"title": "words"}), TypeError,
     "Config for feature title must be of type `FeatureConfig`."),
    (lambda api: spec(api, feature_to_config_dict={"title": api.FeatureConfig("users")}),
     ValueError, "Feature title refers to table users which is not in the table_to_config_dict."),
    (lambda api: spec(api, table_to_config_dict={"words": (10, 4)}), TypeError,
     "Config for table words must be of type `TableConfig`."),
]

COLUMNS = [
    (lambda api: api.embedding_column("words", 4), TypeError,
     "categorical_column for tpu embedding_column must be type "),
    (lambda api: api.embedding_column(WORDS, 0), ValueError, "Invalid dimension 0."),
    (lambda api: api.embedding_column(WORDS, 4, initializer=3), ValueError,
     "initializer must be callable if specified."),
    (lambda api: api.embedding_column(SEQUENCE, 4), ValueError,
     "max_sequence_length must be greater than 0 for sequence columns."),
    (lambda api: api.embedding_column(WORDS, 4, max_sequence_length=3), ValueError,
     "Non zero max_seq_length=3 specified for non sequence column words."),
    (lambda api: api.embedding_column(WORDS, 4, tensor_core_shape=[1, 2, 3]), ValueError,
     "tensor_core_shape must be size 2."),
    (lambda api: api.embedding_column(WORDS, 4, embedding_lookup_device="gpu"), ValueError,
     "If set, embedding_lookup_device must be in "),
    (lambda api: api.embedding_column(WORDS, 4, embedding_lookup_device="tpu_tensor_core"),
     ValueError, "Using embedding_lookup_device=tpu_tensor_core requires tensor_core_shape to be "
                 "set."),
    (lambda api: api.embedding_column(SEQUENCE, 4, max_sequence_length=2, tensor_core_shape=[1, 2],
                                      embedding_lookup_device="tpu_tensor_core"),
     ValueError, "embedding_lookup_device=tpu_tensor_core currently does not support sequence "
                 "columns."),
    (lambda api: api.shared_embedding_columns(["words"], 4), TypeError,
     "categorical_column for tpu  shared_embedding_columns must be type "),
    (lambda api: api.shared_embedding_columns([WORDS, FEW], 4), ValueError,
     "To use shared_embedding_column, all categorical_columns must have the same number of "
     "buckets."),
    (lambda api: api.shared_embedding_columns([WORDS], 4, max_sequence_lengths=[1, 2]), ValueError,
     "max_sequence_lengths and categorical_columns must be of the same length."),
    (lambda api: api.shared_embedding_columns([WORDS], 0), ValueError, "Invalid dimension 0."),
]

OURS = types.SimpleNamespace(
    **vars(tpu_embedding), EmbeddingConfigSpec=EmbeddingConfigSpec,
    embedding_column=embedding_column, shared_embedding_columns=shared_embedding_columns)


@pytest.mark.parametrize("trigger, error, beginning", [*CONFIGS, *SPECS, *COLUMNS])
def test_ours(trigger, error, beginning):
    check_refusal(lambda: trigger(OURS), error, beginning)


@pytest.mark.parametrize("trigger, error, beginning", CONFIGS)
def test_tensorflows_configs(trigger, error, beginning):
    try:
        theirs = load_tensorflows_own()
    except FileNotFoundError:
        pytest.skip("TensorFlow 2.16 dropped the module")
    check_refusal(lambda: trigger(theirs), error, beginning)


@pytest.mark.parametrize("trigger, error, beginning", COLUMNS)
def test_tensorflows_columns(trigger, error, beginning):
    theirs = types.SimpleNamespace(
        embedding_column=feature_column_v2.embedding_column_v2,
        shared_embedding_columns=feature_column_v2.shared_embedding_columns_v2)
    check_refusal(lambda: trigger(theirs), error, beginning)


@pytest.mark.parametrize("trigger, error, beginning", SPECS)
def test_upstreams_specs(trigger, error, beginning):
    upstream = importlib.import_module(
        f"{tpu_estimator.__package__}._tpu_estimator_embedding")
    theirs = types.SimpleNamespace(
        EmbeddingConfigSpec=upstream.EmbeddingConfigSpec, **{
            name: getattr(upstream.tpu_embedding, name)
            for name in ("AdagradParameters", "FeatureConfig", "TableConfig")},
        embedding_column=feature_column_v2.embedding_column_v2)
    check_refusal(lambda: trigger(theirs), error, beginning)
