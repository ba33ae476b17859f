# SPDX-License-Identifier: Apache-2.0
"""Trains a Keras 3 model with a DistributedEmbedding as a TPUEstimator trained its model_fn.

Written by `tpu-estimator-embedding migrate --to keras3`; it belongs to your program now. The
model is an ordinary `keras.Model`, trained by `fit`, on the backends TensorFlow and JAX
(KERAS_BACKEND). TensorFlow reads the input (tf.data) on both.
"""

import json
import pathlib

import keras
import keras_rs
import tensorflow as tf

BACKEND = keras.backend.backend()
# What tables of a TPUEstimator can have, and those of this module cannot.
_UNKNOWN = ("LEARNING_RATES", "GRADIENT_LIMITS", "GRADIENT_MULTIPLIER", "TABLE_MULTIPLIERS")


def sigmoid_cross_entropy(labels, logits):
    """Returns the loss of each logit."""
    return keras.ops.binary_crossentropy(keras.ops.cast(labels, "float32"), logits,
                                         from_logits=True)


def softmax_cross_entropy(labels, logits):
    """Returns the loss of each example; labels are probabilities of classes."""
    return keras.ops.categorical_crossentropy(keras.ops.cast(labels, "float32"), logits,
                                              from_logits=True)


def sparse_softmax_cross_entropy(labels, logits):
    """Returns the loss of each example; labels are numbers of classes."""
    return keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def equal(labels, predictions):
    """Returns 1.0 where a prediction, in the type of the labels, is the label.

    One of them may have a last dimension of 1, as in tf.metrics.accuracy.
    """
    if len(labels.shape) == len(predictions.shape) + 1:
        labels = keras.ops.squeeze(labels, -1)
    elif len(predictions.shape) == len(labels.shape) + 1:
        predictions = keras.ops.squeeze(predictions, -1)
    if tuple(labels.shape[1:]) != tuple(predictions.shape[1:]):
        raise ValueError(f"labels and predictions of accuracy must have equal shapes, got "
                         f"{labels.shape} and {predictions.shape}.")
    return keras.ops.cast(keras.ops.equal(labels, keras.ops.cast(predictions, labels.dtype)),
                          "float32")


