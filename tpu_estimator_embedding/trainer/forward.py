# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a program, and what it returns."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.trainer import initial_values
from tpu_estimator_embedding.types import Structure, Tensor

# A metric function of `tf.metrics`, and a dictionary or list of its arguments.
EvalMetrics = tuple[Callable[..., Mapping[str, tuple[Tensor, Tensor]]], Structure]


class ModeKeys:
    """The modes of a forward pass, as `tf.estimator.ModeKeys` names them."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


class Outputs(NamedTuple):
    """The outputs of a forward pass.

    Attributes:
        mode: one of ModeKeys.
        predictions: name -> `[batch, ...]`; needed in PREDICT.
        loss: float scalar; needed in TRAIN and EVAL.
        eval_metrics: a metric function of `tf.metrics`, and a dictionary or list of its arguments.
        export_outputs: signature of an export -> PredictOutput, ClassificationOutput or
            RegressionOutput; None exports the predictions.
    """

    mode: str
    predictions: Structure = None
    loss: Any = None
    eval_metrics: EvalMetrics | None = None
    export_outputs: Mapping[str, Any] | None = None


def only_needed(compute: Callable[[], Structure]) -> Structure:
    """Returns what a function computes, in a tf.function, and runs no more than that needs.

    A session of the Estimator runs nothing else either: without a train_op no updates of batch
    normalization, for example. A tf.function alone runs every op with an effect.
    """
    return tf.compat.v1.wrap_function(compute, [])()


class Forward(tf.Module):
    """Calls a forward function with the variables of its first call.

    A variable has the name that it had in the Estimator. In the function the graph has the
    collections that the Estimator's had: `tf.compat.v1.train.get_global_step` returns the given
    step, the losses of regularizers of variables are in `REGULARIZATION_LOSSES`, and variables in
    `TRAINABLE_VARIABLES`, except for those of Keras layers.

    Args:
        model_fn: takes `features`, and any of `labels`, `mode` and `params`; returns Outputs.
    """

    def __init__(self, model_fn: Callable[..., Outputs]) -> None:
        super().__init__()
        self._model_fn = model_fn
        self._accepted = frozenset(inspect.signature(model_fn).parameters)

    @tf.compat.v1.keras.utils.track_tf1_style_variables
    def __call__(self, features: Structure, labels: Structure, mode: str,
                 params: Mapping[str, object], global_step: tf.Variable) -> Outputs:
        """Returns the outputs of a batch in a mode, in the graph of a tf.function."""
        steps = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        steps[:] = [global_step]
        given = {"labels": labels, "mode": mode, "params": params, "config": None}
        getter = _Getter(is_training=mode == ModeKeys.TRAIN)
        # Enters the root scope again, so that every call finds the variables of the first call.
        with (_empty_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES),
              tf.variable_creator_scope(initial_values.create_variable),
              tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(),
                                          auxiliary_name_scope=False, custom_getter=getter.get)):
            outputs = self._model_fn(features, **{
                name: value for name, value in given.items() if name in self._accepted})
        getter.check()
        return outputs


@contextlib.contextmanager
def _empty_collection(name: str) -> Iterator[None]:
    """Empties a collection, which graphs of functions share with the graph around them."""
    collection = tf.compat.v1.get_collection_ref(name)
    kept = list(collection)
    collection.clear()
    try:
        yield
    finally:
        collection[:] = kept


class _Getter:
    """Gets variables without partitions, and collects them and the losses of their regularizers.

    The layers of tf.layers collect their own, once for each use of a variable.

    Args:
        is_training: whether the forward pass is in mode TRAIN.
    """

    def __init__(self, *, is_training: bool) -> None:
        self._is_training = is_training
        self._used: set[str] = set()
        self._places: dict[int, str] = {}  # where a loss would be that is collected again

    def get(self, getter: Callable[..., tf.Variable], name: str, *args: object,
            **options: Any) -> tf.Variable:
        """Returns a variable; adds the loss of its regularizer at its first use."""
        variable = getter(name, *args, **{**options, "partitioner": None})
        is_trained = options.get("trainable")
        if self._is_training and is_trained is not None and is_trained != variable.trainable:
            raise NotImplementedError(
                f"Variable {name!r} has trainable={variable.trainable} from an earlier mode, and "
                f"trainable={is_trained} in training, which a variable of TF2 cannot change. Call "
                "train before evaluate and predict, or make `trainable` independent of the mode.")
        if name not in self._used and variable.trainable:
            # Once, although the graph that makes a variable has collected it itself.
            trained = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
            if not any(one is variable for one in trained):
                trained.append(variable)
        losses, regularizer = _regularization_losses(), options.get("regularizer")
        if name in self._used:
            self._places[len(losses)] = name
        elif regularizer is not None:
            with tf.name_scope(f"{name}/Regularizer/"):  # `get_regularization_losses(scope)`
                loss = regularizer(variable)
            if loss is not None:
                losses.append(loss)
        self._used.add(name)
        return variable

    def check(self) -> None:
        """Refuses a loss that was collected again, with the layer that shares a variable."""
        again = [name for place, name in self._places.items()
                 if len(_regularization_losses()) > place]
        if again:
            raise NotImplementedError(
                f"Variable {again[0]!r} is shared by layers with a regularizer, whose loss the "
                "Estimator collected once and TF2 collects for each of them. Give the layers no "
                "regularizer, and add the loss of the variable in the forward function.")


def _regularization_losses() -> list[Tensor]:
    losses: list[Tensor] = tf.compat.v1.get_collection_ref(
        tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
    return losses
