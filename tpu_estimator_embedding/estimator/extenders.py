# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.estimator` and `tf.contrib.estimator` that extend estimators and optimizers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.estimator_spec import call_model_fn
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

# isort: split
# Only now, because importing TPUEstimator makes tensorflow_estimator importable.
from tensorflow_estimator.python.estimator import extenders

from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure, Tensor

v1 = tf.compat.v1
_ModeKeys = upstream.model_fn.ModeKeys
_add_metrics_to_estimator = extenders.add_metrics


def add_metrics(estimator: upstream.estimator.Estimator,
                metric_fn: Callable[..., Mapping[str, Tensor]]) -> upstream.estimator.Estimator:
    """Returns an estimator whose evaluation has the metrics of `metric_fn`, too.

    A TPUEstimator with the engine gives a TPUEstimator, which shares its directory. With several
    replicas, the metrics are those of the whole batch.

    Args:
        estimator: an Estimator or a TPUEstimator.
        metric_fn: function of any of `features`, `labels`, `predictions` and `config`: the
            features and labels of the model_fn, `[batch, ...]` each, and the predictions of its
            spec. It gets the dense features of a dictionary that have a batch. It returns
            name -> metric, which overrides a metric of the model_fn.

    Raises:
        ValueError: if `metric_fn` takes another argument.
    """
    if not (isinstance(estimator, TPUEstimator) and estimator._use_engine):
        return _add_metrics_to_estimator(estimator, metric_fn)
    extenders._verify_metric_fn_args(metric_fn)
    model_fn = estimator._user_model_fn

    def with_metrics(features: Structure, labels: Structure, mode: str, config: RunConfig,
                     params: Structure) -> EstimatorSpec:
        spec = call_model_fn(model_fn, features, labels, mode, config, params, {})
        if mode != _ModeKeys.EVAL:
            return spec
        given = {"features": _dense_entries(features), "labels": labels,
                 "predictions": spec.predictions}
        if not isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
            return spec._replace(eval_metric_ops={
                **(spec._asdict()["eval_metric_ops"] or {}), **_call(metric_fn, given, config)})
        # Constructed again, because the class caches eval_metrics.
        return type(spec)(**{**spec._asdict(), "eval_metrics": _both(
            spec.eval_metrics, metric_fn, given, config)})

    return estimator._with_model_fn(with_metrics)


def _both(own: tuple[Callable[..., Mapping[str, Tensor]], Structure] | None,
          metric_fn: Callable[..., Mapping[str, Tensor]], given: Mapping[str, Structure],
          config: RunConfig) -> tuple[Callable[..., dict[str, Tensor]], dict[str, Structure]]:
    """Returns `eval_metrics` of the model's own and of `metric_fn`.

    All tensors are arguments, so that they are those of all replicas.
    """
    own_fn, own_tensors = own or (None, ())
    used = {name: value for name, value in given.items()
            if name in upstream.fn_args(metric_fn) and value is not None}

    def metrics(own_tensors: Structure, used: Mapping[str, Structure]) -> dict[str, Tensor]:
        found: Mapping[str, Tensor] = {}
        if own_fn is not None:
            found = (own_fn(**own_tensors) if isinstance(own_tensors, Mapping)
                     else own_fn(*own_tensors))
        return {**found, **_call(metric_fn, {**dict.fromkeys(given), **used}, config)}

    return metrics, {"own_tensors": own_tensors, "used": used}


def _call(metric_fn: Callable[..., Mapping[str, Tensor]], given: Mapping[str, Structure],
          config: RunConfig) -> Mapping[str, Tensor]:
    return extenders._call_metric_fn(metric_fn, given["features"], given["labels"],
                                     given["predictions"], config)


def _dense_entries(features: Structure) -> Structure:
    if not isinstance(features, Mapping):
        return features
    return {name: value for name, value in features.items()
            if all(isinstance(leaf, tf.Tensor) and leaf.shape.rank != 0
                   for leaf in tf.nest.flatten(value))}


