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
from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.contents import Contents

_OF_COLUMN = re.compile(r"(?:^|/)([^/]+)_embedding/embedding_weights(?:_\d+)?$")


class Names:
    """Name in a TPUEstimator checkpoint -> name in a TF2 program.

    By default, a table of a feature column gets the name of the column; other tables keep their
    names.
    """

    def __init__(self, given: Mapping[str, str] | None = None):
        """Stores the names of tables and paths of variables that differ from the default."""
        self._given = dict(given or {})
        self._inverse = {new: old for old, new in self._given.items()}
        checks.check(len(self._inverse) == len(self._given), "names",
                     "different for different variables", self._given)

    def of_table(self, name: str) -> str:
        """Returns the name of a table in TF2."""
        column = _OF_COLUMN.search(name)
        return self._given.get(name) or (column[1] if column else name)

    def path_of_variable(self, name: str) -> str | None:
        """Returns the path of a variable in TF2; None if it was not given."""
        return self._given.get(name)

    def former(self, name: str) -> str | None:
        """Returns the name in TPUEstimator of a TF2 table or path; None if it was not given."""
        return self._inverse.get(name)

    def check_known(self, *contents: Contents) -> None:
        """Raises ValueError if a name was given for a variable that no checkpoint has."""
        unknown = set(self._given)
        for one in contents:
            unknown -= one.tables.keys() | one.variables.keys()
        checks.check(not unknown, "names", "of variables in the checkpoint", sorted(unknown),
                     "`checkpoint inspect --all` lists them.")


def read_names(path: pathlib.Path) -> dict[str, str]:
    """Returns the names in a JSON file.

    Raises:
        ValueError: if the file is not a JSON object of strings.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`names` must be a JSON file, got {path}: {error}.") from error
    is_mapping = isinstance(names, dict) and all(
        isinstance(new, str) for new in names.values())
    checks.check(is_mapping, "names", 'a JSON object such as {"dense/kernel": '
                 '"model/dense/kernel"}', names)
    return dict(names)
