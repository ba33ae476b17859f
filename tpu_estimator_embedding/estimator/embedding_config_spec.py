# SPDX-License-Identifier: Apache-2.0
"""The configuration of a TPUEstimator's embeddings, and its lowering to an `EmbeddingPlan`."""

import collections
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.config.feature_config import FeatureConfig, is_feature_config
from tpu_estimator_embedding.config.former_keywords import former_keywords
from tpu_estimator_embedding.config.optimization_parameters import (
    _OptimizationParameters,
    check_optimization_parameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig, is_table_config
from tpu_estimator_embedding.config.to_plan import (
    check_clipping_limit,
    to_plan,
    warn_of_profile_data,
)
from tpu_estimator_embedding.feature_column.column_checks import (
    check_tensor_core_columns,
    is_plain_column,
    is_tensor_core_column,
    is_tpu_column,
)
from tpu_estimator_embedding.feature_column.columns_to_configs import columns_to_configs
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.plan.partition_strategy import PARTITION_STRATEGIES
from tpu_estimator_embedding.types import FeatureColumn, Tensor

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./\\>-]*")  # of a variable outside of scopes

# Sentences of tensorflow_estimator, so that users find existing answers.
_NOT_ONE_WAY = ("Exactly one of `feature_columns` and the pair `feature_to_config_dict` and "
                "`table_to_config_dict` must be be specified.")
_NO_OPTIMIZER = "optimization_parameters must be an instance of type _OptimizationParameters."
_UNSUPPORTED_COLUMN = (
    "All feature columns must be supported types in (_TPUEmbeddingColumnV2, "
    "_TPUSharedEmbeddingColumnV2, EmbeddingColumn, SharedEmbeddingColumn, NumericColumn).")


