# SPDX-License-Identifier: Apache-2.0
"""Samples the ids in the input of a program, read as its TPUEstimator would read it."""

from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.estimator import upstream
from tpu_estimator_embedding.estimator.input.input_modes import read_input
from tpu_estimator_embedding.estimator.input.split_features import split_features
from tpu_estimator_embedding.experiments.id_statistics import BatchIds
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.runtime.capture import Captured

_TRAIN = upstream.model_fn.ModeKeys.TRAIN


def sample(captured: Captured, plan: EmbeddingPlan, count: int) -> list[dict[str, BatchIds]]:
    """Reads the ids of the first training steps; fewer if the input ends earlier.

    Args:
        captured: the estimator of a program that was stopped in `train`.
        plan: the plan of its tables.
        count: number of steps.
    """
    estimator = captured.estimator
    with tf.Graph().as_default(), estimator._ctx.with_mode(_TRAIN) as ctx:
        tf.compat.v1.train.create_global_step()
        keys = {key for feature in plan.features
                for key in (feature.name, feature.weight_key) if key is not None}
        call_input_fn = estimator._call_input_fn(captured.method_arguments["input_fn"], _TRAIN)
        reading = read_input(ctx, call_input_fn, keys, estimator._batch_axis)
        tensors = [_tensors(plan, features) for features, _ in reading.read()]
        initialize = [tf.compat.v1.global_variables_initializer(),
                      tf.compat.v1.local_variables_initializer(),
                      tf.compat.v1.tables_initializer()]
        if reading.initializer is not None:
            initialize.append(reading.initializer)
        with tf.compat.v1.Session() as session:
            for op in initialize:
                session.run(op)
            return _read(session, tensors, count)


def _read(session: Any, tensors: list[dict[str, Any]], count: int) -> list[dict[str, BatchIds]]:
    steps: list[dict[str, BatchIds]] = []
    for _ in tqdm.trange(count, desc="Sampling input", unit="batch"):
        try:
            replicas = session.run(tensors)
        except tf.errors.OutOfRangeError:
            break
        steps.append({name: _joined([replica[name] for replica in replicas])
                      for name in replicas[0]})
    return steps


def _tensors(plan: EmbeddingPlan, features: Any) -> dict[str, Any]:
    split = split_features(plan, features)
    return {name: (data.embedding_indices, _lengths(data, split.batch_size))
            for name, data in split.enqueue_datas.items()}


def _lengths(data: Any, batch_size: Any) -> Any:
    places: Any = data[1]
    if places is None:
        return tf.ones_like(data.embedding_indices)
    if isinstance(data, RaggedEnqueueData):
        return places[1:] - places[:-1]
    samples = places if places.shape.rank == 1 else places[:, 0]
    return tf.math.bincount(tf.cast(samples, tf.int32), minlength=tf.cast(batch_size, tf.int32))


def _joined(replicas: list[tuple[np.ndarray, np.ndarray]]) -> BatchIds:
    return BatchIds(*(np.concatenate(parts) for parts in zip(*replicas, strict=True)))
