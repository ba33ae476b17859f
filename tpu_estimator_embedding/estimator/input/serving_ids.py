# SPDX-License-Identifier: Apache-2.0
"""Raw features of a served model: strings become ids by the vocabulary of their column.

In training, an input_fn has to give ids. A serving request may carry strings; the
categorical column under each embedding column knows what to do with them.
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
    """Returns the plan of the features that are there, and their ids.

    Args:
        plan: the tables and features.
        features: what a serving_input_receiver_fn gave; embedding features may be left out.
        labels: the labels of an exported training or evaluation.
        training: whether gradients will follow.
        columns: embedding columns of the plan.
        tensor_core_columns: columns whose ids the model_fn gets padded.
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
