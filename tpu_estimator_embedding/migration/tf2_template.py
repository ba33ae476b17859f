# SPDX-License-Identifier: Apache-2.0
"""The code that replaces the TPUEstimator of a program in the stage "tf2"."""

from tpu_estimator_embedding.migration import trainer_text

# Names that the code binds at the top of the program.
BOUND = ("Forward", "ModeKeys", "Outputs", "Trainer", "activations_of", "dense_learning_rate",
         "make_optimizer", "sequences_of", "tf_v1", "tf_v2", "typing", "embedding_config")

IMPORTS = '''\
import os

# Selects Keras 2 for the layers of the forward pass, before TensorFlow is imported.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import typing

import tensorflow.compat.v1 as tf_v1
import tensorflow.compat.v2 as tf_v2
from tpu_estimator_embedding import mid_level
import embedding_config
'''

NAMES = '''\
class ModeKeys:
    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


class Outputs(typing.NamedTuple):
    """The outputs of the forward pass in a mode."""

    mode: typing.Any
    predictions: typing.Any = None
    loss: typing.Any = None
    eval_metrics: typing.Any = None
'''

COLUMNS = '''\
def activations_of(features, columns):
    """Concatenates the activations of embedding columns, in the order of their names."""
    columns = list(columns) if isinstance(columns, (list, set)) else [columns]
    columns.sort(key=lambda column: column.name)
    return tf_v2.concat([features[column.get_feature_key_name()] for column in columns], axis=1)


def sequences_of(features, columns):
    """Returns the activations of a sequence column `[batch, length, dim]`, and its lengths."""
    [column] = columns
    key = column.get_feature_key_name()
    return features[key], features[key + "_seq_length_"]
'''

FORWARD = '''\
class Forward(tf_v2.Module):
    """The forward pass; its variables have the same names as in the Estimator."""

    def __init__(self, model_fn):
        super().__init__()
        self.model_fn = model_fn

    @tf_v1.keras.utils.track_tf1_style_variables
    def __call__(self, features, labels, mode, params):
        # Enters the root scope again, so that every call finds the variables of the first call.
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False,
                                  custom_getter=_without_partitioner):
            return self.model_fn({arguments})


def _without_partitioner(getter, *args, partitioner=None, **kwargs):
    return getter(*args, partitioner=None, **kwargs)
'''

TRAINER = '''\
class Trainer:
    """Tables, forward pass, optimizers, and the loops around them."""

''' + trainer_text.CONSTRUCTOR + '''\
        self.global_step = tf_v2.Variable(0, dtype=tf_v2.int64, trainable=False)
        self.feature_config = embedding_config.feature_config(self.global_step)
        self.embedding = mid_level.TPUEmbedding(
            self.feature_config, None,
            pipeline_execution_with_tensor_core=embedding_config.PIPELINED)
        self.embedding.build(per_replica_batch_size=train_batch_size)
        self.forward = Forward(model_fn)
        self.learning_rate = tf_v2.Variable(0.0, trainable=False)
        self.optimizer = make_optimizer(self.learning_rate, self.params)
        self.checkpoint = None

''' + trainer_text.TRAIN + '''\
    @tf_v2.function
    def train_step(self, features, labels):
        """Looks up, computes the loss, and updates tables and dense variables."""
        ids, weights = _ids_and_weights(features, self.feature_config)
        self.embedding.enqueue(ids, weights, training=True)
        with tf_v2.GradientTape() as tape:
            activations = self.embedding.dequeue()
            tape.watch(activations)
            loss = self.forward({**features, **_lengths(ids), **activations}, labels,
                                ModeKeys.TRAIN, self.params).loss
        variables = self.forward.trainable_variables
        table_gradients, gradients = tape.gradient(loss, (activations, variables))
        table_gradients = {name: self._multiplied(name, gradient)
                           for name, gradient in table_gradients.items()}
        self.learning_rate.assign(dense_learning_rate(self.global_step, self.params))
        self.embedding.apply_gradients(table_gradients)
        self.optimizer.apply_gradients(zip(gradients, variables), global_step=self.global_step)
        return loss

    def _multiplied(self, feature, gradient):
        scale = _multiplier(self.feature_config[feature].table.name, self.global_step)
        return gradient if scale is None else scale * gradient

''' + trainer_text.evaluate_and_predict(
    "self._look_up_and_run") + '''\
    def restore_estimator_checkpoint(self, path, input_fn):
        """Restores a checkpoint of the Estimator: tables, slots, dense variables, step."""
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        reader = tf_v2.train.load_checkpoint(path)
        for name, variable in self.embedding._trackable_children().items():
            if name in embedding_config.TABLE_VARIABLES:
                variable.assign(reader.get_tensor(embedding_config.TABLE_VARIABLES[name]))
        for variable in (*self.forward.variables, *self.optimizer.variables()):
            variable.assign(reader.get_tensor(variable.name[:-2]))
        self.global_step.assign(reader.get_tensor("global_step"))

''' + trainer_text.DATASET + '''\
    def _build(self, batch):
        """Creates the dense variables and their slots, and restores the last checkpoint."""
        if self.checkpoint is not None:
            return
        features, labels = batch
        # Not in mode TRAIN, in which batch normalization would update its averages.
        self._look_up_and_run(features, labels, ModeKeys.EVAL)
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False):
            self.optimizer._create_slots(self.forward.trainable_variables)
        self.checkpoint = tf_v2.train.Checkpoint(
            embedding=self.embedding, forward=self.forward, global_step=self.global_step,
            optimizer=_Variables(self.optimizer.variables()))
''' + trainer_text.CHECKPOINTS + '''\
    def _look_up_and_run(self, features, labels, mode):
        ids, weights = _ids_and_weights(features, self.feature_config)
        activations = {}
        for name, value in ids.items():
            activations.update(mid_level.serving_embedding_lookup(
                {name: value}, None if weights is None or weights[name] is None
                else {name: weights[name]}, self.embedding.embedding_tables,
                {name: self.feature_config[name]}))
            if isinstance(value, tf_v2.Tensor) and value.shape.rank == 2:
                activations[name] = tf_v2.squeeze(activations[name], axis=1)
        return self.forward({**features, **_lengths(ids), **activations}, labels, mode,
                            self.params)

'''

