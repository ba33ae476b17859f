# SPDX-License-Identifier: Apache-2.0
"""A program whose one table counts how often it was trained on which id.

The table starts at zero, the gradient of every activation is -1 and the learning rate of
SGD is 1, so that every row is the number of times that a training step saw its id.
"""

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

VOCABULARY = 12
TPUEstimatorSpec = upstream.tpu_estimator.TPUEstimatorSpec


def new_spec(**options):
    return EmbeddingConfigSpec(
        table_to_config_dict={"counts": TableConfig(
            VOCABULARY, 1, tf.compat.v1.zeros_initializer(), combiner=None)},
        feature_to_config_dict={"id": FeatureConfig("counts")},
        optimization_parameters=StochasticGradientDescentParameters(1.0), **options)


def count(loss):
    """Returns the op that counts the ids of a step."""
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    return optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())


def model_fn(features, labels, mode, params):
    loss = tf.negative(tf.reduce_sum(features["id"]), name="loss")
    return TPUEstimatorSpec(
        mode, loss=loss, train_op=count(loss) if mode == "train" else None,
        predictions={"count": features["id"]})


def run_config(tpu_config=None, **options):
    """A configuration without the logging that costs time, and with a run for every step."""
    options = {"log_step_count_steps": None, "save_summary_steps": None, **options}
    tpu_config = tpu_config or upstream.tpu_config.TPUConfig(iterations_per_loop=1)
    return upstream.tpu_config.RunConfig(tpu_config=tpu_config, **options)


def new_estimator(model_dir, model_fn=model_fn, *, spec=None, config=None, batch_size=2,
                  **options):
    options = {"train_batch_size": batch_size, "eval_batch_size": batch_size,
               "predict_batch_size": batch_size, **options}
    if "embedding_config_spec" not in options:
        options["embedding_config_spec"] = spec or new_spec()
    return TPUEstimator(model_fn, str(model_dir), config or run_config(), **options)


def input_of(ids, batch_size=2, transform=None):
    """Returns an input_fn that gives each of the ids once."""
    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(np.asarray(ids, np.int64))
        dataset = dataset.map(transform) if transform else dataset
        return dataset.batch(batch_size).map(lambda ids: {"id": ids})
    return input_fn


def counts(estimator):
    """Returns how often each id was trained on, as a list."""
    return estimator.get_variable_value("counts")[:, 0].tolist()


def counts_of(*ids):
    return np.bincount(ids, minlength=VOCABULARY).astype(float).tolist()
