# SPDX-License-Identifier: Apache-2.0
"""The text that a program gets in place of its TPUEstimator at the stage of TF2."""

# Names that the text binds at the top of the program.
BOUND = ("Forward", "ModeKeys", "Outputs", "Trainer", "activations_of", "dense_learning_rate",
         "make_optimizer", "sequences_of", "tf_v1", "tf_v2", "typing", "embedding_config")

IMPORTS = '''\
import os

# The layers of the forward pass are those of Keras 2: chosen before TensorFlow is imported.
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
    """What the forward pass gives in a mode."""

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
    """The forward pass; its variables have the names that they had in the Estimator."""

    def __init__(self, model_fn):
        super().__init__()
        self.model_fn = model_fn

    @tf_v1.keras.utils.track_tf1_style_variables
    def __call__(self, features, labels, mode, params):
        # The root scope is entered anew, so that every call finds the variables of the first.
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False,
                                  custom_getter=_without_partitioner):
            return self.model_fn({arguments})


def _without_partitioner(getter, *args, partitioner=None, **kwargs):
    return getter(*args, partitioner=None, **kwargs)
'''

TRAINER = '''\
class Trainer:
    """Tables, forward pass, optimizers, and the loops around them."""

    def __init__(self, model_fn, params=None, model_dir=None, train_batch_size=None,
                 eval_batch_size=None, predict_batch_size=None, save_checkpoints_steps=1000,
                 keep_checkpoint_max=5):
        self.model_dir = model_dir
        self.params = {**(params or {}), "use_tpu": True}
        self.batch_sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
                            ModeKeys.PREDICT: predict_batch_size}
        self.save_checkpoints_steps = save_checkpoints_steps
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
        self.keep_checkpoint_max = keep_checkpoint_max

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

    def evaluate(self, input_fn, steps=None, name=None):
        """Returns the mean loss, the metrics of metric functions, and the step."""
        losses, batches, metric_fn = [], [], None
        for features, labels in self._dataset(input_fn, ModeKeys.EVAL).take(steps or -1):
            outputs = self._look_up_and_run(features, labels, ModeKeys.EVAL)
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
            outputs = self._look_up_and_run(features, labels, ModeKeys.PREDICT)
            arrays = {name: value.numpy() for name, value in outputs.predictions.items()}
            for row in range(len(next(iter(arrays.values())))):
                yield {name: array[row] for name, array in arrays.items()}

    def restore_estimator_checkpoint(self, path, input_fn):
        """Goes on from a checkpoint of the Estimator: tables, slots, dense variables, step."""
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        reader = tf_v2.train.load_checkpoint(path)
        for name, variable in self.embedding._trackable_children().items():
            if name in embedding_config.TABLE_VARIABLES:
                variable.assign(reader.get_tensor(embedding_config.TABLE_VARIABLES[name]))
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
        """Makes the dense variables, their slots, and restores the last checkpoint."""
        if self.checkpoint is not None:
            return
        features, labels = batch
        # Not in training: batch normalization would move its averages.
        self._look_up_and_run(features, labels, ModeKeys.EVAL)
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False):
            self.optimizer._create_slots(self.forward.trainable_variables)
        self.checkpoint = tf_v2.train.Checkpoint(
            embedding=self.embedding, forward=self.forward, global_step=self.global_step,
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

# Functions and a class below the Trainer, at every stage.
HELPERS = '''\
def _ids_and_weights(features, feature_config):
    """Returns feature -> ids, and feature -> weights or None where no feature has any."""
    ids = {name: _without_padding(name, features[name]) for name in feature_config
           if name in features}
    keys = embedding_config.WEIGHT_KEYS
    return ids, {name: features[keys[name]] if name in keys else None
                 for name in ids} if keys else None


def _without_padding(name, ids):
    """Drops the zeros of dense ids that are combined: the Estimator took them for padding."""
    if not isinstance(ids, tf_v2.Tensor) or name in embedding_config.ONE_ID_FEATURES:
        return ids
    return tf_v2.sparse.from_dense(ids if ids.shape.rank > 1 else ids[:, tf_v2.newaxis])


def _multiplier(table, step):
    """Returns what the gradients of a table are multiplied by; None for 1."""
    multiplier = getattr(embedding_config, "TABLE_MULTIPLIERS", {}).get(
        table, getattr(embedding_config, "GRADIENT_MULTIPLIER", None))
    return None if multiplier is None else tf_v2.cast(multiplier(step), tf_v2.float32)


class _Variables(tf_v2.Module):
    """Variables by their names, for checkpoints."""

    def __init__(self, variables):
        super().__init__()
        self.by_name = {variable.name[:-2].replace("/", "."): variable for variable in variables}


def _lengths(ids):
    """Returns the lengths of sequences, cut to what is looked up of them."""
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
