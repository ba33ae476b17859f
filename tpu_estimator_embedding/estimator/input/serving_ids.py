# SPDX-License-Identifier: Apache-2.0
"""Raw features of a served model: the vocabulary of their column maps strings to ids.

In training, an input_fn has to return ids. A serving request may have strings, which the
categorical column under each embedding column maps to ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc

from tpu_estimator_embedding.estimator.input import step_input
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def serving_input(plan: EmbeddingPlan, features: Any, labels: Any, *, training: bool,
                  columns: Sequence[Any], tensor_core_columns: Sequence[Any]
                  ) -> tuple[EmbeddingPlan, step_input.StepInput]:
    """Returns the plan of the features that are present, and their ids.

    Args:
        plan: the tables and features.
        features: those of a serving_input_receiver_fn; embedding features may be missing.
        labels: the labels of an exported training or evaluation.
        training: whether gradients will follow.
        columns: embedding columns of the plan.
        tensor_core_columns: columns whose padded ids the model_fn gets.
    """
    if isinstance(features, dict):
        plan = plan.restricted_to(features)
        features = look_up_vocabularies(columns, features)
    return plan, step_input.to_step_input(
        plan, [(features, labels)], training=training, tensor_core_columns=tensor_core_columns,
        portable=True)


def look_up_vocabularies(columns: Sequence[Any], features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features with the strings of embedding columns turned into ids.

    Args:
        columns: embedding columns.
        features: tensors by feature name.
    """
    cache = fc.FeatureTransformationCache(dict(features))
    ids = {}
    for column in columns:
        name = column.get_feature_key_name()
        if name in features and features[name].dtype == tf.string:
            ids[name] = cache.get(_unweighted(column.categorical_column), None)
    return {**features, **ids}


def _unweighted(column: Any) -> Any:
    while isinstance(column, fc.WeightedCategoricalColumn | fc.SequenceCategoricalColumn):
        column = column.categorical_column
    return column
