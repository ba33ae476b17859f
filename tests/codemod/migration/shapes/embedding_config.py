# SPDX-License-Identifier: Apache-2.0
"""The embeddings of base.py, as it built them.

Written by `tpu-estimator-embedding migrate --capture`, which checked that it builds an equal
plan.
"""

import tensorflow as tf

from tpu_estimator_embedding import mid_level

BATCH_SIZE = 16  # of training, over all replicas
PIPELINED = False  # whether lookups miss the update before
WEIGHT_KEYS = {}  # feature -> key of its weights
# Features with one id for each sample. In dense ids of the others 0 is padding.
ONE_ID_FEATURES = []
# Table, or table/slot -> its name in checkpoints of the Estimator.
TABLE_VARIABLES = {
    'tbl_a': 'input_layer/a_embedding/embedding_weights',
    'tbl_a/accumulators': 'input_layer/a_embedding/embedding_weights/Adagrad',
    'tbl_b': 'input_layer/b_embedding/embedding_weights',
    'tbl_b/accumulators': 'input_layer/b_embedding/embedding_weights/Adagrad',
}


def feature_config(global_step=None):
    """Returns feature name -> FeatureConfig.

    Args:
        global_step: the variable that learning rates are functions of.
    """
    tbl_a = mid_level.TableConfig(
        vocabulary_size=20, dim=4,
        initializer=tf.compat.v1.random_uniform_initializer(minval=-0.5, maxval=0.5, seed=3),
        optimizer=mid_level.Adagrad(learning_rate=0.1),
        combiner='mean', name='tbl_a')
    tbl_b = mid_level.TableConfig(
        vocabulary_size=20, dim=4,
        initializer=tf.compat.v1.random_uniform_initializer(minval=-0.5, maxval=0.5, seed=4),
        optimizer=mid_level.Adagrad(learning_rate=0.1),
        combiner='mean', name='tbl_b')
    return {
        'a': mid_level.FeatureConfig(tbl_a),
        'b': mid_level.FeatureConfig(tbl_b),
    }
