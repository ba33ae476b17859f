# SPDX-License-Identifier: Apache-2.0
"""Deep copies of objects with tables: their own variables, the same TableConfigs as keys."""

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.mid_level.execution.table_variables import outside_strategies

_Tables = TypeVar("_Tables")


def deep_copy(tables: _Tables, memo: dict[int, Any], variables: Iterable[tf.Variable],
              shared: Iterable[object], replaced: Iterable[tuple[object, object]]) -> _Tables:
    """Returns a deep copy, for `__deepcopy__`; eager.

    Args:
        tables: the object to copy.
        memo: of `copy.deepcopy`. What it has already is used.
        variables: the variables of tables and slots, each copied on its device.
        shared: what the copy shares with the object, because it does not change: the plan, the
            strategy, and the TableConfigs, by which a program finds its tables.
        replaced: (value, value in the copy) of the rest that `copy.deepcopy` cannot copy.

    >>> class Tables:
    ...     def __init__(self):
    ...         self.rows, self.plan = tf.Variable([1.0]), object()
    >>> tables = Tables()
    >>> copied = deep_copy(tables, {}, [tables.rows], [tables.plan], [])
    >>> _ = copied.rows.assign([2.0])
    >>> tables.rows.numpy().tolist(), copied.plan is tables.plan
    ([1.0], True)
    """
    copied = type(tables).__new__(type(tables))
    memo[id(tables)] = copied
    for value in shared:
        memo.setdefault(id(value), value)
    for value, instead in replaced:
        memo[id(value)] = instead
    with outside_strategies():
        for variable in variables:
            with tf.device(variable.device):
                copy.deepcopy(variable, memo)
        for name, value in vars(tables).items():
            vars(copied)[name] = copy.deepcopy(value, memo)
    return copied
