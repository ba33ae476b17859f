# SPDX-License-Identifier: Apache-2.0
"""All update rules, found in the modules of this folder."""

import functools
import importlib
import pathlib
import pkgutil

from tpu_estimator_embedding.optimizers.record import OptimizerRecord
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule


@functools.cache
def rules() -> tuple[type[UpdateRule], ...]:
    """Returns the rules that have a record, those with fewer slots first.

    >>> [rule.__name__ for rule in rules()][:3]
    ['SGD', 'Adagrad', 'FrequencyEstimator']
    """
    package = __name__.rpartition(".")[0]
    modules = [importlib.import_module(f"{package}.{found.name}")
               for found in pkgutil.iter_modules([str(pathlib.Path(__file__).parent)])]
    found = {value for module in modules for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, UpdateRule) and has_record(value)}
    return tuple(sorted(found, key=lambda rule: (len(rule.record.slots), rule.__name__)))


def has_record(rule: type[UpdateRule]) -> bool:
    """Whether the rule defines a record, and does not just inherit one."""
    return "record" in vars(rule)


def rule_named(name: str) -> type[UpdateRule]:
    """Returns the rule of that name, or raises KeyError.

    >>> rule_named("Adam").record.parameters
    'AdamParameters'
    """
    return {rule.__name__: rule for rule in rules()}[name]


def records(*, with_slots: bool = False) -> list[OptimizerRecord]:
    """Returns the records of all rules, or of those with slots.

    >>> [record.prefix for record in records()][:3]
    ['StochasticGradientDescent', 'Adagrad', 'FrequencyEstimator']
    """
    return [rule.record for rule in rules() if rule.record.slots or not with_slots]
