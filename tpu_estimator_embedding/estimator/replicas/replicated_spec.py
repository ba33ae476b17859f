# SPDX-License-Identifier: Apache-2.0
"""Tensors that a model passes to the host, gathered from all replicas.

Tensors of `eval_metrics` and `host_call` are concatenated along their first axis, so that
metrics are those of the whole batch. The loss of an evaluation is the mean over replicas;
in training the first replica's loss is reported, as on a TPU.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator import upstream

_EVAL = upstream.model_fn.ModeKeys.EVAL


def replica_tensors(spec: Any) -> dict[str, Any]:
    """Returns the nest of tensors of a spec that differ by replica.

    Raises:
        RuntimeError: if one of them is a scalar.
    """
    tensors: dict[str, Any] = {}
    if not isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        return tensors
    for name in ("eval_metrics", "host_call"):
        call = getattr(spec, name)
        if call is not None:
            tensors[name] = call[1]
            _check_have_batch(name, call[1])
    if spec.mode == _EVAL:
        tensors["loss"] = spec.loss
    return tensors


def _check_have_batch(name: str, tensors: Any) -> None:
    scalars = [tensor for tensor in map(tf.convert_to_tensor, tf.nest.flatten(tensors))
               if tensor.shape.rank == 0]
    if scalars:
        raise RuntimeError("All tensors outfed from TPU should preserve batch size dimension, but "
                           f"got scalar {scalars[0]}. Reshape a scalar of {name} to [1].")


def over_all_replicas(spec: Any, replicas: Sequence[dict[str, Any]]) -> Any:
    """Returns the spec with the tensors of all replicas instead of the first one's.

    Args:
        spec: the result of the model_fn.
        replicas: for every replica, its `replica_tensors`.
    """
    first = replicas[0]
    if not first:
        return spec
    changed: dict[str, Any] = {}
    for name in ("eval_metrics", "host_call"):
        if name in first:
            gathered = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0),
                                             *[tensors[name] for tensors in replicas])
            changed[name] = (getattr(spec, name)[0], gathered)
    if "loss" in first:
        changed["loss"] = tf.reduce_mean(tf.stack([tensors["loss"] for tensors in replicas]))
    # Constructed again, because the class caches host_call and eval_metrics.
    return type(spec)(**{**spec._asdict(), **changed})
