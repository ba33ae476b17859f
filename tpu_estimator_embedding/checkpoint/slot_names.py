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

# Optimizer -> slot -> suffix after the name of the table and a slash.
SLOT_SUFFIXES: Mapping[str, Mapping[str, str]] = {
    name: {slot.name: slot.suffix for slot in slots} for name, slots in _SLOTS.items()}

# Suffixes that optimizers of dense variables use too, so that they do not identify a table.
SHARED_SUFFIXES = frozenset(slot.suffix for slots in _SLOTS.values() for slot in slots
                            if slot.has_dense_namesake)

# Slots whose initial value is configurable and which only grow. All others start at 0.
GROWING_SLOTS = frozenset(slot.name for slots in _SLOTS.values() for slot in slots
                          if isinstance(slot.initial_value, str))

SLOT_NAMES = frozenset(slot for slots in SLOT_SUFFIXES.values() for slot in slots)


def slots_of(table: str, keys: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the optimizer of a table according to its slots in a checkpoint, and slot -> key.

    The optimizer is None without slots: it is SGD, or the table was saved without slots.
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
    """Returns the optimizers that have exactly these slots."""
    return [optimizer for optimizer, suffixes in SLOT_SUFFIXES.items()
            if suffixes.keys() == set(slots)]


def table_of(key: str) -> str:
    """Returns the table of a key; the key of a slot without its suffix.

    >>> table_of("scope/words/Adam/m"), table_of("scope/words")
    ('scope/words', 'scope/words')
    """
    suffixes = [f"/{suffix}" for slots in SLOT_SUFFIXES.values() for suffix in slots.values()]
    return next((key.removesuffix(suffix) for suffix in suffixes if key.endswith(suffix)), key)
