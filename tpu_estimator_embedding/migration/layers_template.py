# SPDX-License-Identifier: Apache-2.0
"""The code that replaces the TPUEstimator of a program in the stage "layers"."""

from tpu_estimator_embedding.migration import trainer_text

# Names that the code binds at the top of the program, besides those of `tf2_template`.
BOUND = ("Model", "Checkpoints")

TRAINER = '''\
class Model(tf_v2.keras.Model):
    """An embedding layer and the forward pass. `fit` trains both with their own optimizers."""

    def __init__(self, model_fn, params):
        super().__init__()
        self.params = params
        self.global_step = tf_v2.Variable(0, dtype=tf_v2.int64, trainable=False)
        self.feature_config = embedding_config.feature_config(self.global_step)
        self.embedding = mid_level.TPUEmbeddingLayer(
            self.feature_config, None,
            pipeline_execution_with_tensor_core=embedding_config.PIPELINED)
        self.forward = Forward(model_fn)
        self.learning_rate = tf_v2.Variable(0.0, trainable=False)
        self.dense_optimizer = make_optimizer(self.learning_rate, params)

    def run_forward(self, features, labels, mode):
        """Looks up ids, and returns the outputs of the forward pass."""
        ids, weights = _ids_and_weights(features, self.feature_config)
        activations = self.embedding(ids, weights, training=mode == ModeKeys.TRAIN)
        if mode == ModeKeys.TRAIN:
            activations = {name: self._with_multiplier(name, value)
                           for name, value in activations.items()}
        return self.forward({**features, **_lengths(ids), **activations}, labels, mode,
                            self.params)

    def _with_multiplier(self, feature, activations):
        scale = _multiplier(self.feature_config[feature].table.name, self.global_step)
        return activations if scale is None else _with_scaled_gradient(activations, scale)

    def train_step(self, data):
        """Runs one step of `fit`."""
        features, labels = data
        with tf_v2.GradientTape() as tape:
            loss = self.run_forward(features, labels, ModeKeys.TRAIN).loss
        variables = self.forward.trainable_variables
        # The layer updates its tables when the gradient of its variable is computed.
        _, gradients = tape.gradient(loss, (self.embedding.trainable_variables, variables))
        self.learning_rate.assign(dense_learning_rate(self.global_step, self.params))
        self.dense_optimizer.apply_gradients(
            zip(gradients, variables), global_step=self.global_step)
        return {"loss": loss}


class Checkpoints(tf_v2.keras.callbacks.Callback):
    """Saves every `steps` steps, and at the end of training."""

    def __init__(self, manager, steps):
        super().__init__()
        self.manager, self.steps = manager, steps

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.global_step.numpy()) % self.steps == 0:
            self.on_train_end()

    def on_train_end(self, logs=None):
        self.manager.save(checkpoint_number=int(self.model.global_step.numpy()))


class Trainer:
    """A Keras model with the methods of the legacy Estimator."""

''' + trainer_text.CONSTRUCTOR + '''\
        self.model = Model(model_fn, self.params)
        self.model.compile()
        self.checkpoint, self.callbacks = None, []

    def train(self, input_fn, steps=None, max_steps=None):
        """Trains for `steps` steps, or up to step `max_steps`."""
        dataset = self._dataset(input_fn, ModeKeys.TRAIN)
        self._build(next(iter(dataset)))
        if steps is None and max_steps is not None:
            steps = max(0, max_steps - int(self.model.global_step.numpy()))
        if steps != 0:
            self.model.fit(dataset, steps_per_epoch=steps, verbose=2, callbacks=self.callbacks)

''' + trainer_text.evaluate_and_predict(
    "self.model.run_forward", "self.model.global_step") + '''\
    def restore_estimator_checkpoint(self, path, input_fn):
        """Restores a checkpoint of the Estimator: tables, slots, dense variables, step."""
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        reader, model = tf_v2.train.load_checkpoint(path), self.model
        for name, variable in model.embedding._tables.variables.items():
            if name in embedding_config.TABLE_VARIABLES:
                variable.assign(reader.get_tensor(embedding_config.TABLE_VARIABLES[name]))
        for variable in (*model.forward.variables, *model.dense_optimizer.variables()):
            variable.assign(reader.get_tensor(variable.name[:-2]))
        model.global_step.assign(reader.get_tensor("global_step"))

''' + trainer_text.DATASET + '''\
    def _build(self, batch):
        """Creates the dense variables and their slots, and restores the last checkpoint."""
        if self.checkpoint is not None:
            return
        features, labels = batch
        model = self.model
        # Not in mode TRAIN, in which batch normalization would update its averages.
        model.run_forward(features, labels, ModeKeys.EVAL)
        with tf_v1.variable_scope(tf_v1.get_variable_scope(), auxiliary_name_scope=False):
            model.dense_optimizer._create_slots(model.forward.trainable_variables)
        self.checkpoint = tf_v2.train.Checkpoint(
            embedding=model.embedding, forward=model.forward, global_step=model.global_step,
            optimizer=_Variables(model.dense_optimizer.variables()))
        if self.model_dir:
            manager = tf_v2.train.CheckpointManager(
                self.checkpoint, self.model_dir, self.keep_checkpoint_max)
            self.callbacks = [Checkpoints(manager, self.save_checkpoints_steps)]
            if manager.latest_checkpoint:
                self.checkpoint.restore(manager.latest_checkpoint).assert_consumed()


@tf_v2.custom_gradient
def _with_scaled_gradient(value, scale):
    return tf_v2.identity(value), lambda gradient: (scale * gradient, None)
'''
