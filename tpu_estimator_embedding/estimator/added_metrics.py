# SPDX-License-Identifier: Apache-2.0
"""`tf.estimator.add_metrics`, for a TPUEstimator too."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.estimator_spec import call_model_fn
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

# isort: split
# Only now, because importing TPUEstimator makes tensorflow_estimator importable.
from tensorflow_estimator.python.estimator import extenders

_ModeKeys = upstream.model_fn.ModeKeys
_add_metrics_to_estimator = extenders.add_metrics


def add_metrics(estimator: Any, metric_fn: Callable[..., Mapping[str, Any]]) -> Any:
    """Returns an estimator whose evaluation has the metrics of `metric_fn`, too.

    A TPUEstimator with the engine gives a TPUEstimator, which shares its directory. With several
    replicas, the metrics are those of the whole batch.

    Args:
        estimator: an Estimator or a TPUEstimator.
        metric_fn: function of any of `features`, `labels`, `predictions` and `config`: the
            features and labels of the model_fn, `[batch, ...]` each, and the predictions of its
            spec. Of a dictionary of features it gets what is dense and has a batch. It returns
            name -> metric, which overrides a metric of the model_fn.

    Raises:
        ValueError: if `metric_fn` takes another argument.
    """
    if not (isinstance(estimator, TPUEstimator) and estimator._use_engine):
        return _add_metrics_to_estimator(estimator, metric_fn)
    extenders._verify_metric_fn_args(metric_fn)
    model_fn = estimator._user_model_fn

    def with_metrics(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        spec = call_model_fn(model_fn, features, labels, mode, config, params, {})
        if mode != _ModeKeys.EVAL:
            return spec
        given = {"features": _dense(features), "labels": labels, "predictions": spec.predictions}
        if not isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
            return spec._replace(eval_metric_ops={
                **(spec.eval_metric_ops or {}), **_call(metric_fn, given, config)})
        # Constructed again, because the class caches eval_metrics.
        return type(spec)(**{**spec._asdict(), "eval_metrics": _both(
            spec.eval_metrics, metric_fn, given, config)})

    return estimator._with_model_fn(with_metrics)


def _both(own: Any, metric_fn: Callable[..., Any], given: Mapping[str, Any], config: Any) -> Any:
    """Returns `eval_metrics` of the model's own and of `metric_fn`.

    All tensors are arguments, so that they are those of all replicas.
    """
    own_fn, own_tensors = own or (None, ())
    used = {name: value for name, value in given.items()
            if name in upstream.fn_args(metric_fn) and value is not None}

    def metrics(own_tensors: Any, used: Mapping[str, Any]) -> dict[str, Any]:
        found: Mapping[str, Any] = {}
        if own_fn is not None:
            found = (own_fn(**own_tensors) if isinstance(own_tensors, Mapping)
                     else own_fn(*own_tensors))
        return {**found, **_call(metric_fn, {**dict.fromkeys(given), **used}, config)}

    return metrics, {"own_tensors": own_tensors, "used": used}


def _call(metric_fn: Callable[..., Any], given: Mapping[str, Any], config: Any) -> Any:
    return extenders._call_metric_fn(metric_fn, given["features"], given["labels"],
                                     given["predictions"], config)


def _dense(features: Any) -> Any:
    if not isinstance(features, Mapping):
        return features
    return {name: value for name, value in features.items()
            if all(isinstance(leaf, tf.Tensor) and leaf.shape.rank != 0
                   for leaf in tf.nest.flatten(value))}