class KerasTraining:
    """A model with the methods `train`, `evaluate` and `predict` of TPUEstimator.

    Attributes:
        model: the `keras.Model`, once a batch was seen.
        optimizer: of all its variables.
    """

    def __init__(self, functions, embedding_config, *, model_dir=None, params=None,
                 train_batch_size=None, eval_batch_size=None, predict_batch_size=None,
                 save_checkpoints_steps=None, keep_checkpoint_max=5, tf_random_seed=None):
        """Stores how to make the model.

        Args:
            functions: the functions that model_fn became: forward, loss_of, predictions_of,
                new_metrics, metric_values, make_optimizer.
            embedding_config: the module with tables, features and optimizers.
            model_dir: a directory for checkpoints; training goes on from its newest.
            params: what the functions and input_fn get.
            train_batch_size, eval_batch_size, predict_batch_size: `params["batch_size"]`.
            save_checkpoints_steps: steps between checkpoints; None saves at the end only.
            keep_checkpoint_max: number of checkpoints to keep.
            tf_random_seed: seed of initial values and dropout.
        """
        (self._forward, self._loss_of, self._predictions_of, self._new_metrics,
         self._metric_values, self._make_optimizer) = functions
        self._config = embedding_config
        for name in _UNKNOWN:
            if getattr(embedding_config, name, None):
                raise NotImplementedError(f"embedding_config.{name} has no counterpart here, got "
                                          f"{getattr(embedding_config, name)!r}.")
        self._features = embedding_config.feature_config()
        self.model_dir = model_dir and str(pathlib.Path(model_dir).absolute())
        self.params = dict(params or {})
        self._batch_sizes = {"train": train_batch_size, "eval": eval_batch_size,
                             "infer": predict_batch_size}
        self._save_steps, self._keep = save_checkpoints_steps, keep_checkpoint_max
        self._seed = tf_random_seed
        self.model = self.optimizer = None
        self._read = []  # names of the model's inputs

    @property
    def step(self):
        """Number of training steps."""
        return 0 if self.optimizer is None else int(self.optimizer.iterations.numpy() if hasattr(
            self.optimizer.iterations, "numpy") else self.optimizer.iterations)

    def train(self, input_fn, *, steps=None, max_steps=None):
        """Trains for `steps` more steps, or until `max_steps`, or the end of the input."""
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps, got "
                             f"{steps} and {max_steps}.")
        batches = self._batches(input_fn, "train")
        left = steps if max_steps is None else max(0, max_steps - self.step)
        if left == 0:
            return self
        callbacks = [_Saving(self, self._save_steps)] if self.model_dir else []
        self.model.fit(batches, steps_per_epoch=_number(batches, left), verbose=2, shuffle=False,
                       callbacks=callbacks)
        return self

    def evaluate(self, input_fn, *, steps=None):
        """Returns metric -> value, the loss and the step among them."""
        batches = self._batches(input_fn, "eval")
        found = self.model.evaluate(batches, steps=_number(batches, steps), verbose=2,
                                    return_dict=True)
        return {**found, "global_step": self.step}

    def predict(self, input_fn):
        """Yields name -> value of each example."""
        for features, *_ in self._batches(input_fn, "infer"):
            outputs = self._predictions_of(self.model(features, training=False), self.params)
            values = {name: keras.ops.convert_to_numpy(value) for name, value in outputs.items()}
            for row in range(len(next(iter(values.values())))):
                yield {name: value[row] for name, value in values.items()}

    def build(self, input_fn):
        """Makes the model for the batches of an input; `train` does it, too."""
        self._batches(input_fn, "train")

    def _build(self, spec):
        """Makes the model for batches of a `tf.data` spec, and restores the newest checkpoint."""
        if self.model is not None:
            return
        if self._seed is not None:
            keras.utils.set_random_seed(self._seed)
        keras.backend.clear_session()  # layers get the names that they had in model_fn
        inputs = {name: _new_input(number, name, one)
                  for number, (name, one) in enumerate(spec.items())}
        ids = {name: inputs[name] for name in self._features}
        weights = {name: inputs[_weights(name)] for name in self._features}
        rows = keras_rs.layers.DistributedEmbedding(self._features)(ids, weights)
        features = _Features({**inputs, **rows})
        outputs = self._forward(features, self.params)
        used = {name: value for name, value in inputs.items()
                if name in (*ids, *map(_weights, ids)) or name in features.read}
        self._read = list(used)
        self.model = _Model(used, outputs, name="model")
        for layer in self.model.layers:
            if isinstance(layer, keras.layers.BatchNormalization) and len(layer.input.shape) > 3:
                raise NotImplementedError(
                    f"{layer.name} normalizes an input of {len(layer.input.shape)} dimensions. "
                    "TensorFlow applies Bessel's correction to the variance there: reshape it to "
                    "two dimensions, or stay at --to tf2.")
        self.model.set_functions(self._loss_of, self._metric_values, self._new_metrics(),
                                 self.params)
        self.optimizer = TableOptimizers(self._config.optimizers(),
                                         self._make_optimizer(self.params))
        self.model.compile(self.optimizer, jit_compile=BACKEND == "jax")
        self.optimizer.build(self.model.trainable_variables)
        if self.model_dir:
            newest = _newest(pathlib.Path(self.model_dir))
            if newest is not None:
                self.restore(newest)

    def save(self, path):
        """Saves model and optimizer: with Orbax on JAX, with tf.train.Checkpoint on TensorFlow."""
        if BACKEND == "jax":
            import orbax.checkpoint as ocp
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(path, _state(self.model))
        else:
            tf.train.Checkpoint(model=self.model).write(path)

    def restore(self, path):
        """Restores what `save` or `tpu-estimator-embedding checkpoint convert` wrote."""
        if BACKEND == "jax":
            import orbax.checkpoint as ocp
            with ocp.StandardCheckpointer() as checkpointer:
                self.model.set_state_tree(checkpointer.restore(path, _state(self.model)))
        else:
            tf.train.Checkpoint(model=self.model).read(path).assert_existing_objects_matched()

    def save_in_model_dir(self):
        """Saves in `model_dir`, under the number of the step, and removes the oldest."""
        directory = pathlib.Path(self.model_dir)
        record = directory / "checkpoints.json"
        known = json.loads(record.read_text()) if record.exists() else []
        name = f"step-{self.step}"
        if name in known:
            return
        directory.mkdir(parents=True, exist_ok=True)
        _remove(directory, name)  # which a killed process had not recorded
        self.save(str(directory / name))
        kept = [*known, name][-self._keep:] if self._keep else [*known, name]
        new = record.with_suffix(".new")
        new.write_text(json.dumps(kept))
        new.replace(record)
        for old in set(known) - set(kept):
            _remove(directory, old)

    def _batches(self, input_fn, mode):
        """Returns batches of (model's inputs, labels), for which it makes the model."""
        size = self._batch_sizes[mode] or self._batch_sizes["train"]
        given = {"params": {**self.params, "batch_size": size}, "mode": mode, "config": None}
        names = input_fn.__code__.co_varnames[:input_fn.__code__.co_argcount]
        batches = input_fn(**{name: given[name] for name in names if name in given})
        if not isinstance(batches, tf.data.Dataset):
            raise TypeError(f"input_fn must return a tf.data.Dataset, got {batches!r}.")
        batches = batches.map(self._prepared)
        self._build(batches.element_spec[0])
        return batches.map(self._of_model).prefetch(2)

    def _prepared(self, features, *labels):
        keys, of_tables = self._config.WEIGHT_KEYS, set(self._features)
        taken = of_tables | {keys[name] for name in of_tables if name in keys}
        inputs = {name: value for name, value in features.items() if name not in taken
                  and isinstance(value, tf.Tensor) and value.dtype != tf.string}
        for name in self._features:
            inputs[name], inputs[_weights(name)] = _padded(
                features[name], features[keys[name]] if name in keys else None,
                name in self._config.ONE_ID_FEATURES)
            rows = self._features[name].table.vocabulary_size
            tf.debugging.assert_less(  # JAX would look up another row
                inputs[name], rows, f"Ids of feature {name} must be below {rows}.")
        return (inputs, *labels)

    def _of_model(self, inputs, *labels):
        """Leaves out what the model does not read: Keras takes inputs by their order."""
        return ({name: inputs[name] for name in self._read}, *labels)


