"""The embeddings of before.py, as it built them.

Written by `tpu-estimator-embedding migrate --capture`, which checked that it builds equal
tables and features.
"""

import keras
import keras_rs

BATCH_SIZE = 8  # of training, over all replicas
PIPELINED = False  # whether lookups miss the update before
WEIGHT_KEYS = {'friends': 'closeness'}  # feature -> key of its weights
# Features with one id for each sample. In dense ids of the others 0 is padding.
ONE_ID_FEATURES = []
# Table, or table/slot -> its name in checkpoints of the Estimator.
TABLE_VARIABLES = {
    'users': 'users',
    'users/accumulators': 'users/Adagrad',
    'words': 'words',
    'words/accumulators': 'words/Adagrad',
}


# Table -> function of the step, where the learning rate is one.
LEARNING_RATES = {}
# Table -> bounds of the summed gradient of a row.
GRADIENT_LIMITS = {}


def feature_config():
    """Returns feature name -> FeatureConfig."""
    users = keras_rs.layers.TableConfig(
        name='users', vocabulary_size=20, embedding_dim=4,
        initializer=keras.initializers.TruncatedNormal(stddev=0.5),
        combiner='sum', placement="default_device")
    words = keras_rs.layers.TableConfig(
        name='words', vocabulary_size=50, embedding_dim=4,
        initializer=keras.initializers.TruncatedNormal(stddev=0.5),
        combiner='mean', placement="default_device")
    return {
        'friends': keras_rs.layers.FeatureConfig(
            'friends', users, input_shape=(None, None), output_shape=(None, 4)),
        'users': keras_rs.layers.FeatureConfig(
            'users', users, input_shape=(None, None), output_shape=(None, 4)),
        'words': keras_rs.layers.FeatureConfig(
            'words', words, input_shape=(None, None), output_shape=(None, 4)),
    }


def optimizers():
    """Returns table -> its optimizer."""
    return {
        'users': keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.1, epsilon=0.0),
        'words': keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.1, epsilon=0.0),
    }
