# SPDX-License-Identifier: Apache-2.0
"""Lowers an `EmbeddingConfigSpec` to an `EmbeddingPlan`."""

from typing import Any

from tpu_estimator_embedding.config.to_plan import to_plan, warn_of_profile_data
from tpu_estimator_embedding.feature_column.columns_to_configs import columns_to_configs
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def spec_to_plan(spec: Any, *, training: bool, num_hosts: int = 1) -> EmbeddingPlan:
    """Lowers the embeddings of a TPUEstimator to a plan.

    Columns for a TensorCore are not in the plan; a spec with no other columns gives a plan
    without tables.

    Args:
        spec: an EmbeddingConfigSpec, of this package or of tensorflow_estimator.
        training: whether the plan trains tables.
        num_hosts: parts into which every table is split.

    Raises:
        ValueError: as in `to_plan` and `columns_to_configs`.
        TypeError: if a column is an ordinary one, which only `use_tpu=False` can use.

    >>> from tpu_estimator_embedding.config.feature_config import FeatureConfig
    >>> from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
    >>> from tpu_estimator_embedding.config.table_config import TableConfig
    >>> from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
    >>> print(spec_to_plan(EmbeddingConfigSpec(
    ...     table_to_config_dict={"words": TableConfig(1000, 16)},
    ...     feature_to_config_dict={"title": FeatureConfig("words")},
    ...     optimization_parameters=AdagradParameters(0.1)), training=False))
    Embedding plan: 1 table, 1 feature, 1 host, partition 'div', 62.5 KiB
    table  rows  dim  combiner  optimizer  slots  rows per host     bytes  features
    words  1000   16  mean      -          -               1000  62.5 KiB  title
    """
    warn_of_profile_data(spec.profile_data_directory)
    tables, features = spec.table_to_config_dict, spec.feature_to_config_dict
    if not tables:
        tables, features = columns_to_configs(spec.feature_columns)
    return to_plan(
        tables, features, spec.optimization_parameters, training=training,
        partition_strategy=spec.partition_strategy, num_hosts=num_hosts,
        pipelined=spec.pipeline_execution_with_tensor_core,
        gradient_multiplier_fn=spec.experimental_gradient_multiplier_fn,
        table_multipliers=getattr(spec, "table_multipliers", None),  # TensorFlow's class lacks it
        clipping_limit=spec.clipping_limit)


def can_train(spec: Any) -> bool:
    """Whether every table of an EmbeddingConfigSpec has an optimizer.

    >>> from tpu_estimator_embedding.config.feature_config import FeatureConfig
    >>> from tpu_estimator_embedding.config.table_config import TableConfig
    >>> from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
    >>> can_train(EmbeddingConfigSpec(table_to_config_dict={"words": TableConfig(1000, 16)},
    ...                               feature_to_config_dict={"title": FeatureConfig("words")}))
    False
    """
    return spec.optimization_parameters is not None or all(
        table.optimization_parameters is not None
        for table in (spec.table_to_config_dict or {}).values())
