# SPDX-License-Identifier: Apache-2.0
"""The features of the linear model as embedding columns and as configurations."""

import tensorflow as tf

from tests.fronts.estimator.linear import FEATURES, TABLES
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

fc = tf.feature_column
NAMES = ["a", "b", "c", "d", "r", "s", "w"]  # all but the one with combiner None


def table_of(name):
    return TABLES[FEATURES[name].table]


def categorical_column(name):
    feature, rows = FEATURES[name], table_of(name).rows
    if feature.length:
        return fc.sequence_categorical_column_with_identity(name, rows)
    column = fc.categorical_column_with_identity(name, rows)
    return fc.weighted_categorical_column(column, feature.weights) if feature.weights else column


def new_columns(names=NAMES, **options):
    """Returns feature name -> embedding column; `b` and `c` share."""
    columns = {name: embedding_column(
        categorical_column(name), table_of(name).dim, table_of(name).combiner,
        max_sequence_length=FEATURES[name].length, **options)
        for name in names if name not in ("b", "c")}
    if "b" in names:
        columns["b"], columns["c"] = shared_embedding_columns(
            [categorical_column("b"), categorical_column("c")], table_of("b").dim,
            table_of("b").combiner, **options)
    return columns


def apply(columns, features):
    """Returns feature name -> activations; each column has a layer named after its table."""
    layers = tf.keras.layers
    activations = {}
    for name, column in columns.items():
        if FEATURES[name].length:
            layer = tf.keras.experimental.SequenceFeatures([column], name=f"take_{name}")
            activations[name] = layer(features)[0]
        else:
            activations[name] = layers.DenseFeatures([column], name=f"take_{name}")(features)
    return activations


def variable_names(columns):
    """Returns table -> name of its variable after `apply`."""
    return {FEATURES[name].table: (
        "b_c_shared_embedding" if name in ("b", "c")
        else f"take_{name}/{column.categorical_column.name}_embedding/embedding_weights")
        for name, column in columns.items()}


def new_dict_spec(parameters, names=tuple(FEATURES), **options):
    tables = {FEATURES[name].table for name in names}
    return EmbeddingConfigSpec(
        table_to_config_dict={name: TableConfig(
            TABLES[name].rows, TABLES[name].dim, combiner=TABLES[name].combiner)
            for name in tables},
        feature_to_config_dict={name: FeatureConfig(
            FEATURES[name].table, FEATURES[name].length, FEATURES[name].weights)
            for name in names},
        optimization_parameters=parameters, **options)
