# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of the v1 API: TensorFlow 2.15's, frozen and as installed."""

import inspect
import json
import subprocess
import sys

import pytest
import tensorflow as tf

from tpu_estimator_embedding.config import optimization_parameters, slot_variable_names
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)

pytestmark = pytest.mark.every_tensorflow

TAIL = ("use_gradient_accumulation=True, clip_weight_min=None, clip_weight_max=None, "
        "weight_decay_factor=None, multiply_weight_decay_factor_by_learning_rate=None, "
        "clip_gradient_min=None, clip_gradient_max=None")
PENALTIES = "l1_regularization_strength=0.0, l2_regularization_strength=0.0"

SIGNATURES = {
    "AdagradParameters": f"learning_rate, initial_accumulator=0.1, {TAIL}",
    "AdagradMomentumParameters":
        f"learning_rate, momentum, use_nesterov=False, exponent=2, beta2=1, epsilon=1e-10, {TAIL}",
    "ProximalAdagradParameters": f"learning_rate, initial_accumulator=0.1, {PENALTIES}, {TAIL}",
    "AdamParameters": "learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-08, lazy_adam=True, "
                      f"sum_inside_sqrt=True, {TAIL}",
    "FtrlParameters":
        f"learning_rate, learning_rate_power=-0.5, initial_accumulator_value=0.1, {PENALTIES}, "
        "use_gradient_accumulation=True, clip_weight_min=None, clip_weight_max=None, "
        "weight_decay_factor=None, multiply_weight_decay_factor_by_learning_rate=None, "
        "multiply_linear_by_learning_rate=False, beta=0, allow_zero_accumulator=False, "
        "clip_gradient_min=None, clip_gradient_max=None",
    "ProximalYogiParameters":
        f"learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=0.001, {PENALTIES}, "
        f"initial_accumulator_value=1e-06, {TAIL}",
    "MomentumParameters": f"learning_rate, momentum, use_nesterov=False, {TAIL}",
    "RMSPropParameters": f"learning_rate, rho, momentum, epsilon, {TAIL}",
    "StochasticGradientDescentParameters": f"learning_rate, {TAIL}",
    "FrequencyEstimatorParameters": "tau, max_delta, outlier_threshold, weight_exponent",
    "TableConfig":
        "vocabulary_size, dimension, initializer=None, combiner='mean', "
        "hot_id_replication=False, learning_rate=None, learning_rate_fn=None, "
        "optimization_parameters=None",
    "FeatureConfig": "table_id, max_sequence_length=0, weight_key=None",
    "EmbeddingConfigSpec":
        "feature_columns=None, optimization_parameters=None, clipping_limit=None, "
        "pipeline_execution_with_tensor_core=False, experimental_gradient_multiplier_fn=None, "
        "feature_to_config_dict=None, table_to_config_dict=None, partition_strategy='div', "
        "profile_data_directory=None",
    "embedding_column":
        "categorical_column, dimension, combiner='mean', initializer=None, "
        "max_sequence_length=0, learning_rate_fn=None, embedding_lookup_device=None, "
        "tensor_core_shape=None, use_safe_embedding_lookup=True",
    "shared_embedding_columns":
        "categorical_columns, dimension, combiner='mean', initializer=None, "
        "shared_embedding_collection_name=None, max_sequence_lengths=None, "
        "learning_rate_fn=None, embedding_lookup_device=None, tensor_core_shape=None, "
        "use_safe_embedding_lookup=True",
}

# Behind TensorFlow's.
OUR_FIELDS = {"EmbeddingConfigSpec": ["table_multipliers"]}

FIELDS = {
    "TableConfig": ["vocabulary_size", "dimension", "initializer", "combiner",
                    "hot_id_replication", "learning_rate", "learning_rate_fn",
                    "optimization_parameters"],
    "FeatureConfig": ["table_id", "max_sequence_length", "weight_key"],
    "EmbeddingConfigSpec": [
        "feature_columns", "tensor_core_feature_columns", "optimization_parameters",
        "clipping_limit", "pipeline_execution_with_tensor_core",
        "experimental_gradient_multiplier_fn", "feature_to_config_dict",
        "table_to_config_dict", "partition_strategy", "profile_data_directory"],
    "AdagradSlotVariableNames": ["accumulator"],
    "AdagradMomentumSlotVariableNames": ["accumulator", "momenta"],
    "ProximalAdagradSlotVariableNames": ["accumulator"],
    "AdamSlotVariableNames": ["m", "v"],
    "FtrlSlotVariableNames": ["accumulator", "linear"],
    "ProximalYogiSlotVariableNames": ["v", "m"],
    "MomentumSlotVariableNames": ["momenta"],
    "RMSPropSlotVariableNames": ["ms", "mom"],
    "FrequencyEstimatorSlotVariableNames": ["last_hit_step"],
}

# Printed by a process of its own, in which nothing has replaced TensorFlow's classes.
PRINT_INSTALLED = """
import inspect, json, sys
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding
members = {**vars(tpu_embedding), **vars(_tpu_estimator_embedding)}
for name in ("embedding_column", "shared_embedding_columns"):
    members[name] = getattr(tf.compat.v1.tpu.experimental, name)
names, tuples = json.loads(sys.argv[1])
print(json.dumps([
    {name: ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in inspect.signature(members[name]).parameters.values())
     for name in names},
    {name: list(members[name]._fields) for name in tuples}]))
"""


def our_names():
    members = {**vars(optimization_parameters), **vars(slot_variable_names)}
    for member in (TableConfig, FeatureConfig, EmbeddingConfigSpec, embedding_column,
                 shared_embedding_columns):
        members[member.__name__] = member
    return members


def signature(member):
    """Names and defaults, without what the package adds: that is given by keyword alone."""
    return ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in inspect.signature(member).parameters.values()
                     if parameter.kind is not parameter.KEYWORD_ONLY)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_the_frozen_one(name):
    assert signature(our_names()[name]) == SIGNATURES[name]


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_the_frozen_ones(name):
    assert list(our_names()[name]._fields) == FIELDS[name] + OUR_FIELDS.get(name, [])


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="TensorFlow 2.15 is the last that has these classes")
def test_frozen_tables_are_those_of_the_installed_tensorflow():
    process = subprocess.run(
        [sys.executable, "-c", PRINT_INSTALLED, json.dumps([list(SIGNATURES), list(FIELDS)])],
        capture_output=True, text=True, check=True)
    signatures, fields = json.loads(process.stdout.splitlines()[-1])
    assert signatures == SIGNATURES
    assert fields == FIELDS
