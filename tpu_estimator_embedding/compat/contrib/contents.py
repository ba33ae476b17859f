# SPDX-License-Identifier: Apache-2.0
"""The present locations of the names of `tf.contrib`, as `contents.toml` lists them.

TensorFlow 2.0 removed `tf.contrib`. The table has what this package, tf-slim or TensorFlow has
under other names. `reasons` has the other half: what none of them has.
"""

import dataclasses
import string
from collections.abc import Iterator, Mapping
from typing import Any

from tpu_estimator_embedding.toml_table import read_table

_SHORT = {"OURS": "tpu_estimator_embedding.compat.contrib", "PYTHON": "tensorflow.python",
          "V1": "tensorflow.compat.v1", "ESTIMATOR": "tensorflow_estimator.python.estimator"}


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a module of `tf.contrib`.

    Attributes:
        names: name -> "module:attribute", or "module".
        homes: modules whose public names and submodules it shows. The first module that has a
            name provides it; modules of packages that are not installed are skipped.
        otherwise: like `names`, for names that none of the homes has.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    homes: tuple[str, ...] = ()
    otherwise: dict[str, str] = dataclasses.field(default_factory=dict)


def _contents(part: Mapping[str, Any]) -> Contents:
    return Contents(dict(_targets(part.get("names", {}))),
                    tuple(map(_in_full, part.get("homes", "").split())),
                    dict(_targets(part.get("otherwise", {}))))


def _targets(rows: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the names of "module" -> "name name=attribute", each with its target."""
    for module, words in rows.items():
        home, star, _ = _in_full(module).partition(".*")
        for word in words.split():
            name, _, attribute = word.partition("=")
            yield name, f"{home}{'.' if star else ':'}{attribute or name}"


def _in_full(module: str) -> str:
    return string.Template(module).substitute(_SHORT)


_TABLE = read_table(__package__, "contents.toml")

# Path below `tf.contrib` -> what it shows.
CONTENTS = {path: contents for part in _TABLE["part"] for contents in [_contents(part)]
            for path in part["paths"].split()}

# Module of tf.contrib -> what tf-slim has of it, as `tf_slim.NAME`.
IN_SLIM = {module: frozenset(names.split()) for module, names in _TABLE["slim"].items()}

# Modules that a function of the same name hides in their parent; only imports find them.
HIDDEN = frozenset(("framework.python.ops.arg_scope",))
