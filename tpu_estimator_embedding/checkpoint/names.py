# SPDX-License-Identifier: Apache-2.0
"""Maps names of variables in TPUEstimator to names in TF2 programs.

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
from tpu_estimator_embedding.checkpoint.contents import Contents, Table

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

_OF_COLUMN = re.compile(r"(?:^|/)([^/]+)_embedding/embedding_weights(?:_\d+)?$")
_SHOWN = 8  # paths in a message


class Names:
    """Name in a TPUEstimator checkpoint -> name in a TF2 program.

    By default, a table of a feature column gets the name of the column; other tables keep their
    names.
    """

    def __init__(self, given: Mapping[str, str] | None = None):
        """Stores the names of tables and paths of variables that differ from the default.

        Raises:
            ValueError: if two variables get one name, or a name cannot be stored in a file.
        """
        self.given: Mapping[str, str] = dict(given or {})
        for old, new in self.given.items():
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

    def tables(self, contents: Contents) -> dict[str, Table]:
        """Returns name in TF2 -> table.

        Raises:
            ValueError: if two tables have the same name in TF2.
        """
        return unique(((self.of_table(former), table) for former, table in contents.tables.items()),
                      "names", "different for different tables",
                      "Give one of the tables another name.")

    def path_of_variable(self, name: str) -> str | None:
        """Returns the path of a variable in TF2; None if it was not given."""
        return self.given.get(name)

    def former(self, name: str) -> str | None:
        """Returns the name in TPUEstimator of a TF2 table or path; None if it was not given."""
        return self._inverse.get(name)

    def check_known(self, *contents: Contents) -> None:
        """Raises ValueError if a name was given for a variable that no checkpoint has."""
        unknown = set(self.given)
        for one in contents:
            unknown -= one.tables.keys() | one.variables.keys()
        checks.check(not unknown, "names", "of variables in the checkpoint", sorted(unknown),
                     "`checkpoint inspect --all` lists them.")

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
        ValueError: if the file is not a JSON object of strings.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except ValueError as error:
        raise ValueError(f"`names` must be a JSON file, got {path}: "
                         f"{str(error).rstrip('.')}.") from error
    is_mapping = isinstance(names, dict) and all(
        isinstance(new, str) for new in names.values())
    checks.check(is_mapping, "names", 'a JSON object such as {"dense/kernel": '
                 '"model/dense/kernel"}', names)
    return dict(names)


def unique(pairs: Iterable[tuple[_Key, _Value]], argument: str, rule: str,
           way_out: str = "") -> dict[_Key, _Value]:
    """Returns a dictionary of the pairs.

    Raises:
        ValueError: if a key comes twice: one value would silently replace the other.

    >>> unique([("words", 1), ("tags", 2)], "names", "different")
    {'words': 1, 'tags': 2}
    """
    found: dict[_Key, _Value] = {}
    for key, value in pairs:
        checks.check(key not in found, argument, rule, key, way_out)
        found[key] = value
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
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
