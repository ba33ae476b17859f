# SPDX-License-Identifier: Apache-2.0
"""The slots of every optimizer, and their names in checkpoints of TPUEstimator.

>>> slots_of("words", {"words", "words/Adam/m", "words/Adam/v", "words/Adam"})
('Adam', {'momenta': 'words/Adam/m', 'velocities': 'words/Adam/v'})
>>> optimizers_with({"accumulators"})
['Adagrad', 'ProximalAdagrad']
"""

from collections.abc import Collection, Mapping

from tpu_estimator_embedding.optimizers.registry import rules

_SLOTS = {rule.__name__: rule.record.slots for rule in rules()}

# Optimizer -> slot -> the name after that of the table and a slash.
SLOT_SUFFIXES: Mapping[str, Mapping[str, str]] = {
    name: {slot.name: slot.suffix for slot in slots} for name, slots in _SLOTS.items()}

# Suffixes that a model's own optimizer writes, too, so that they do not tell a table.
SHARED_SUFFIXES = frozenset(slot.suffix for slots in _SLOTS.values() for slot in slots
                            if slot.has_dense_namesake)

# Slots that start with a value of the configuration, and only grow. All others start with 0.
GROWING_SLOTS = frozenset(slot.name for slots in _SLOTS.values() for slot in slots
                          if isinstance(slot.initial_value, str))

SLOT_NAMES = frozenset(slot for slots in SLOT_SUFFIXES.values() for slot in slots)


def slots_of(table: str, keys: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the optimizer whose slots a table has in a checkpoint, and slot -> key.

    None where there are no slots: the table has SGD, or was saved without them.
    """
    found = {optimizer: {slot: f"{table}/{suffix}" for slot, suffix in slots.items()}
             for optimizer, slots in SLOT_SUFFIXES.items() if slots}
    complete = [optimizer for optimizer, slots in found.items()
                if all(key in keys for key in slots.values())]
    if not complete:
        return None, {}
    best = max(complete, key=lambda optimizer: len(found[optimizer]))
    return best, found[best]


def optimizers_with(slots: Collection[str]) -> list[str]:
    """Returns the optimizers that have just these slots."""
    return [optimizer for optimizer, suffixes in SLOT_SUFFIXES.items()
            if suffixes.keys() == set(slots)]


def table_of(key: str) -> str:
    """Returns the table that a key is of: of a slot's key what stands before the suffix.

    >>> table_of("scope/words/Adam/m"), table_of("scope/words")
    ('scope/words', 'scope/words')
    """
    suffixes = [f"/{suffix}" for slots in SLOT_SUFFIXES.values() for suffix in slots.values()]
    return next((key.removesuffix(suffix) for suffix in suffixes if key.endswith(suffix)), key)
