# SPDX-License-Identifier: Apache-2.0
"""The variables of an engine by table, in the tuples of the v1 API."""

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.engine.variables import TableNames, TableVariables
from tpu_estimator_embedding.optimizers.registry import records
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor

VariablesAndOps = namedtuple("VariablesAndOps", [
    "embedding_variables_by_table", "slot_variables_by_table", "load_ops", "retrieve_ops"])
VariablesAndOps.__doc__ = """The variables of an engine, with their load and retrieve ops.

Attributes:
    embedding_variables_by_table: table name -> its parts, one variable per host.
    slot_variables_by_table: table name -> tuple of the parts of every slot, such as
        AdamSlotVariables; None if the optimizer has no slots.
    load_ops: function without arguments that returns ops to run after variables were
        initialized or restored. The engine reads the variables in place, so nothing is copied;
        a delayed update is dropped.
    retrieve_ops: function without arguments that returns ops to run before variables are
        saved. They apply a delayed update; otherwise the variables are up to date.
"""

# Name of the tuple -> the tuple; all of them are names of this module. Fields are in the order of
# the slots of the update rule, as in `*SlotVariableNames`.
SLOT_VARIABLES: Mapping[str, Any] = {
    record.slot_variables: namedtuple(
        record.slot_variables, [slot.field for slot in record.slots], module=__name__)
    for record in records(with_slots=True)}

globals().update(SLOT_VARIABLES)


def name_variables(
        plan: EmbeddingPlan, names: Mapping[str, str] | None,
        slot_names: Mapping[str, tuple[str, ...] | None] | None) -> dict[str, TableNames]:
    """Returns table name -> names of its variables.

    Args:
        plan: the tables.
        names: table name -> name of its variable; by default the name of the table.
        slot_names: table name -> names of its slot variables, such as AdamSlotVariableNames;
            None for a table without slots. By default the names in TPUEstimator's checkpoints.

    Raises:
        ValueError: if a mapping lacks a table, or the names are not those of its slots.
    """
    tables = [table.name for table in plan.tables]
    for argument, given in (("embedding_variable_name_by_table", names),
                            ("slot_variable_names_by_table", slot_names)):
        needed = tables if given is names else [
            table.name for table in plan.tables if table.slot_initial_values]
        missing = [name for name in needed if given and name not in given]
        checks.check(not missing, argument, f"have all tables {needed}, or be None",
                     sorted(given or ()), f"Missing: {missing}.")
    return {table.name: TableNames(
        names[table.name] if names else table.name,
        _slot_names(table, slot_names.get(table.name)) if slot_names else _default_names(table))
        for table in plan.tables}


def slot_variables(table: TablePlan, variables: TableVariables) -> tuple[list[Tensor], ...] | None:
    """Returns the tuple of a table's slot variables; None if it has no slots."""
    if not variables.slots:
        return None
    return _tuple_of(table)(*(variables.slots[slot] for slot in table.slot_initial_values))


def _default_names(table: TablePlan) -> dict[str, str]:
    return slot_variable_names(table.name, table.optimizer.rule) if table.optimizer else {}


def _slot_names(table: TablePlan, given: tuple[str, ...] | None) -> dict[str, str]:
    slots = list(table.slot_initial_values)
    fields = _tuple_of(table)._fields if slots else ()
    checks.check(tuple(getattr(given, "_fields", ())) == fields,
                 f"slot_variable_names_by_table[{table.name!r}]",
                 f"a tuple with the fields {fields}" if slots else "None, it has no slots", given)
    return dict(zip(slots, given or (), strict=True))


def _tuple_of(table: TablePlan) -> Any:
    rule = table.optimizer.rule if table.optimizer else None
    return SLOT_VARIABLES[rule.record.slot_variables] if rule else None
