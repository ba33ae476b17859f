# SPDX-License-Identifier: Apache-2.0
"""All update rules, found in the modules of this folder."""

import functools
import importlib
import pathlib
import pkgutil
from collections.abc import Mapping

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


def rules_by_parameters() -> dict[str, type[UpdateRule]]:
    """Returns class of settings in the v1 API -> its rule.

    >>> rules_by_parameters()["AdamParameters"].__name__
    'Adam'
    """
    return {rule.record.parameters: rule for rule in rules()}


def rules_of_tf2() -> dict[str, type[UpdateRule]]:
    """Returns the rules that the TF2 API has, by the name that class and rule share.

    >>> list(rules_of_tf2())
    ['SGD', 'Adagrad', 'AdagradMomentum', 'Adam', 'FTRL']
    """
    return {rule.__name__: rule for rule in rules() if rule.record.v2_attributes is not None}


def rule_of(settings: type, by_class: Mapping[str, type[UpdateRule]]) -> type[UpdateRule] | None:
    """Returns the rule of a class of settings, or of what it derives from; None if it has none.

    Args:
        settings: the class, of this package, of TensorFlow or of a program.
        by_class: name of a class of settings -> its rule.

    >>> rule_of(type("Tuned", (type("AdamParameters", (), {}),), {}), rules_by_parameters())
    <class 'tpu_estimator_embedding.optimizers.adam.Adam'>
    """
    names = [base.__name__ for base in settings.__mro__]
    return next((by_class[name] for name in names if name in by_class), None)
