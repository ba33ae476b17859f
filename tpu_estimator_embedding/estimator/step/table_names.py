# SPDX-License-Identifier: Apache-2.0
"""The names of an estimator's tables in the graph and in checkpoints."""

from collections.abc import Mapping

from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.engine.variables import TableNames
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan

_COLUMN_TABLE_PREFIX = "tbl_"  # of tables that come from feature columns


def name_tables(plan: EmbeddingPlan, scopes: Mapping[str, str] | None) -> dict[str, TableNames]:
    """Returns the names of the tables that the model_fn used.

    Args:
        plan: the tables.
        scopes: for tables of feature columns: the embedding variable name of a column ->
            full name of its table. None for tables configured by dictionary, which are
            named by their key.
    """
    return {table.name: TableNames(name, _slot_names(table, name)) for table in plan.tables
            if (name := _variable_name(table, scopes)) is not None}


def check_all_used(plan: EmbeddingPlan, names: Mapping[str, TableNames]) -> None:
    """Raises RuntimeError if the model_fn used no column of some table."""
    unused = [feature.name for feature in plan.features if feature.table not in names]
    if unused:
        raise RuntimeError(
            "`feature_columns` of the embedding_config_spec must all be used by model_fn, got "
            f"no use of the columns of {unused}. Apply DenseFeatures or input_layer to them, "
            "or leave them out of the spec.")


def _variable_name(table: TablePlan, scopes: Mapping[str, str] | None) -> str | None:
    if scopes is None:
        return table.name
    return scopes.get(table.name.removeprefix(_COLUMN_TABLE_PREFIX))


def _slot_names(table: TablePlan, variable_name: str) -> dict[str, str]:
    return slot_variable_names(variable_name, table.optimizer.rule) if table.optimizer else {}
