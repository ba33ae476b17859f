# SPDX-License-Identifier: Apache-2.0
"""Initializes tables and slots from another model's checkpoint.

TensorFlow's own warm start applies its pattern to trainable variables only, and tables of the
engine are not trainable. Here the same pattern also covers tables, and slots in the checkpoint.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.variables import TableNames, TableVariables


def warm_start_tables(settings: Any, names: Mapping[str, TableNames],
                      variables: Mapping[str, TableVariables]) -> list[str]:
    """Initializes matching tables and slots from a checkpoint.

    Args:
        settings: `tf.estimator.WarmStartSettings`.
        names: table name -> names of its variables.
        variables: table name -> its variables.

    Returns:
        The names of the variables that start from the checkpoint.

    Raises:
        ValueError: if `var_name_to_prev_var_name` has a name for a table or slot that is not
            in the checkpoint.
    """
    checkpoint = settings.ckpt_to_initialize_from
    saved = {name for name, _ in tf.train.list_variables(checkpoint)}
    previous = _previous_names(settings, names)
    for name, source in previous.items():
        checks.check(source in saved, f"var_name_to_prev_var_name[{name!r}]",
                     f"a variable of {checkpoint}", source)
    started = []
    for name, parts in _named_parts(names, variables):
        source = previous.get(name, name)
        if _matches(settings.vars_to_warm_start, name) and source in saved:
            tf.compat.v1.train.init_from_checkpoint(checkpoint, {source: parts})
            started.append(name)
    return started


def without_tables(settings: Any, names: Mapping[str, TableNames]) -> Any:
    """Returns the settings for the remaining variables, those of the model.

    TensorFlow's warm start rejects former names of variables that its pattern does not match,
    and a pattern matches trainable variables only. As a list it matches all variables.

    Args:
        settings: `tf.estimator.WarmStartSettings`.
        names: table name -> names of its variables.
    """
    if not isinstance(settings.vars_to_warm_start, str):
        return settings
    of_tables = _previous_names(settings, names)
    return settings._replace(var_name_to_prev_var_name={
        name: source for name, source in (settings.var_name_to_prev_var_name or {}).items()
        if name not in of_tables})


def _previous_names(settings: Any, names: Mapping[str, TableNames]) -> dict[str, str]:
    own = {name for table in names.values() for name in (table.table, *table.slots.values())}
    previous = settings.var_name_to_prev_var_name or {}
    return {name: source for name, source in previous.items() if name in own}


def _named_parts(names: Mapping[str, TableNames], variables: Mapping[str, TableVariables]
                 ) -> Iterator[tuple[str, Sequence[tf.Variable]]]:
    for table, table_names in names.items():
        yield table_names.table, variables[table].parts
        for slot, slot_name in table_names.slots.items():
            yield slot_name, variables[table].slots[slot]


def _matches(vars_to_warm_start: Any, name: str) -> bool:
    if vars_to_warm_start is None:
        return False
    if isinstance(vars_to_warm_start, str):
        return re.match(vars_to_warm_start, name) is not None
    names = [getattr(item, "name", item) for item in vars_to_warm_start]
    return any(re.match(pattern, name) for pattern in names)
