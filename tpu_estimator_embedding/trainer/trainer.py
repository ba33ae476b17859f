# SPDX-License-Identifier: Apache-2.0
"""A training loop of TF2 with the methods of TPUEstimator."""

import contextlib
import copy
import inspect
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.export_directory import write_export
from tpu_estimator_embedding.checkpoint.model_directory import translate_state_errors
from tpu_estimator_embedding.compat import legacy_keras
from tpu_estimator_embedding.mid_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.nests import own_containers
from tpu_estimator_embedding.trainer import columns, export, initial_values
from tpu_estimator_embedding.trainer.dense_optimizer import (
    DenseOptimizer,
    Gradient,
    is_slot,
    name_of,
)
from tpu_estimator_embedding.trainer.forward import Forward, ModeKeys, Outputs, only_needed
from tpu_estimator_embedding.trainer.metrics import StreamingMetrics, mean
from tpu_estimator_embedding.trainer.saving import NOT_GIVEN, Saving, read_values
from tpu_estimator_embedding.types import Structure, Tensor

SavingListener: TypeAlias = Callable[[int], object]


def check_steps(steps: int | None, max_steps: int | None = None) -> None:
    """Raises ValueError unless at most one limit is given, and is at least 1."""
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps. Give one of them.")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and value <= 0:
            raise ValueError(f"Must specify {name} > 0, given: {value}")


def check_no_sessions(**given: object) -> None:
    """Raises ValueError where hooks are given, which run in a session."""
    for name, value in given.items():
        if value:
            raise ValueError(
                f"`{name}` must be empty, got {value!r}: hooks run in a session, which TF2 does "
                "not have. Write what they do around the call, or in a subclass that overrides "
                "`train_step`.")


def listeners_of(saving_listeners: Sequence[SavingListener] | None) -> list[SavingListener]:
    """Returns functions to call after a save.

    Raises:
        ValueError: one is no function, such as a CheckpointSaverListener.
    """
    listeners = list(saving_listeners or ())
    for listener in listeners:
        checks.check(callable(listener), "saving_listeners", "functions of the step", listener,
                     "A CheckpointSaverListener needs a session, which TF2 does not have.")
    return listeners


