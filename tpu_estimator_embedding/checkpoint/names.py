# SPDX-License-Identifier: Apache-2.0
"""The names of tables, slots and variables in checkpoints of TPUEstimator, and in TF2 programs.

>>> names = Names({"dense/kernel": "model/dense/kernel"})
>>> names.of_table("input_layer/w_embedding/embedding_weights")
'w'
>>> names.path_of_variable("dense/kernel"), names.former("model/dense/kernel")
('model/dense/kernel', 'dense/kernel')
"""

import json
import pathlib
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.optimizers.registry import has_record, rules
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

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
_OF_COLUMN = re.compile(r"(?:^|/)([^/]+)_embedding/embedding_weights(?:_\d+)?$")
_SHOWN = 8  # paths in a message


def slots_of(table: str, keys: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the optimizer of a table according to its slots in a checkpoint, and slot -> key.

    The optimizer is None without slots: it is SGD, or the table was saved without slots.

    >>> slots_of("words", {"words", "words/Adam/m", "words/Adam/v", "words/Adam"})
    ('Adam', {'momenta': 'words/Adam/m', 'velocities': 'words/Adam/v'})
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
    """Returns the optimizers that have exactly these slots.

    >>> optimizers_with({"accumulators"})
    ['Adagrad', 'ProximalAdagrad']
    """
    return [optimizer for optimizer, suffixes in SLOT_SUFFIXES.items()
            if suffixes.keys() == set(slots)]


def table_of(key: str) -> str:
    """Returns the table of a key; the key of a slot without its suffix.

    >>> table_of("scope/words/Adam/m"), table_of("scope/words")
    ('scope/words', 'scope/words')
    """
    suffixes = [f"/{suffix}" for slots in SLOT_SUFFIXES.values() for suffix in slots.values()]
    return next((key.removesuffix(suffix) for suffix in suffixes if key.endswith(suffix)), key)


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


class Names:
    """Name in a TPUEstimator checkpoint -> name in a TF2 program.

    By default, a table of a feature column gets the name of the column; other tables keep their
    names.
    """

    def __init__(self, given: Mapping[str, str] | None = None):
        """Stores the names of tables and paths of variables that differ from the default.

        Raises:
            TypeError: if it is no mapping.
            ValueError: if two variables get one name, or a name cannot be stored in a file.
        """
        checks.check_type((Mapping, type(None)), "names", "a mapping of names, or None", given)
        self.given: Mapping[str, str] = dict(given or {})
        for old, new in self.given.items():
            checks.check(isinstance(old, str) and isinstance(new, str), "names",
                         "a mapping of texts to texts", {old: new})
            if not (_can_be_stored(old) and _can_be_stored(new)):
                raise ValueError("`names` must have at least one character, and be valid Unicode "
                                 f"without NUL, got {old!r} and {new!r}.")
        self._inverse: dict[str, str] = {}
        for old, new in self.given.items():
            if new in self._inverse:
                raise ValueError(f"`names` must be different for different variables, got {new!r} "
                                 f"for both {self._inverse[new]!r} and {old!r}.")
            self._inverse[new] = old

    def of_table(self, name: str) -> str:
        """Returns the name of a table in TF2."""
        column = _OF_COLUMN.search(name)
        return self.given.get(name) or (column[1] if column else name)

    def find_tables(self, tables: Collection[str], name: str) -> list[str]:
        """Returns the tables, by their names in TPUEstimator, that a user's name may mean.

        The name in TPUEstimator goes before the name in TF2.

        >>> names = Names({"embedding/doc": "document"})
        >>> names.find_tables(["embedding/doc", "words_embedding"], "document")
        ['embedding/doc']
        """
        return [former for former in tables if former == name] or [
            former for former in tables if self.of_table(former) == name]

    def tables(self, tables: Mapping[str, _Value]) -> dict[str, _Value]:
        """Returns name in TF2 -> table, for the tables by their names in TPUEstimator.

        Raises:
            ValueError: if two tables have the same name in TF2.
        """
        return unique(((self.of_table(former), table) for former, table in tables.items()),
                      "names", "different for different tables",
                      "Give one of the tables another name.")

    def path_of_variable(self, name: str) -> str | None:
        """Returns the path of a variable in TF2; None if it was not given."""
        return self.given.get(name)

    def former(self, name: str) -> str | None:
        """Returns the name in TPUEstimator of a TF2 table or path; None if it was not given."""
        return self._inverse.get(name)

    def check_known(self, *known: Iterable[str]) -> None:
        """Raises ValueError if a name was given for none of the known tables and variables."""
        unknown = set(self.given).difference(*known)
        if unknown:
            raise ValueError(f"`names` has {sorted(unknown)}, which are not in the checkpoint. "
                             "`checkpoint inspect --all` lists its tables and variables.")

    def check_found(self, paths: Collection[str], names: Collection[str], argument: str) -> None:
        """Raises ValueError unless each of `names` has a path that is one of `paths`.

        Args:
            paths: the paths of the dense variables in a checkpoint.
            names: names in TPUEstimator.
            argument: the checkpoint.
        """
        missing = {name: self.given[name] for name in sorted(names)
                   if name in self.given and self.given[name] not in paths}
        shown = ", ".join(sorted(paths)[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
        if missing:
            raise ValueError(f"`names` must give paths of dense variables in `{argument}`, got "
                             f"{missing}. It has {shown or 'none'}.")


def read_names(path: pathlib.Path) -> dict[str, str]:
    """Returns the names in a JSON file.

    Raises:
        ValueError: if the file cannot be read, or is not a JSON object of strings.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=distinct_keys)
    except OSError as error:
        raise ValueError(f"`names` must be a file that can be read, got {path}: "
                         f"{error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"`names` must be a JSON file, got {path}: "
                         f"{str(error).rstrip('.')}.") from error
    is_mapping = isinstance(names, dict) and all(
        isinstance(new, str) for new in names.values())
    checks.check(is_mapping, "names", 'a JSON object such as {"dense/kernel": '
                 '"model/dense/kernel"}', names)
    return dict(names)


def unique(pairs: Iterable[tuple[_Key, _Value]], argument: str, rule: str,
           fix: str = "") -> dict[_Key, _Value]:
    """Returns a dictionary of the pairs.

    Raises:
        ValueError: if a key comes twice: one value would silently replace the other.

    >>> unique([("words", 1), ("tags", 2)], "names", "different")
    {'words': 1, 'tags': 2}
    """
    found: dict[_Key, _Value] = {}
    for key, value in pairs:
        checks.check(key not in found, argument, rule, key, fix)
        found[key] = value
    return found


def distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns an object of JSON, which must have each key once."""
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"it has {', '.join(map(repr, twice))} more than once")
    return dict(pairs)


def _can_be_stored(name: str) -> bool:
    try:
        return b"\0" not in name.encode() and bool(name)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express
        return False
