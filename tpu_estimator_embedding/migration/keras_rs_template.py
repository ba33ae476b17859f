# SPDX-License-Identifier: Apache-2.0
"""The text that a program gets in place of its TPUEstimator at the stage of Keras RS."""

# Names that the text binds at the top of the program, beside those of `tf2_template`.
BOUND = ("keras", "keras_rs")

IMPORTS = '''\
import os

# Tables are Keras 3's. The layers of the forward pass are those of Keras 2: both are chosen
# before TensorFlow is imported.
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

    def __init__(self, model_fn, params=None, model_dir=None, train_batch_size=None,
                 eval_batch_size=None, predict_batch_size=None, save_checkpoints_steps=1000,
                 keep_checkpoint_max=5):
        self.model_dir = model_dir
        self.params = {**(params or {}), "use_tpu": True}
        self.batch_sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
                            ModeKeys.PREDICT: predict_batch_size}
        self.save_checkpoints_steps = save_checkpoints_steps
        self.keep_checkpoint_max = keep_checkpoint_max
        self.global_step = tf_v2.Variable(0, dtype=tf_v2.int64, trainable=False)
        self.feature_config = embedding_config.feature_config()
        self.embedding = keras_rs.layers.DistributedEmbedding(self.feature_config)
        # On this machine the layer leaves the update of its tables to the program.
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

    def train(self, input_fn, steps=None, max_steps=None):
        """Trains for `steps` steps, or up to step `max_steps`."""
        batches = iter(self._dataset(input_fn, ModeKeys.TRAIN))
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        stop = max_steps if steps is None else int(self.global_step.numpy()) + steps
        for features, labels in batches:
            if stop is not None and self.global_step.numpy() >= stop:
                break
            loss = self.train_step(features, labels)
            if int(self.global_step.numpy()) % self.save_checkpoints_steps == 0:
                self._save(loss)
        self._save()

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

    def evaluate(self, input_fn, steps=None, name=None):
        """Returns the mean loss, the metrics of metric functions, and the step."""
        losses, batches, metric_fn = [], [], None
        for features, labels in self._dataset(input_fn, ModeKeys.EVAL).take(steps or -1):
            outputs = self._outputs(features, labels, ModeKeys.EVAL)
            losses.append(float(outputs.loss))
            if outputs.eval_metrics is not None:
                metric_fn, tensors = outputs.eval_metrics
                batches.append(tf_v2.nest.map_structure(lambda value: value.numpy(), tensors))
        metrics = _metrics(metric_fn, batches) if batches else {}
        return {**metrics, "loss": sum(losses) / len(losses),
                "global_step": int(self.global_step.numpy())}

    def predict(self, input_fn):
        """Yields the predictions of every sample."""
        for features, labels in self._dataset(input_fn, ModeKeys.PREDICT):
            outputs = self._outputs(features, labels, ModeKeys.PREDICT)
            arrays = {name: value.numpy() for name, value in outputs.predictions.items()}
            for row in range(len(next(iter(arrays.values())))):
                yield {name: array[row] for name, array in arrays.items()}

    def restore_estimator_checkpoint(self, path, input_fn):
        """Goes on from a checkpoint of the Estimator: tables, slots, dense variables, step."""
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

    def _dataset(self, input_fn, mode):
        dataset = input_fn({**self.params, "batch_size": self.batch_sizes[mode]})
        if not isinstance(dataset, tf_v2.data.Dataset):
            raise TypeError("input_fn must return a tf.data.Dataset, got "
                            f"{type(dataset).__name__}: hand-over.")
        if isinstance(dataset.element_spec, tuple):
            return dataset
        return dataset.map(lambda features: (features, ()))

    def _build(self, batch):
        """Makes all variables, and restores the last checkpoint."""
        if self.checkpoint is not None:
            return
        features, labels = batch
        # Not in training: batch normalization would move its averages.
        self._outputs(features, labels, ModeKeys.EVAL)
        for name, table in self.tables.items():
            self.table_optimizers[name].build([table])
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False):
            self.optimizer._create_slots(self.forward.trainable_variables)
        self.checkpoint = tf_v2.train.Checkpoint(
            forward=self.forward, global_step=self.global_step, embedding=self.embedding,
            table_optimizers=self.table_optimizers,
            optimizer=_Variables(self.optimizer.variables()))
        if self.model_dir:
            self.manager = tf_v2.train.CheckpointManager(
                self.checkpoint, self.model_dir, self.keep_checkpoint_max)
            if self.manager.latest_checkpoint:
                self.checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()

    def _save(self, loss=None):
        if self.model_dir:
            self.manager.save(checkpoint_number=int(self.global_step.numpy()))
        if loss is not None:
            print(f"step {int(self.global_step.numpy())}: loss {float(loss):.6g}")

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
    """Returns a sparse batch as a ragged one: Keras RS would look up id 0 in its gaps."""
    if not isinstance(value, tf_v2.SparseTensor):
        return value
    return tf_v2.RaggedTensor.from_value_rowids(
        value.values, value.indices[:, 0], nrows=value.dense_shape[0])


def _of_each_row_once(gradient):
    """Sums the gradients of an id that a batch has several times: Keras 3 does not."""
    ids, places = tf_v2.unique(gradient.indices)
    return tf_v2.IndexedSlices(
        tf_v2.math.unsorted_segment_sum(gradient.values, places, tf_v2.size(ids)), ids,
        gradient.dense_shape)


def _slots(optimizer):
    """Returns slot -> the variable of an optimizer of one table."""
    slots = {"accumulators": "_accumulators", "momenta": "_momentums",
             "velocities": "_velocities"}
    return {name: getattr(optimizer, attribute)[0] for name, attribute in slots.items()
            if getattr(optimizer, attribute, None)}
'''