def forward_features(
        estimator: upstream.estimator.Estimator, keys: str | Sequence[str] | None = None,
        sparse_default_values: Mapping[str, object] | None = None) -> upstream.estimator.Estimator:
    """Returns an estimator whose predictions contain features, such as the key of an example.

    Exported signatures that return the predictions return them, too.

    Args:
        estimator: an Estimator or a TPUEstimator; its predictions are a dictionary.
        keys: names of the features. None means all, except those of a TPUEstimator's tables,
            whose model_fn gets activations instead of ids.
        sparse_default_values: name of a sparse feature -> what stands for a missing value.

    Raises:
        TypeError: if `keys` is of another type.
        ValueError: when predicting: if a feature does not exist or is one of the tables, the model
            predicts something of the same name, or predictions are not a dictionary.
    """
    names = [keys] if isinstance(keys, str) else keys
    for name in names or ():
        checks.check_type(str, "keys", "a name or a list of names", name)
    defaults = dict(sparse_default_values or {})
    has_engine = isinstance(estimator, TPUEstimator) and estimator._use_engine
    of_tables = ({feature.name for feature in estimator._plan(training=False).features}
                 if has_engine else set())

    def extended(call: Callable[[], EstimatorSpec], features: Structure,
                 mode: str) -> EstimatorSpec:
        given = dict(features) if isinstance(features, Mapping) else features
        spec = call()
        if mode != _ModeKeys.PREDICT:
            return spec
        return _with_predictions(spec, {
            name: _dense(value, defaults.get(name))
            for name, value in _chosen(given, names, of_tables).items()})

    if has_engine:
        model_fn = estimator._user_model_fn

        def of_engine(features: Structure, labels: Structure, mode: str, config: RunConfig,
                      params: Structure) -> EstimatorSpec:
            return extended(lambda: call_model_fn(model_fn, features, labels, mode, config, params,
                                                  {}), features, mode)

        return estimator._with_model_fn(of_engine)

    def of_estimator(features: Structure, labels: Structure, mode: str,
                     config: RunConfig) -> EstimatorSpec:
        return extended(lambda: estimator.model_fn(features, labels, mode, config), features, mode)

    return upstream.estimator.Estimator(
        of_estimator, estimator.model_dir, estimator.config,
        warm_start_from=estimator._warm_start_settings)


def _chosen(features: Structure, names: Sequence[str] | None,
            of_tables: set[str]) -> dict[str, Tensor]:
    checks.check(isinstance(features, dict), "features", "a dictionary, so that features can be "
                 "forwarded by name", features)
    if names is None:
        return {name: value for name, value in features.items() if name not in of_tables}
    checks.check(not of_tables & set(names), "keys", "features that are not looked up in tables, "
                 "because model_fn gets their activations, not their "
                 "ids", sorted(of_tables & set(names)),
                 "Return the ids from input_fn a second time, under another name.")
    missing = [name for name in names if name not in features]
    checks.check(not missing, "keys", f"features, which are {sorted(features)}", missing)
    return {name: features[name] for name in names}


def _with_predictions(spec: Any, forwarded: Mapping[str, Tensor]) -> EstimatorSpec:
    checks.check(isinstance(spec.predictions, Mapping), "predictions",
                 "a dictionary, so that features can be added", spec.predictions)
    taken = sorted(forwarded.keys() & spec.predictions.keys())
    checks.check(not taken, "keys", "different from the names of predictions", taken)
    outputs = {
        name: (v1.estimator.export.PredictOutput({**output.outputs, **forwarded})
               if isinstance(output, v1.estimator.export.PredictOutput) else output)
        for name, output in (spec.export_outputs or {}).items()}
    return type(spec)(**{
        **spec._asdict(), "predictions": {**spec.predictions, **forwarded},
        "export_outputs": outputs or spec.export_outputs})


def _dense(value: Tensor | tf.SparseTensor, default: object) -> Tensor:
    if not isinstance(value, tf.SparseTensor):
        return value
    if default is None:
        return tf.sparse.to_dense(value)
    return tf.sparse.to_dense(value, default)


def clip_gradients_by_norm(optimizer: tf.compat.v1.train.Optimizer,
                           clip_norm: float) -> tf.compat.v1.train.Optimizer:
    """Returns an optimizer that scales gradients down to a global norm of at most `clip_norm`.

    `g := g * clip_norm / max(clip_norm, sqrt(sum of all g**2))`, then the update of `optimizer`.

    Args:
        optimizer: an optimizer of `tf.compat.v1.train`.
        clip_norm: the largest global norm, positive.
    """
    return _ClippingOptimizer(optimizer, clip_norm)


class _ClippingOptimizer(tf.compat.v1.train.Optimizer):
    """Clips the gradients that another optimizer applies."""

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, clip_norm: float) -> None:
        super().__init__(use_locking=False, name=f"ClipByNorm{optimizer.get_name()}")
        self._optimizer, self._clip_norm = optimizer, clip_norm

    def compute_gradients(self, *args: object,
                          **kwargs: object) -> list[tuple[Tensor | None, tf.Variable]]:
        """Computes the gradients of a loss, which are not clipped yet."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Tensor | None, tf.Variable]],
                        *args: object, **kwargs: object) -> tf.Operation:
        """Clips gradients by their global norm, and applies them."""
        pairs = list(grads_and_vars)
        clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], self._clip_norm)
        return self._optimizer.apply_gradients(
            [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs, strict=True)],
            *args, **kwargs)

    def get_slot(self, *args: object, **kwargs: object) -> tf.Variable | None:
        """Returns a slot of the other optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: object, **kwargs: object) -> list[str]:
        """Returns the names of the other optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the other optimizer."""
        return self._optimizer.variables()
