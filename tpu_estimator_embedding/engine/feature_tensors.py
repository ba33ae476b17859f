# SPDX-License-Identifier: Apache-2.0
"""Converts the enqueued data of a feature to tensors, with static checks."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor


def check_features(plan: EmbeddingPlan, given: Mapping[str, object]) -> None:
    """Raises ValueError unless there is one entry for each feature of the plan."""
    expected = {feature.name for feature in plan.features}
    missing, extra = sorted(expected - set(given)), sorted(set(given) - expected)
    checks.check(not missing and not extra, "features",
                 f"exactly {sorted(expected)}", sorted(given),
                 f"Missing: {missing}. Not configured: {extra}.")


def feature_tensors(feature: FeaturePlan, data: Any) -> EnqueueData | RaggedEnqueueData:
    """Converts ids and places to int32 or int64, and weights to float32; None stays None.

    Raises:
        TypeError: if `data` is neither an EnqueueData nor a RaggedEnqueueData.
        ValueError: if ids are not integers, or a sequence has no positions.
    """
    name = feature.name
    checks.check_type((EnqueueData, RaggedEnqueueData), f"ids of feature {name!r}",
                      "an EnqueueData or RaggedEnqueueData", data,
                      "Make it with EnqueueData.from_sparse_tensor for instance.")
    ids, places, weights = data
    ids = tf.convert_to_tensor(ids)
    checks.check(ids.dtype.is_integer, f"ids of feature {name!r}", "integers",
                 ids.dtype.name, "Map strings to ids in input_fn, with tf.lookup for instance.")
    if places is not None:
        places = _of_usual_width(tf.convert_to_tensor(places))
    if feature.max_sequence_length:
        has_positions = places is not None and (
            isinstance(data, RaggedEnqueueData) or
            (places.shape.rank == 2 and tf.compat.dimension_value(places.shape[1]) != 1))
        checks.check(has_positions, f"ids of sequence feature {name!r}",
                     "ragged, or sparse with sample indices [n, 2]",
                     None if places is None else f"sample indices {places.shape}")
    return type(data)(_of_usual_width(ids), places, sparse_ids.flat_weights(weights))


def _of_usual_width(numbers: Tensor) -> Tensor:
    return numbers if numbers.dtype in (tf.int32, tf.int64) else tf.cast(numbers, tf.int64)
