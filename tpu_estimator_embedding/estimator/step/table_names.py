# SPDX-License-Identifier: Apache-2.0
"""The names of an estimator's tables in the graph and in checkpoints.

Those of feature columns follow from the variable scope in which the model_fn used them. When TF's
embedding columns are used in place of a table, they put the scope into a dictionary in a graph
collection. This package supplies the dictionary and fixes one case: Keras 2's `DenseFeatures` opens
name scopes only, so that the variable scope is empty and every table would be called
`embedding_weights`."""

import contextlib
import re
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc

from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.engine.variables import TableNames
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import COLUMN_TABLE_PREFIX

_NAME_IN_OWN_SCOPE = "embedding_weights"  # the name of an unshared table within its scope


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
    return scopes.get(table.name.removeprefix(COLUMN_TABLE_PREFIX))


def _slot_names(table: TablePlan, variable_name: str) -> dict[str, str]:
    return slot_variable_names(variable_name, table.optimizer.rule) if table.optimizer else {}


@contextlib.contextmanager
def record_scopes() -> Iterator[dict[str, str]]:
    """Yields a dictionary that is filled while a model_fn uses its columns.

    Keys are the columns' `get_embedding_var_name()`, values the full names that their
    tables have when the same columns run without a TPU.
    """
    graph = tf.compat.v1.get_default_graph()
    scopes = _Scopes()
    graph.clear_collection(tpu_fc._TPU_FC_TO_SCOPE)
    graph.add_to_collection(tpu_fc._TPU_FC_TO_SCOPE, scopes)
    try:
        yield scopes.full_names
    finally:
        graph.clear_collection(tpu_fc._TPU_FC_TO_SCOPE)


class _Scopes(dict[str, tuple[str, str]]):
    """Embedding variable name -> (variable scope, name in it), as TF's columns keep it.

    Attributes:
        full_names: embedding variable name -> full name of its table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full_names: dict[str, str] = {}

    def __setitem__(self, embedding_var_name: str, scope_and_name: tuple[str, str]) -> None:
        super().__setitem__(embedding_var_name, scope_and_name)
        scope, name = scope_and_name
        if name == _NAME_IN_OWN_SCOPE and not _is_scope_of_column(scope, embedding_var_name):
            scope = tf.compat.v1.get_default_graph().get_name_scope() or scope
        self.full_names[embedding_var_name] = "/".join(part for part in (scope, name) if part)


def _is_scope_of_column(scope: str, embedding_var_name: str) -> bool:
    column_scope = re.sub(r"[^A-Za-z0-9_.\\-]", "_", f"{embedding_var_name}_embedding")
    return scope.rpartition("/")[2].startswith(column_scope)