class EmbeddingConfigSpec(collections.namedtuple("EmbeddingConfigSpec", [
        "feature_columns", "tensor_core_feature_columns", "optimization_parameters",
        "clipping_limit", "pipeline_execution_with_tensor_core",
        "experimental_gradient_multiplier_fn", "feature_to_config_dict",
        "table_to_config_dict", "partition_strategy", "profile_data_directory",
        "table_multipliers"])):
    """The embeddings of a model, given by columns or by two dictionaries.

    Arguments are all attributes except tensor_core_feature_columns.

    Attributes:
        feature_columns: columns made by `embedding_column` and `shared_embedding_columns`;
            None where the dictionaries are given.
        tensor_core_feature_columns: those of the given columns that the model's own
            optimizer trains on a TensorCore; they are removed from feature_columns.
        optimization_parameters: one of the `*Parameters`, for all tables that do not set their own.
        clipping_limit: limit of the absolute value of the summed gradient of every row,
            above 0, for tables whose `*Parameters` have no clip_gradient_min or
            clip_gradient_max. With use_gradient_accumulation=False it limits the sum of each
            replica, each of which updates the row. TensorFlow never read it.
        pipeline_execution_with_tensor_core: whether activations lack the update of the
            previous step.
        experimental_gradient_multiplier_fn: function of the global step that scales every
            embedding gradient. While it is 0, tables under SGD and Adagrad do not change;
            momenta, including Adam's, decay and still move the rows looked up.
        feature_to_config_dict: feature name -> FeatureConfig.
        table_to_config_dict: table name -> TableConfig.
        partition_strategy: "div" or "mod": which host holds which row.
        profile_data_directory: where a TPU keeps lookup statistics; ignored without a TPU,
            with a warning.
        table_multipliers: table, as a name, a glob (`user*`) or `re:` and a regular
            expression -> schedule of `tpu_estimator_embedding.multipliers`, number or text
            form, or None. It scales the gradients of these tables and overrides
            experimental_gradient_multiplier_fn. TensorFlow has no such argument. The
            attribute is a `TableMultipliers`.

    Raises:
        ValueError: if not exactly one of feature_columns and the pair of dictionaries is
            given, a feature refers to an unknown table, or a value is outside its range.
        TypeError: if a column or a config is of the wrong class; if `column` or `columns`
            is passed instead of feature_columns, as in older documentation.

    >>> import tensorflow as tf
    >>> from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
    >>> words = tf.feature_column.categorical_column_with_identity("words", 1000)
    >>> spec = EmbeddingConfigSpec(
    ...     feature_columns=[tf.compat.v1.tpu.experimental.embedding_column(words, 16)],
    ...     optimization_parameters=AdagradParameters(0.1))
    >>> len(spec.feature_columns), spec.tensor_core_feature_columns, spec.partition_strategy
    (1, [], 'div')
    """

    @former_keywords(column="passed as `feature_columns`", columns="passed as `feature_columns`")
    def __new__(cls, feature_columns: Sequence[FeatureColumn] | None = None,
                optimization_parameters: _OptimizationParameters | None = None,
                clipping_limit: float | None = None,
                pipeline_execution_with_tensor_core: bool = False,
                experimental_gradient_multiplier_fn: Callable[[Tensor], Tensor] | None = None,
                feature_to_config_dict: Mapping[str, FeatureConfig] | None = None,
                table_to_config_dict: Mapping[str, TableConfig] | None = None,
                partition_strategy: str = "div", profile_data_directory: str | None = None, *,
                table_multipliers: Multipliers = None) -> Self:
        _check_one_way(feature_columns, feature_to_config_dict, table_to_config_dict)
        checks.check_one_of("partition_strategy", PARTITION_STRATEGIES, partition_strategy,
                            sentence=f"Invalid partition_strategy {partition_strategy}. Must be "
                            'one of "mod" or "div".')
        check_clipping_limit(clipping_limit)
        checks.check_one_of("pipeline_execution_with_tensor_core", (True, False, None),
                            pipeline_execution_with_tensor_core)
        checks.check_callable_or_none("experimental_gradient_multiplier_fn",
                                      experimental_gradient_multiplier_fn, takes=["global_step"])
        engine_columns = tensor_core_columns = None
        if feature_columns:
            columns = _check_columns(feature_columns)
            check_optimization_parameters("optimization_parameters", optimization_parameters,
                                          sentence=_NO_OPTIMIZER)
            tensor_core_columns = [c for c in columns if is_tensor_core_column(c)]
            engine_columns = [c for c in columns if not is_tensor_core_column(c)]
            check_tensor_core_columns(tensor_core_columns, engine_columns)
        elif feature_to_config_dict and table_to_config_dict:
            feature_to_config_dict = dict(feature_to_config_dict)
            table_to_config_dict = dict(table_to_config_dict)
            _check_dictionaries(feature_to_config_dict, table_to_config_dict)
        return super().__new__(
            cls, engine_columns, tensor_core_columns, optimization_parameters, clipping_limit,
            pipeline_execution_with_tensor_core, experimental_gradient_multiplier_fn,
            feature_to_config_dict, table_to_config_dict, partition_strategy,
            profile_data_directory,
            None if table_multipliers is None else TableMultipliers.of(table_multipliers))

    def __getnewargs_ex__(self) -> tuple[tuple[object, ...], dict[str, object]]:
        # Copies call the constructor, which has one argument for both kinds of columns.
        columns = (self.feature_columns or []) + (self.tensor_core_feature_columns or [])
        return (columns or None, *self[2:-1]), {"table_multipliers": self.table_multipliers}


def check_spec(value: object) -> None:
    """Raises TypeError unless it is None or an EmbeddingConfigSpec of any package."""
    if value is not None and not hasattr(value, "tensor_core_feature_columns"):
        raise TypeError(checks.complaint(
            "embedding_config_spec", "an EmbeddingConfigSpec or None", value,
            other_api.estimator_import(value) or
            f"Make it with {other_api.ESTIMATOR_API}.EmbeddingConfigSpec."))


def own_spec(spec: EmbeddingConfigSpec) -> EmbeddingConfigSpec:
    """Returns the spec, of any package, with copies of its lists and dictionaries."""
    kinds = (("feature_columns", list), ("tensor_core_feature_columns", list),
             ("feature_to_config_dict", dict), ("table_to_config_dict", dict))
    return spec._replace(**{name: kind(getattr(spec, name)) for name, kind in kinds
                            if getattr(spec, name) is not None})


