# SPDX-License-Identifier: Apache-2.0
"""The code that replaces the TPUEstimator of a program in the stage "keras-rs"."""

from tpu_estimator_embedding.migration import trainer_text

# Names that the code binds at the top of the program, besides those of `tf2_template`.
BOUND = ("keras", "keras_rs")

IMPORTS = '''\
import os

# Selects Keras 3 for the tables and Keras 2 for the layers of the forward pass, before TensorFlow
# is imported.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import typing

import tensorflow.compat.v1 as tf_v1
import tensorflow.compat.v2 as tf_v2
import keras_rs
import embedding_config
'''

TRAINER = '''\
class Trainer:
    """Tables of Keras RS, forward pass, optimizers, and the loops around them."""

''' + trainer_text.CONSTRUCTOR + '''\
        self.global_step = tf_v2.Variable(0, dtype=tf_v2.int64, trainable=False)
        self.feature_config = embedding_config.feature_config()
        self.embedding = keras_rs.layers.DistributedEmbedding(self.feature_config)
        # Without a TPU, the layer does not update its tables; the program does.
        self.table_optimizers = embedding_config.optimizers()
        self.forward = Forward(model_fn)
        self.learning_rate = tf_v2.Variable(0.0, trainable=False)
        self.optimizer = make_optimizer(self.learning_rate, self.params)
        self.checkpoint = None

    @property
    def tables(self):
        """The Keras variable of each table, by its name."""
        return {layer.name: layer.embeddings for layer in
                self.embedding._default_device_embedding_layers.values()}

''' + trainer_text.TRAIN + '''\
    @tf_v2.function
    def train_step(self, features, labels):
        """Looks up, computes the loss, and updates tables and dense variables."""
        with tf_v2.GradientTape() as tape:
            loss = self._outputs(features, labels, ModeKeys.TRAIN).loss
        tables, variables = self.tables, self.forward.trainable_variables
        table_gradients, gradients = tape.gradient(
            loss, ({name: table.value for name, table in tables.items()}, variables))
        for name, table in tables.items():
            self._update_table(name, table, table_gradients[name])
        self.learning_rate.assign(dense_learning_rate(self.global_step, self.params))
        self.optimizer.apply_gradients(zip(gradients, variables), global_step=self.global_step)
        return loss

    def _update_table(self, name, table, gradient):
        gradient, optimizer = _of_each_row_once(gradient), self.table_optimizers[name]
        values = gradient.values
        scale = _multiplier(name, self.global_step)
        values = values if scale is None else scale * values
        low, high = embedding_config.GRADIENT_LIMITS.get(name, (None, None))
        values = values if low is None else tf_v2.maximum(values, low)
        values = values if high is None else tf_v2.minimum(values, high)
        if name in embedding_config.LEARNING_RATES:
            optimizer.learning_rate.assign(
                embedding_config.LEARNING_RATES[name](self.global_step))
        optimizer.apply(
            [tf_v2.IndexedSlices(values, gradient.indices, gradient.dense_shape)], [table])

''' + trainer_text.evaluate_and_predict("self._outputs") + '''\
    def restore_estimator_checkpoint(self, path, input_fn):
        """Restores a checkpoint of the Estimator: tables, slots, dense variables, step."""
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        reader = tf_v2.train.load_checkpoint(path)
        for name, table in self.tables.items():
            table.assign(reader.get_tensor(embedding_config.TABLE_VARIABLES[name]))
            for slot, variable in _slots(self.table_optimizers[name]).items():
                variable.assign(reader.get_tensor(
                    embedding_config.TABLE_VARIABLES[f"{name}/{slot}"]))
        for variable in (*self.forward.variables, *self.optimizer.variables()):
            variable.assign(reader.get_tensor(variable.name[:-2]))
        self.global_step.assign(reader.get_tensor("global_step"))

''' + trainer_text.DATASET + '''\
    def _build(self, batch):
        """Creates all variables, and restores the last checkpoint."""
        if self.checkpoint is not None:
            return
        features, labels = batch
        # Not in mode TRAIN, in which batch normalization would update its averages.
        self._outputs(features, labels, ModeKeys.EVAL)
        for name, table in self.tables.items():
            self.table_optimizers[name].build([table])
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False):
            self.optimizer._create_slots(self.forward.trainable_variables)
        self.checkpoint = tf_v2.train.Checkpoint(
            forward=self.forward, global_step=self.global_step, embedding=self.embedding,
            table_optimizers=self.table_optimizers,
            optimizer=_Variables(self.optimizer.variables()))
''' + trainer_text.CHECKPOINTS + '''\
    def _outputs(self, features, labels, mode):
        ids, weights = _ids_and_weights(features, self.feature_config)
        looked_up = {name: _in_rows(value) for name, value in ids.items()}
        if weights is not None:
            weights = {name: _in_rows(weights[name]) if weights[name] is not None
                       else tf_v2.ones_like(value, tf_v2.float32)
                       for name, value in looked_up.items()}
        activations = self.embedding(looked_up, weights, training=mode == ModeKeys.TRAIN)
        return self.forward({**features, **activations}, labels, mode, self.params)


def _in_rows(value):
    """Converts a sparse batch to a ragged one: Keras RS would look up id 0 in the gaps."""
    if not isinstance(value, tf_v2.SparseTensor):
        return value
    return tf_v2.RaggedTensor.from_value_rowids(
        value.values, value.indices[:, 0], nrows=value.dense_shape[0])


def _of_each_row_once(gradient):
    """Sums the gradients of ids that repeat in a batch, which Keras 3 does not do."""
    ids, places = tf_v2.unique(gradient.indices)
    return tf_v2.IndexedSlices(
        tf_v2.math.unsorted_segment_sum(gradient.values, places, tf_v2.size(ids)), ids,
        gradient.dense_shape)


def _slots(optimizer):
    """Returns slot -> variable, for the optimizer of one table."""
    slots = {"accumulators": "_accumulators", "momenta": "_momentums",
             "velocities": "_velocities"}
    return {name: getattr(optimizer, attribute)[0] for name, attribute in slots.items()
            if getattr(optimizer, attribute, None)}
'''
