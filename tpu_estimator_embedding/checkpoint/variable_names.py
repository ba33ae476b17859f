# SPDX-License-Identifier: Apache-2.0
"""The names of slot variables in TPUEstimator graphs and checkpoints."""

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.optimizers.registry import has_record, rules
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule


def slot_variable_names(table_variable_name: str, rule: UpdateRule) -> dict[str, str]:
    """Returns slot name -> variable name in checkpoints of TPUEstimator on a TPU.

    Args:
        table_variable_name: name of the variable with the table.
        rule: the optimizer of the table.

    Raises:
        ValueError: if TPUEstimator does not have the optimizer.

    >>> from tpu_estimator_embedding.optimizers.adam import Adam
    >>> slot_variable_names("words", Adam())
    {'momenta': 'words/Adam/m', 'velocities': 'words/Adam/v'}
    """
    checks.check(has_record(type(rule)), "rule",
                 f"one of {', '.join(kind.__name__ for kind in rules())}", rule)
    return {slot.name: f"{table_variable_name}/{slot.suffix}" for slot in rule.record.slots}