class TableOptimizers(keras.optimizers.Optimizer):
    """Trains each table with its own optimizer, and the other variables with the dense one.

    Tables and variables with equal settings share an optimizer. Gradients of an id that repeats
    in a batch are summed before they are used, as a TPU does.
    """

    def __init__(self, of_tables, dense, name="table_optimizers"):
        super().__init__(learning_rate=0.0, name=name)  # a rate that nothing uses
        self._of_tables, self._dense = of_tables, dense
        self._parts = []

    def build(self, variables):
        if self.built:
            return
        groups = {}  # settings -> optimizer, positions of its variables
        for position, variable in enumerate(variables):
            *_, table, name = ("", *variable.path.split("/"))
            one = self._of_tables.get(table, self._dense) if name == "embeddings" else self._dense
            settings = {**one.get_config(), "name": type(one).__name__}
            groups.setdefault(json.dumps(settings, default=str, sort_keys=True),
                              (one, []))[1].append(position)
        self._parts = list(groups.values())
        for one, positions in self._parts:
            one.build([variables[position] for position in positions])
        super().build(variables)

    @property
    def variables(self):
        return [*self._variables, *(variable for one, _ in self._parts
                                    for variable in one.variables)]

    def apply(self, grads, trainable_variables=None):
        variables = list(trainable_variables or self._trainable_variables)
        for one, positions in self._parts:
            one.apply([_summed(grads[position]) for position in positions],
                      [variables[position] for position in positions])
        self.iterations.assign_add(1)