def check_input(dataset: object) -> tf.data.Dataset:
    """Returns the result of an input_fn, which must be a Dataset."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError("`input_fn` must return a tf.data.Dataset, got "
                        f"{type(dataset).__name__}. Return the Dataset itself, without an "
                        "iterator.")
    return dataset


def warn_of_no_batch() -> None:
    """Logs that an input has ended before the first step."""
    tf.get_logger().warning("The input of train ended before the first step. Where batches drop "
                            "their remainder, it must have at least as many samples as a batch.")


Variables = dict[str, tf.Variable]


class Trainer:
    """Trains a forward function, and tables in a `mid_level.TPUEmbedding`.

    Dense variables, tables and slots have the names that they had in the Estimator, and
    `restore_estimator_checkpoint` continues from its checkpoints. A new Trainer continues from the
    newest checkpoint in `model_dir`, at the first batch of any method.

    A program that changes the gradients or the step derives a class and overrides
    `transform_gradients` or `train_step`.

    Args:
        model_fn: the forward function. It takes `features`, and any of `labels`, `mode` and
            `params`, and returns Outputs. Features with a table are activations `[batch, dim]`.
            Labels are None in PREDICT, and where an input function has none.
        embedding_config: the module `embedding_config` that `migrate --capture` writes.
        make_optimizer: takes a variable with the learning rate, and params; returns the optimizer
            of the dense variables, one of `tf.compat.v1.train` or of Keras 2.
        learning_rate: takes the global step, int64, and params; returns the rate of a step.
        params: what model_fn and input functions receive beside "use_tpu" and "batch_size".
        model_dir: where checkpoints are; None writes none.
        train_batch_size, eval_batch_size, predict_batch_size: `params["batch_size"]` of input
            functions.
        save_checkpoints_steps: steps from one checkpoint to the next.
        save_checkpoints_secs: seconds, instead of steps; 600 if neither is given. None
            for the one that is given saves no checkpoint, as with RunConfig.
        keep_checkpoint_max: number of checkpoints that stay; 0 or None means all.
        keep_checkpoint_every_n_hours: hours after each of which one checkpoint stays forever.
        log_step_count_steps: steps from one log line with the loss to the next; None logs none.
        tf_random_seed: seed of TensorFlow, and of initializers of Keras without one; None leaves
            both as they are.
        dense_slots: for an optimizer of Keras, attribute with the slots of all variables -> suffix
            of the slots in a checkpoint of the Estimator.

    Raises:
        ValueError: both `save_checkpoints_steps` and `save_checkpoints_secs` are given.

    Example: what `migrate --to tf2` writes::

        trainer = Trainer(model_fn, embedding_config, make_optimizer, dense_learning_rate,
                          model_dir="model", train_batch_size=64, eval_batch_size=64)
        trainer.train(input_fn, max_steps=1000)
        print(trainer.evaluate(input_fn, steps=10)["loss"])
    """

    def __init__(self, model_fn: Callable[..., Outputs], embedding_config: ModuleType,
                 make_optimizer: Callable[..., Any], learning_rate: Callable[..., Tensor],
                 params: Mapping[str, object] | None = None, model_dir: str | None = None, *,
                 train_batch_size: int | None = None, eval_batch_size: int | None = None,
                 predict_batch_size: int | None = None,
                 save_checkpoints_steps: int | None = NOT_GIVEN,
                 save_checkpoints_secs: float | None = NOT_GIVEN,
                 keep_checkpoint_max: int | None = 5,
                 keep_checkpoint_every_n_hours: float = 10000,
                 log_step_count_steps: int | None = 100, tf_random_seed: int | None = None,
                 dense_slots: Mapping[str, str] | None = None) -> None:
        checks.check_can_hold_checkpoints("model_dir", model_dir)
        if tf_random_seed is not None:
            tf.random.set_seed(tf_random_seed)
        self._seed = tf_random_seed
        self.model_dir = None if model_dir is None else os.fspath(model_dir)
        self.params = {**copy.deepcopy(dict(params or {})), "use_tpu": True}
        self.embedding_config = embedding_config
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.forward = Forward(model_fn)
        self._batch_sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
                             ModeKeys.PREDICT: predict_batch_size}
        self.optimizer = DenseOptimizer(make_optimizer, learning_rate, self.params,
                                        dense_slots or {})
        self._saving = Saving(self.model_dir, save_checkpoints_steps, save_checkpoints_secs,
                              keep_checkpoint_max, keep_checkpoint_every_n_hours,
                              log_step_count_steps, self._completed)
        self._built: set[str] = set()
        self._metric_fn: Callable[..., Mapping[str, tuple[Tensor, Tensor]]] | None = None
        self._train = tf.function(self.train_step, autograph=False, reduce_retracing=True)
        self._run = tf.function(self._outputs, autograph=False, reduce_retracing=True)
        self._make_tables()

    def train(self, input_fn: Callable[..., tf.data.Dataset], hooks: object = None,
              steps: int | None = None, max_steps: int | None = None,
              saving_listeners: Sequence[SavingListener] | None = None) -> "Trainer":
        """Trains for `steps` steps, or up to step `max_steps`, or until the input ends.

        Args:
            input_fn: takes `params`, and returns a Dataset of `(features, labels)` or of features.
            hooks: None or empty: hooks need a session, which TF2 does not have.
            steps: number of steps; None means no limit.
            max_steps: the global step to stop at; None means no limit.
            saving_listeners: functions of the global step, called after each checkpoint.

        Returns:
            The Trainer itself.

        Raises:
            ValueError: both limits or hooks are given, or a limit is below 1.
            TypeError: the input_fn returns no Dataset.
        """
        check_steps(steps, max_steps)
        check_no_sessions(hooks=hooks)
        listeners = listeners_of(saving_listeners)
        batches = iter(self._dataset(input_fn, ModeKeys.TRAIN))
        first = next(batches, None)
        if first is None:
            warn_of_no_batch()
            return self
        self._build(first, ModeKeys.TRAIN)
        stop = max_steps if steps is None else self._step() + steps
        loss = None
        for features, labels in itertools.chain([first], batches):
            if stop is not None and self._step() >= stop:
                break
            loss = self._train(features, labels)
            self._after_step(loss, listeners)
        if loss is not None:
            self._end_training(listeners)
        return self

    def train_step(self, features: columns.Features, labels: Structure) -> Tensor:
        """Looks up, computes the loss, updates tables and dense variables; returns the loss."""
        ids, weights = columns.ids_and_weights(features, self.feature_config, self.embedding_config)
        self.embedding.enqueue(ids, weights, training=True)
        with tf.GradientTape() as tape:
            activations = self.embedding.dequeue()
            tape.watch(activations)
            loss = self._forward(features, labels, ModeKeys.TRAIN, ids, activations).loss
        variables = self.forward.trainable_variables
        table_gradients, gradients = tape.gradient(loss, (activations, variables))
        self.embedding.apply_gradients({name: self._multiplied(name, gradient)
                                        for name, gradient in table_gradients.items()})
        self._apply_dense(gradients)
        return loss

    def transform_gradients(self, gradients: list[Gradient],
                            variables: list[tf.Variable]) -> list[Gradient]:
        """Returns the gradients of dense variables to apply; the same ones unless overridden.

        A model that clipped them::

            class ClippingTrainer(Trainer):
                def transform_gradients(self, gradients, variables):
                    return tf.clip_by_global_norm(gradients, 1.0)[0]
        """
        return gradients

    def evaluate(self, input_fn: Callable[..., tf.data.Dataset], steps: int | None = None,
                 hooks: object = None, checkpoint_path: str | None = None,
                 name: str | None = None) -> dict[str, Any]:
        """Returns the mean loss over batches, the metrics of metric functions, and the step.

        Args:
            input_fn: as for `train`.
            steps: number of batches; None evaluates all.
            hooks: None or empty.
            checkpoint_path: a checkpoint of this Trainer or of the Estimator to evaluate, in the
                place of the newest one.
            name: the results are written for TensorBoard to `eval` or `eval_NAME` in model_dir.

        Raises:
            ValueError: `steps` is below 1, hooks are given, or the input has no batch.
        """
        check_steps(steps)
        check_no_sessions(hooks=hooks)
        losses, metrics = [], None
        batches = self._dataset(input_fn, ModeKeys.EVAL).take(steps or -1)
        with self._reading(batches, ModeKeys.EVAL, checkpoint_path) as ready:
            for features, labels in ready:
                loss, arguments = self._run(features, labels, ModeKeys.EVAL)
                losses.append(float(loss))
                if self._metric_fn is not None:
                    arguments = _to_numpy(arguments)
                    metrics = metrics or StreamingMetrics(self._metric_fn, self._step())
                    metrics.update(arguments)
            step = self._step()
        if not losses:
            raise ValueError("`input_fn` gave no batch to evaluate.")
        results = {**(metrics.result() if metrics else {}),
                   "loss": mean(losses), "global_step": step}
        self._saving.write_results(results, self.eval_dir(name))
        return results

    def predict(self, input_fn: Callable[..., tf.data.Dataset],
                predict_keys: Sequence[str] | None = None, hooks: object = None,
                checkpoint_path: str | None = None,
                yield_single_examples: bool = True) -> Iterator[Structure]:
        """Yields the predictions of every sample, or of every batch.

        Args:
            input_fn: as for `train`.
            predict_keys: names of the predictions to yield; None means all.
            hooks: None or empty.
            checkpoint_path: a checkpoint to predict from, as for `evaluate`. Until the iterator
                has ended, the variables have its values.
            yield_single_examples: False yields whole batches.

        Raises:
            ValueError: hooks are given, or `predict_keys` names no prediction.
        """
        check_no_sessions(hooks=hooks)
        batches = self._dataset(input_fn, ModeKeys.PREDICT)
        with self._reading(batches, ModeKeys.PREDICT, checkpoint_path) as ready:
            for features, labels in ready:
                arrays = _selected(_to_numpy(self._run(features, labels, ModeKeys.PREDICT)),
                                   predict_keys)
                yield from _rows(arrays) if yield_single_examples else [arrays]

    def export_saved_model(self, export_dir_base: str,
                           serving_input_receiver_fn: Callable[[], Any],
                           assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
                           checkpoint_path: str | None = None) -> bytes:
        """Exports the forward function in PREDICT, in TensorFlow's own ops, for serving.

        Signatures, inputs and outputs are those that the Estimator exports, but every signature is
        one for Predict, the only kind that TF2 writes.

        Args:
            export_dir_base: the directory in which it creates a folder with the time as its name.
            serving_input_receiver_fn: makes placeholders, and returns a ServingInputReceiver.
            assets_extra: name in the folder `assets.extra` -> path of a file to copy.
            as_text: False: TF2 writes no SavedModels as text.
            checkpoint_path: a checkpoint to export, as for `evaluate`.

        Returns:
            The path of the new folder.

        Raises:
            ValueError: the model was not trained, the function returns no receiver, or `as_text` is
                True.
        """
        checks.check_can_be_directory("export_dir_base", export_dir_base)
        checks.check(not as_text, "as_text", "False", as_text, "TF2 writes no SavedModels as text.")
        self._build((export.features_spec(serving_input_receiver_fn), ()), ModeKeys.PREDICT)
        if checkpoint_path is None and self._step() == 0 and self.latest_checkpoint() is None:
            raise ValueError(f"Couldn't find trained model at {self.model_dir}. Call train() "
                             "before, or pass `checkpoint_path`.")
        exported = tf.Module()
        with self._values_of(checkpoint_path):
            served = export.serve(serving_input_receiver_fn, self._signatures)
            exported.saved = [*self.forward.variables, *self.embedding.embedding_tables.values(),
                              self.global_step, *served.resources]
            return write_export(export_dir_base, assets_extra, lambda path: tf.saved_model.save(
                exported, path, served.functions))

    @property
    def variables(self) -> Variables:
        """Every variable by its name in a checkpoint of the Estimator.

        Slots of an optimizer of Keras have none. Empty before the first batch.
        """
        if not self._built:
            return {}
        known = getattr(self.embedding_config, "TABLE_VARIABLES", {})
        found = {known.get(key, key): variable for key, variable in self._table_variables().items()}
        found.update({name_of(variable): variable for variable in
                      (*self.forward.variables, *self.optimizer.variables())})
        return {**found, "global_step": self.global_step}

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables, in the order of the alphabet.

        Raises:
            ValueError: there are none yet.
        """
        self._check_variables()
        return sorted(self.variables)

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable.

        Raises:
            ValueError: there are no variables yet.
            tf.errors.NotFoundError: there is none of that name.
        """
        self._check_variables()
        if name not in self.variables:
            raise tf.errors.NotFoundError(None, None, (
                f"Key {name} not found in checkpoint. The variables are {sorted(self.variables)}."))
        return np.asarray(self.variables[name].numpy())

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint in model_dir; None if there is none."""
        if not self.model_dir:
            return None
        with translate_state_errors(self.model_dir):
            return tf.train.latest_checkpoint(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str | None:
        """Returns the directory with the results of evaluations; None without model_dir."""
        folder = f"eval_{name}" if name else "eval"
        return self.model_dir and os.path.join(self.model_dir, folder)

    def restore_estimator_checkpoint(self, path: str,
                                     input_fn: Callable[..., tf.data.Dataset]) -> None:
        """Restores a checkpoint of the Estimator: tables, slots, dense variables, step.

        Args:
            path: `model.ckpt-1000`, for example.
            input_fn: its first batch makes the variables.
        """
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))), ModeKeys.TRAIN)
        self._restore(path)

    # What the stages differ in.

    def _make_tables(self) -> None:
        config = self.embedding_config
        self.feature_config = initial_values.with_own_draws(
            config.feature_config(self.global_step))
        self.embedding: Any = TPUEmbedding(
            self.feature_config, None, pipeline_execution_with_tensor_core=config.PIPELINED)
        self.embedding.build(per_replica_batch_size=self._batch_sizes[ModeKeys.TRAIN])

    def _completed(self) -> contextlib.AbstractContextManager[None]:
        """Makes a context in which a pipelined table has the last update."""
        return self.embedding._completed()

    def _end_training(self, listeners: Iterable[SavingListener]) -> None:
        self._table_variables()  # completes the update of a pipelined step
        self._called_if(self._saving.save(self._step()), listeners)

    def _table_variables(self) -> Variables:
        """Returns table, or "table/slot" -> variable, with every update."""
        return dict(self.embedding._trackable_children())

    def _saved(self) -> dict[str, object]:
        """Returns the objects in a checkpoint."""
        return {"embedding": self.embedding, "forward": self.forward,
                "global_step": self.global_step, "optimizer": self.optimizer.saved}

    def _lookup(self, ids: columns.Features, weights: columns.Weights | None,
                mode: str) -> dict[str, Tensor]:
        """Returns activations in a mode without training."""
        return dict(self.embedding.lookup_batch(ids, weights or {}))

    # What they share.

    def _after_step(self, loss: Tensor, listeners: Iterable[SavingListener]) -> None:
        self._called_if(self._saving.after_step(self._step(), loss), listeners)

    def _called_if(self, is_saved: bool, listeners: Iterable[SavingListener]) -> None:
        if is_saved and listeners:
            with self._completed():  # as in the checkpoint; training goes on without it
                for listener in listeners:
                    listener(self._step())

    def _forward(self, features: columns.Features, labels: Structure, mode: str,
                 ids: columns.Features, activations: Mapping[str, Tensor]) -> Outputs:
        given = columns.features_of_model(features, ids, activations, self.feature_config,
                                          self.embedding_config)
        # The model_fn may change them in place, which a tf.function refuses for its arguments.
        features, labels = own_containers((given, labels))
        is_without = mode == ModeKeys.PREDICT or isinstance(labels, tuple) and not labels
        return self.forward(features, None if is_without else labels, mode,
                            copy.deepcopy(self.params), self.global_step)

    def _outputs(self, features: columns.Features, labels: Structure, mode: str) -> Structure:
        """Returns the loss and the arguments of metrics; in PREDICT the predictions."""
        ids, weights = columns.ids_and_weights(features, self.feature_config, self.embedding_config)
        activations = self._lookup(ids, weights, mode)

        def results() -> Structure:
            outputs = self._forward(features, labels, mode, ids, activations)
            if mode == ModeKeys.PREDICT:
                return outputs.predictions
            if mode == ModeKeys.TRAIN or outputs.eval_metrics is None:
                return outputs.loss, ()
            self._metric_fn, arguments = outputs.eval_metrics
            return outputs.loss, arguments

        return results() if mode == ModeKeys.TRAIN else only_needed(results)

    def _signatures(self, received: export.Received) -> dict[str, export.Signature]:
        ids, weights = columns.ids_and_weights(received.features, self.feature_config,
                                               self.embedding_config)
        outputs = self._forward(received.features, (), ModeKeys.PREDICT, ids,
                                self._lookup(ids, weights, ModeKeys.PREDICT))
        return export.signatures_of(outputs.predictions, outputs.export_outputs, received.inputs)

    def _multiplied(self, feature: str, gradient: Tensor | None) -> Tensor | None:
        scale = columns.table_multiplier(self.feature_config[feature].table.name, self.global_step,
                                         self.embedding_config)
        return gradient if scale is None or gradient is None else scale * gradient

    def _apply_dense(self, gradients: list[Gradient]) -> None:
        variables = self.forward.trainable_variables
        self.optimizer.apply(self.transform_gradients(gradients, variables), variables,
                             self.global_step)

    def _dataset(self, input_fn: Callable[..., tf.data.Dataset], mode: str) -> tf.data.Dataset:
        params = {**copy.deepcopy(self.params), "batch_size": self._batch_sizes[mode]}
        given = {"params": params, "mode": mode}
        accepted = inspect.signature(input_fn).parameters
        dataset = check_input(input_fn(**{
            name: value for name, value in given.items() if name in accepted}))
        if isinstance(dataset.element_spec, tuple):
            return dataset
        return dataset.map(lambda features: (features, ()))

    def _build(self, batch: tuple[Structure, Structure], mode: str) -> None:
        """Makes the variables of a mode, and restores the newest checkpoint.

        Args:
            batch: features and labels, or their TypeSpecs.
            mode: one of ModeKeys.
        """
        if mode in self._built:
            return
        with legacy_keras.seed_initializers(self._seed):
            # Traces without running, because batch normalization would update its averages.
            self._run.get_concrete_function(*batch, mode)
        self._built.add(mode)
        if mode == ModeKeys.TRAIN:
            self._train.get_concrete_function(*batch)  # makes slots of what has a gradient
        self._saving.track(self._saved(), training=mode == ModeKeys.TRAIN)

    @contextlib.contextmanager
    def _reading(self, batches: tf.data.Dataset, mode: str,
                 checkpoint_path: str | None) -> Iterator[Iterable[tuple[Structure, Structure]]]:
        """Yields batches, while variables have the values of a checkpoint."""
        iterator = iter(batches)
        first = next(iterator, None)
        if first is None:
            yield ()
            return
        self._build(first, mode)
        with self._values_of(checkpoint_path):
            yield itertools.chain([first], iterator)

    @contextlib.contextmanager
    def _values_of(self, checkpoint_path: str | None) -> Iterator[None]:
        """Makes a context in which variables have the values of a checkpoint, or the newest."""
        with contextlib.ExitStack() as stack:
            if checkpoint_path is not None:
                stack.enter_context(self._restored(checkpoint_path))
            else:
                self._saving.restore_newer()
            self._table_variables()  # completes the update of a pipelined step
            yield

    @contextlib.contextmanager
    def _restored(self, path: str) -> Iterator[None]:
        """Restores a checkpoint, and afterwards the present values."""
        with tempfile.TemporaryDirectory() as directory:
            kept = tf.train.Checkpoint(**self._saved()).write(os.path.join(directory, "kept"))
            try:
                self._restore(path)
                yield
            finally:
                tf.train.Checkpoint(**self._saved()).read(kept).assert_existing_objects_matched()

    def _restore(self, path: str) -> None:
        values = read_values(path)
        if values is None:
            status = tf.train.Checkpoint(**self._saved()).read(path)
            status.assert_existing_objects_matched().expect_partial()  # the number of saves is left
            return
        for name, variable in self.variables.items():
            variable.assign(values(name))
        self.optimizer.restore_estimator_slots(values, self._step())
        left = [name for name in values.unread() if not self.optimizer.derives(name)
                and (ModeKeys.TRAIN in self._built  # else there are no slots yet
                     or not is_slot(name, self.forward.trainable_variables))]
        if left:
            tf.get_logger().warning(
                "Trainer has no variables for %s of the checkpoint %s, and does not restore them.",
                left, path)

    def _check_variables(self) -> None:
        if not self._built:
            raise ValueError(
                f"Could not find trained model in model_dir: {self.model_dir}. The first batch "
                "makes the variables and restores the newest checkpoint: call train, evaluate, "
                "predict or restore_estimator_checkpoint first.")

    def _step(self) -> int:
        return int(self.global_step.numpy())


def _to_numpy(structure: Structure) -> Structure:
    return tf.nest.map_structure(lambda value: value.numpy(), structure)


def _selected(arrays: Structure, keys: Sequence[str] | None) -> Structure:
    if keys is None or not isinstance(arrays, Mapping):
        return arrays
    keys = [keys] if isinstance(keys, str) else list(keys)
    found = {name: value for name, value in arrays.items() if name in keys}
    if not found:
        raise ValueError(f"Expected to run at least one output from {list(arrays)}, provided "
                         f"{keys}.")
    return found


def _rows(arrays: Structure) -> Iterator[Structure]:
    count = len(tf.nest.flatten(arrays)[0])
    for row in range(count):
        yield tf.nest.map_structure(lambda array, row=row: array[row], arrays)