def _check_one_way(feature_columns: Iterable[FeatureColumn] | None,
                   features: Mapping[str, FeatureConfig] | None,
                   tables: Mapping[str, TableConfig] | None) -> None:
    given = [name for name, value in (
        ("feature_columns", feature_columns), ("feature_to_config_dict", features),
        ("table_to_config_dict", tables)) if value]
    checks.check_with_sentence(
        given in (["feature_columns"], ["feature_to_config_dict", "table_to_config_dict"]),
        _NOT_ONE_WAY, "Pass either feature_columns, or both feature_to_config_dict and "
        f"table_to_config_dict, got {given}.")


def _check_columns(feature_columns: Iterable[FeatureColumn]) -> list[FeatureColumn]:
    # A column is a tuple, but not one of columns.
    if _is_column(feature_columns) or not isinstance(feature_columns, Iterable):
        raise TypeError(checks.complaint("feature_columns", "a list of columns", feature_columns,
                                         sentence=_UNSUPPORTED_COLUMN))
    columns = list(feature_columns)
    for index, column in enumerate(columns):
        if not _is_column(column):
            raise TypeError(checks.complaint(
                f"feature_columns[{index}]", "an embedding column", column,
                other_api.estimator_import(column) or
                "Make it with tpu_estimator_embedding.embedding_column or "
                "shared_embedding_columns.", sentence=_UNSUPPORTED_COLUMN))
    return columns


def _is_column(value: object) -> bool:
    return is_tpu_column(value) or is_plain_column(value)


def _check_dictionaries(features: Mapping[str, FeatureConfig],
                        tables: Mapping[str, TableConfig]) -> None:
    for name, config in features.items():
        if not is_feature_config(config):
            raise TypeError(checks.complaint(
                f"feature_to_config_dict[{name!r}]", "a FeatureConfig", config,
                other_api.estimator_import(config),
                sentence=f"Config for feature {name} must be of type `FeatureConfig`."))
        checks.check_one_of(f"table_id of feature {name!r}", sorted(tables), config.table_id,
                            sentence=f"Feature {name} refers to table {config.table_id} which is "
                            "not in the table_to_config_dict.")
    for name, table in tables.items():
        if not is_table_config(table):
            raise TypeError(checks.complaint(
                f"table_to_config_dict[{name!r}]", "a TableConfig", table,
                other_api.estimator_import(table),
                sentence=f"Config for table {name} must be of type `TableConfig`."))


def spec_to_plan(spec: EmbeddingConfigSpec, *, training: bool, num_hosts: int = 1) -> EmbeddingPlan:
    """Lowers the embeddings of a TPUEstimator to a plan.

    Columns for a TensorCore are not in the plan; a spec with no other columns gives a plan
    without tables.

    Args:
        spec: an EmbeddingConfigSpec, of this package or of tensorflow_estimator.
        training: whether the plan trains tables.
        num_hosts: parts into which every table is split.

    Raises:
        ValueError: as in `to_plan` and `columns_to_configs`, or if no variable can have the name
            of a table.
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
    for name in tables:
        checks.check(bool(_NAME.fullmatch(str(name))), "name of a table",
                     r"of ASCII letters, digits and _./\>-, the first a letter, a digit or a dot",
                     name, "It names a variable. That of a column has the key of the column.")
    return to_plan(
        tables, features, spec.optimization_parameters, training=training,
        partition_strategy=spec.partition_strategy, num_hosts=num_hosts,
        pipelined=spec.pipeline_execution_with_tensor_core,
        gradient_multiplier_fn=spec.experimental_gradient_multiplier_fn,
        table_multipliers=getattr(spec, "table_multipliers", None),  # TensorFlow's class lacks it
        clipping_limit=spec.clipping_limit)


def can_train(spec: EmbeddingConfigSpec) -> bool:
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