class _RowOptimizer(keras.optimizers.Optimizer):
    """Changes the rows of a table that have a gradient, with the arithmetic of a TPU.

    A row whose gradient is 0 counts as one that no sample looks up, as the rows of padding do.
    """

    def __init__(self, learning_rate, slots, settings, *, is_lazy=True, **options):
        """Stores slot -> its initial value, and the settings that `get_config` returns."""
        super().__init__(learning_rate=learning_rate, **options)
        self._initial, self._settings, self._is_lazy = slots, settings, is_lazy

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._slots = self.add_optimizer_variables(
            variables, list(self._initial),
            [keras.initializers.Constant(value) for value in self._initial.values()])

    def get_config(self):
        return {**super().get_config(), **self._settings}

    def update_step(self, gradient, variable, learning_rate):
        places = [variable, *(of[self._get_variable_index(variable)] for of in self._slots)]
        ids = None
        if BACKEND == "tensorflow" and isinstance(gradient, tf.IndexedSlices):
            ids = gradient.indices if self._is_lazy else None
            gradient = tf.convert_to_tensor(gradient) if ids is None else gradient.values
        old = [keras.ops.convert_to_tensor(one) if ids is None else tf.gather(
            one.value if isinstance(one, keras.Variable) else one, ids) for one in places]
        new = self.updated(gradient, learning_rate, *old)
        if self._is_lazy:
            has_gradient = keras.ops.any(keras.ops.not_equal(gradient, 0.0), axis=-1,
                                         keepdims=True)
            new = [keras.ops.where(has_gradient, *pair) for pair in zip(new, old, strict=True)]
        for place, value in zip(places, new, strict=True):
            self.assign(place, value if ids is None else tf.IndexedSlices(value, ids))


class TableAdam(_RowOptimizer):
    """Adam of a TPU: no correction of the bias, rows without a gradient stay as they are.

        m = beta_1 m + (1 - beta_1) g,  v = beta_2 v + (1 - beta_2) g^2
        w = w - rate m / sqrt(v + epsilon^2)  or  rate m / (sqrt(v) + epsilon)
    """

    def __init__(self, learning_rate, beta_1, beta_2, epsilon, *, is_lazy=True,
                 sum_inside_sqrt=True, name=None, clipvalue=None):
        """Takes the settings of AdamParameters; without `is_lazy` all rows move at every step."""
        super().__init__(
            learning_rate, {"momentum": 0.0, "velocity": 0.0},
            {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "is_lazy": is_lazy,
             "sum_inside_sqrt": sum_inside_sqrt}, is_lazy=is_lazy, name=name, clipvalue=clipvalue)
        self._betas, self._epsilon, self._is_inside = (beta_1, beta_2), epsilon, sum_inside_sqrt

    def updated(self, gradient, rate, row, momentum, velocity):
        beta_1, beta_2 = self._betas
        momentum = beta_1 * momentum + (1.0 - beta_1) * gradient
        velocity = beta_2 * velocity + (1.0 - beta_2) * gradient * gradient
        scale = (keras.ops.sqrt(velocity + self._epsilon**2) if self._is_inside
                 else keras.ops.sqrt(velocity) + self._epsilon)
        return row - rate * momentum / scale, momentum, velocity


class TableFtrl(_RowOptimizer):
    """FTRL of a TPU, which computes the rows with a gradient only.

        a' = a + g^2,  z = z + g - (a'^-p - a^-p) w / rate
        w = (clip(z, -l1, l1) - z) / ((a'^-p + beta) / rate + 2 l2)
    """

    def __init__(self, learning_rate, learning_rate_power=-0.5, initial_accumulator_value=0.1,
                 l1_regularization_strength=0.0, l2_regularization_strength=0.0, beta=0.0, *,
                 multiply_linear_by_learning_rate=False, name=None, clipvalue=None):
        """Takes the settings of FtrlParameters; the last one has z and l1 times the rate."""
        settings = {"learning_rate_power": learning_rate_power,
                    "initial_accumulator_value": initial_accumulator_value,
                    "l1_regularization_strength": l1_regularization_strength,
                    "l2_regularization_strength": l2_regularization_strength, "beta": beta,
                    "multiply_linear_by_learning_rate": multiply_linear_by_learning_rate}
        super().__init__(learning_rate, {"accumulator": initial_accumulator_value, "linear": 0.0},
                         settings, name=name, clipvalue=clipvalue)
        self._power, self._beta = -learning_rate_power, beta
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength
        self._is_multiplied = multiply_linear_by_learning_rate

    def updated(self, gradient, rate, row, accumulator, linear):
        grown = accumulator + gradient * gradient
        power, before = grown**self._power, accumulator**self._power
        if self._is_multiplied:
            linear = linear + rate * gradient - (power - before) * row
            l1, scale = rate * self._l1, power + self._beta + 2.0 * rate * self._l2
        else:
            linear = linear + gradient - (power - before) * row / rate
            l1, scale = self._l1, (power + self._beta) / rate + 2.0 * self._l2
        row = (keras.ops.maximum(keras.ops.minimum(linear, l1), -l1) - linear) / keras.ops.where(
            scale == 0.0, 1.0, scale)
        return keras.ops.where(scale == 0.0, 0.0, row), grown, linear


