# SPDX-License-Identifier: Apache-2.0
"""An object of one API given to the other: every entry point says what to import."""

import pytest
import tensorflow as tf

import tpu_estimator_embedding as estimator_api
from tpu_estimator_embedding import mid_level as tf2
from tpu_estimator_embedding import other_api
from tpu_estimator_embedding.low_level import tpu_embedding as low_level

V1_TABLE = estimator_api.TableConfig(8, 4, combiner="sum")
V1_FEATURE = estimator_api.FeatureConfig("items")
V1_ADAM = estimator_api.AdamParameters(0.1)
V1_SPEC = estimator_api.EmbeddingConfigSpec(
    feature_to_config_dict={"item": V1_FEATURE}, table_to_config_dict={"items": V1_TABLE})

TF2_TABLE = tf2.TableConfig(8, 4)
TF2_FEATURE = tf2.FeatureConfig(TF2_TABLE)
TF2_ADAM = tf2.Adam(0.1)

THEIRS = tf.tpu.experimental.embedding
THEIR_TABLE = THEIRS.TableConfig(8, 4)


def spec(features=None, tables=None, **options):
    return estimator_api.EmbeddingConfigSpec(
        feature_to_config_dict=features or {"item": V1_FEATURE},
        table_to_config_dict=tables or {"items": V1_TABLE}, **options)


def v1_embedding(features=None, tables=None, optimizer=V1_ADAM):
    return low_level.TPUEmbedding(
        tables or {"items": V1_TABLE}, features or {"item": V1_FEATURE}, 8, low_level.TRAINING,
        master="", optimization_parameters=optimizer)


def tpu_estimator(embedding_config_spec):
    return estimator_api.TPUEstimator(
        lambda features, labels, mode, params: None, config=estimator_api.RunConfig(),
        train_batch_size=8, embedding_config_spec=embedding_config_spec)


# Entry point of the Estimator API -> what was given, what should have been.
TO_ESTIMATOR_API = {
    "TableConfig": (lambda: estimator_api.TableConfig(8, 4, optimization_parameters=TF2_ADAM),
                    "Adam", "AdamParameters"),
    "TableConfig, TensorFlow's optimizer": (
        lambda: estimator_api.TableConfig(8, 4, optimization_parameters=THEIRS.SGD(0.1)),
        "SGD", "StochasticGradientDescentParameters"),
    "spec, table": (lambda: spec(tables={"items": TF2_TABLE}), "TableConfig", "TableConfig"),
    "spec, TensorFlow's table": (lambda: spec(tables={"items": THEIR_TABLE}),
                                 "TableConfig", "TableConfig"),
    "spec, feature": (lambda: spec({"item": TF2_FEATURE}), "FeatureConfig", "FeatureConfig"),
    "spec, column": (lambda: estimator_api.EmbeddingConfigSpec(feature_columns=[TF2_FEATURE]),
                     "FeatureConfig", "FeatureConfig"),
    "spec, optimizer": (
        lambda: estimator_api.EmbeddingConfigSpec(
            feature_columns=[estimator_api.embedding_column(
                tf.feature_column.categorical_column_with_identity("item", 8), 4)],
            optimization_parameters=tf2.FTRL(0.1)), "FTRL", "FtrlParameters"),
    "low level, table": (lambda: v1_embedding(tables={"items": TF2_TABLE}),
                         "TableConfig", "TableConfig"),
    "low level, feature": (lambda: v1_embedding({"item": TF2_FEATURE}),
                           "FeatureConfig", "FeatureConfig"),
    "low level, optimizer": (lambda: v1_embedding(optimizer=TF2_ADAM), "Adam", "AdamParameters"),
    "TPUEstimator": (lambda: tpu_estimator(TF2_FEATURE), "FeatureConfig", "FeatureConfig"),
}

FEATURE_CONFIGS = {"feature": {"item": V1_FEATURE}, "features": {"a": [TF2_FEATURE, V1_FEATURE]},
                   "spec": V1_SPEC}
CLASSES = {
    "TPUEmbedding": tf2.TPUEmbedding,
    "TPUEmbeddingForServing": tf2.TPUEmbeddingForServing,
    "TPUEmbeddingV0": tf2.TPUEmbeddingV0,
    "TPUEmbeddingV2": tf2.TPUEmbeddingV2,
    "TPUEmbeddingLayer": lambda *arguments: tf2.TPUEmbeddingLayer(*arguments),
    "PartialTPUEmbedding": lambda *arguments: tf2.PartialTPUEmbedding(*arguments),
    "serving_embedding_lookup": lambda features, _: tf2.serving_embedding_lookup(
        {"item": tf.constant([1])}, None, {}, features),
}

TO_TF2_API = {
    "TableConfig": (lambda: tf2.TableConfig(8, 4, optimizer=V1_ADAM), "AdamParameters", "Adam"),
    "FeatureConfig": (lambda: tf2.FeatureConfig(V1_TABLE), "TableConfig", "TableConfig"),
    **{f"{name}, {kind}": (lambda entry=entry, features=features: entry(features, TF2_ADAM),
                           "EmbeddingConfigSpec" if kind == "spec" else "FeatureConfig",
                           "FeatureConfig")
       for name, entry in CLASSES.items() for kind, features in FEATURE_CONFIGS.items()},
    **{f"{name}, optimizer": (lambda entry=entry: entry({"item": TF2_FEATURE}, V1_ADAM),
                              "AdamParameters", "Adam")
       for name, entry in CLASSES.items() if name != "serving_embedding_lookup"},
}


@pytest.mark.parametrize("name", TO_ESTIMATOR_API)
def test_estimator_api_says_what_to_import(name):
    call, given, needed = TO_ESTIMATOR_API[name]
    with pytest.raises((TypeError, ValueError), match=(
            f"This {given} belongs to the TF2 API; use the Estimator API here: "
            f"`from tpu_estimator_embedding import {needed}`")):
        call()


@pytest.mark.parametrize("name", TO_TF2_API)
def test_tf2_api_says_what_to_import(name):
    call, given, needed = TO_TF2_API[name]
    with pytest.raises(ValueError, match=(
            f"This {given} belongs to the Estimator API; use the TF2 API here: "
            f"`from tpu_estimator_embedding.mid_level import {needed}`")):
        call()


def test_table_in_the_place_of_its_name():
    with pytest.raises(ValueError, match="`table_id` must be a key of `table_to_config_dict`, .* "
                                         "`from tpu_estimator_embedding.mid_level import Feature"):
        estimator_api.FeatureConfig(TF2_TABLE)


def test_estimator_takes_a_spec_only():
    with pytest.raises(TypeError, match="`embedding_config_spec` must be an EmbeddingConfigSpec "
                       "or None, got {'item'.*Make it with tpu_estimator_embedding.Embed"):
        tpu_estimator({"item": V1_FEATURE})


def test_optimizer_without_counterpart_names_those_there_are():
    assert other_api.tf2_import(estimator_api.MomentumParameters(0.1, 0.9)).endswith(
        "which has no such optimizer, only Adagrad, AdagradMomentum, Adam, FTRL, SGD.")