# Functions and a class after the Trainer, in every stage.
HELPERS = '''\
def _ids_and_weights(features, feature_config):
    """Returns feature -> ids, and feature -> weights, or None if no feature has weights."""
    ids = {name: _without_padding(name, features[name]) for name in feature_config
           if name in features}
    keys = embedding_config.WEIGHT_KEYS
    return ids, {name: features[keys[name]] if name in keys else None
                 for name in ids} if keys else None


def _without_padding(name, ids):
    """Drops zeros of dense ids that are combined, which the Estimator treated as padding."""
    if not isinstance(ids, tf_v2.Tensor) or name in embedding_config.ONE_ID_FEATURES:
        return ids
    return tf_v2.sparse.from_dense(ids if ids.shape.rank > 1 else ids[:, tf_v2.newaxis])


def _multiplier(table, step):
    """Returns the gradient multiplier of a table; None means 1."""
    multiplier = getattr(embedding_config, "TABLE_MULTIPLIERS", {}).get(
        table, getattr(embedding_config, "GRADIENT_MULTIPLIER", None))
    return None if multiplier is None else tf_v2.cast(multiplier(step), tf_v2.float32)


class _Variables(tf_v2.Module):
    """Variables by their names, for checkpoints."""

    def __init__(self, variables):
        super().__init__()
        self.by_name = {variable.name[:-2].replace("/", "."): variable for variable in variables}


def _lengths(ids):
    """Returns the lengths of sequences, at most max_sequence_length."""
    lengths = {}
    config = embedding_config.feature_config()
    for name, value in ids.items():
        limit = config[name].max_sequence_length
        if limit:
            if isinstance(value, tf_v2.SparseTensor):
                value = tf_v2.RaggedTensor.from_sparse(value)
            lengths[name + "_seq_length_"] = tf_v2.minimum(value.row_lengths(), limit)
    return lengths


def _metrics(metric_fn, batches):
    """Computes the metrics of the legacy metric function over arrays of all batches."""
    with tf_v1.Graph().as_default(), tf_v1.Session() as session:
        tensors = tf_v2.nest.map_structure(
            lambda value: tf_v1.placeholder(value.dtype, [None, *value.shape[1:]]
                                            if value.ndim else []), batches[0])
        results = (metric_fn(**tensors) if isinstance(tensors, dict) else metric_fn(*tensors))
        session.run([tf_v1.local_variables_initializer(), tf_v1.tables_initializer()])
        updates = [update for _, update in results.values()]
        for batch in batches:
            session.run(updates, dict(zip(tf_v2.nest.flatten(tensors),
                                          tf_v2.nest.flatten(batch))))
        return session.run({name: value for name, (value, _) in results.items()})
'''