class _Model(keras.Model):
    """A functional model with the loss and the metrics of a model_fn."""

    def set_functions(self, loss_of, metric_values, metrics, params):
        self._loss_of, self._metric_values, self._params = loss_of, metric_values, params
        self._named_metrics = metrics

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self._loss_of(y, y_pred, self._params)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for name, values in self._metric_values(y, y_pred, self._params).items():
            self._named_metrics[name].update_state(*values)
        return self.get_metrics_result()


class _Saving(keras.callbacks.Callback):
    def __init__(self, training, every):
        super().__init__()
        self._training, self._every, self._batches = training, every, 0

    def on_train_batch_end(self, batch, logs=None):
        self._batches += 1
        if self._every and self._batches % self._every == 0:
            self._save()

    def on_train_end(self, logs=None):
        self._save()

    def _save(self):
        if BACKEND == "jax":
            self.model.jax_state_sync()  # the state is in the loop of `fit`
        self._training.save_in_model_dir()


class _Features(dict):
    """Features that know which of them were read."""

    def __init__(self, values):
        super().__init__(values)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def _number(batches, limit):
    """Returns the number of batches up to a limit.

    Keras runs a step beyond the end of an input whose length it does not know, and on TensorFlow
    that step changes variables.
    """
    batches = batches if limit is None else batches.take(limit)
    known = int(batches.cardinality())
    if known == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The input has no end: pass `steps` or `max_steps`.")
    return known if known >= 0 else sum(1 for _ in batches)


def _summed(gradient):
    """Sums the gradients of ids that repeat; those of JAX are dense, and summed."""
    if BACKEND == "tensorflow" and isinstance(gradient, tf.IndexedSlices):
        ids, places = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
        return tf.IndexedSlices(sums, ids, gradient.dense_shape)
    return gradient


def _padded(ids, weights, has_one_id):
    """Returns dense ids and weights, 0 where there is no id.

    The width is a power of two, so that JAX compiles for few shapes. As for a TPUEstimator, zeros
    of dense ids are padding if ids are combined.
    """
    is_padded = isinstance(ids, tf.Tensor) and not has_one_id
    ids = _dense(ids, -1)
    ids = tf.where(ids == 0, -tf.ones_like(ids), ids) if is_padded else ids
    present = tf.cast(ids >= 0, tf.float32)
    weights = present if weights is None else present * tf.cast(_dense(weights, 0), tf.float32)
    width, size = 1, tf.shape(ids)[1]
    for power in range(1, 16):
        width = tf.where(size > 2**(power - 1), 2**power, width)
    room = [[0, 0], [0, tf.maximum(width, size) - size]]
    return (tf.pad(tf.cast(tf.maximum(ids, 0), tf.int32), room), tf.pad(weights, room))


def _dense(values, default):
    if isinstance(values, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(values), tf.cast(default, values.dtype))
    if isinstance(values, tf.RaggedTensor):
        return values.to_tensor(tf.cast(default, values.dtype))
    return values[:, tf.newaxis] if values.shape.rank == 1 else values


def _new_input(number, name, spec):
    """Returns the input of a feature, whose layer has another name: a layer may be `dense`, too."""
    tensor = keras.KerasTensor((None, *spec.shape[1:]), dtype=spec.dtype.name, name=name)
    return keras.layers.InputLayer(input_tensor=tensor, name=f"input_{number}").output


def _weights(feature):
    return f"weights_of_{feature}"


def _state(model):
    """Returns the variables of model and optimizer as a tree, without those of metrics."""
    state = model.get_state_tree()
    return {group: tree for group, tree in state.items() if group != "metrics_variables"}


def _newest(directory):
    record = directory / "checkpoints.json"
    known = json.loads(record.read_text()) if record.exists() else []
    return str(directory / known[-1]) if known else None


def _remove(directory, name):
    for path in sorted(directory.glob(f"{name}*"), reverse=True):
        if path.name == name or path.name.startswith(f"{name}."):
            for inner in sorted(path.rglob("*"), reverse=True) if path.is_dir() else []:
                inner.rmdir() if inner.is_dir() else inner.unlink()
            path.rmdir() if path.is_dir() else path.unlink()
