# SPDX-License-Identifier: Apache-2.0
"""Converts the ids of a feature of a stack to rows of the stack, with TensorFlow's ops."""

import tensorflow as tf

from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import SparseIds, weights_or_ones, without_negative
from tpu_estimator_embedding.plan.stacked_feature import StackedFeature
from tpu_estimator_embedding.types import Tensor


def to_stack_rows(stacked: StackedFeature, ids: SparseIds, num_rows: Tensor) -> SparseIds:
    """Returns rows of the stack, whose weights contain the factors of the combiner.

    Tables of one stack may have different combiners, so the stack itself has none.

    Args:
        stacked: the table and its stack.
        ids: the checked ids of the feature.
        num_rows: scalar, rows of its activations.
    """
    ids = without_negative(ids)
    scales = row_scales(stacked.combiner, ids, num_rows)
    weights = ids.weights
    if scales is not None:
        weights = weights_or_ones(ids) * tf.gather(scales, ids.rows)
    return SparseIds(stacked.row(ids.ids), ids.rows, weights)
