# SPDX-License-Identifier: Apache-2.0
"""Makes TF2 configurations and inputs of the oracle's tables, optimizers and batches."""

import numpy as np
import tensorflow as tf

from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.mid_level.config import optimizers
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.optimizers.registry import rule_named

OPTIMIZERS = {name: case for name, case in CASES.items() if hasattr(optimizers, case.kind)
              and name != "FTRL, accumulator from 0"}  # which these words refuse


def to_optimizer(optimizer):
    """Returns the optimizer that computes as the oracle's does."""
    names = rule_named(optimizer.kind).record.v2_attributes
    hyperparameters = {names.get(name, name): value
                       for name, value in optimizer.hyperparameters.items()}
    low, high = optimizer.weight_limits
    clipped = optimizer.gradient_limits != (None, None)
    return getattr(optimizers, optimizer.kind)(
        learning_rate=optimizer.learning_rate, use_gradient_accumulation=optimizer.accumulate,
        clip_weight_min=low, clip_weight_max=high,
        clipvalue=optimizer.gradient_limits if clipped else None,
        weight_decay_factor=optimizer.decay or None,
        multiply_weight_decay_factor_by_learning_rate=(
            optimizer.multiply_decay_by_learning_rate or None), **hyperparameters)


def to_table(table):
    """Returns the table that starts as the oracle's does, with its optimizer."""
    return TableConfig(
        *table.values.shape, optimizer=to_optimizer(table.optimizer), combiner=table.combiner,
        name=table.name,
        initializer=tf.compat.v1.constant_initializer(table.values.astype(np.float32)))


def to_feature_config(oracle, batch_size=None):
    """Returns feature name -> FeatureConfig, with an output_shape if there is a batch size."""
    tables = {name: to_table(table) for name, table in oracle.tables.items()}
    return {name: FeatureConfig(
        tables[feature.table], max_sequence_length=feature.length,
        output_shape=None if batch_size is None else [batch_size])
        for name, feature in oracle.features.items()}


def to_input(samples, kind, *, weighted=False, dtype=np.int64):
    """Returns ids and weights of samples as tensors of one kind; weights may be None."""
    entries = [(sample, entry) for sample, of_sample in enumerate(samples) for entry in of_sample]
    ids = np.array([entry.id for _, entry in entries], dtype)
    weights = np.array([entry.weight for _, entry in entries], np.float32)
    if kind == "dense":
        wrap = tf.constant
    elif kind == "ragged":
        lengths = [len(of_sample) for of_sample in samples]

        def wrap(values):
            return tf.RaggedTensor.from_row_lengths(values, lengths)
    else:
        places = np.array([(sample, entry.position) for sample, entry in entries],
                          np.int64).reshape([-1, 2])
        width = 1 + max([entry.position for _, entry in entries], default=0)

        def wrap(values):
            return tf.SparseTensor(places, values, [len(samples), width])
    return wrap(ids), wrap(weights) if weighted else None
