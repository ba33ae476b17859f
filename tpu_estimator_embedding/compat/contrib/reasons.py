# SPDX-License-Identifier: Apache-2.0
"""Why names of `tf.contrib` no longer exist, and what a program uses in their place.

`reasons.toml` lists them. It is the other half of the table in `contents`: a name stands in one of
them.
"""

import fnmatch
import string
from collections.abc import Iterator

from tpu_estimator_embedding.toml_table import read_table

_TABLE = read_table(__package__, "reasons.toml")


def _rows(key: str) -> Iterator[tuple[str, str]]:
    """Yields the paths of a row, each with its reason, which may quote the name as `$NAME`."""
    reason = string.Template(_TABLE["instead"][key])
    modules, _, names = key.partition(": ")
    for module in modules.split():
        for name in names.split() or [""]:
            yield f"{module}.{name}".rstrip("."), reason.substitute(_TABLE["shared"], NAME=name)


# Path of a module or a name below `tf.contrib`, or a pattern -> reason and advice.
INSTEAD = {path: reason for key in _TABLE["instead"] for path, reason in _rows(key)}

# Path below tf.contrib of a name of tf-slim -> what a program that leaves tf.contrib uses, where
# that is not in tf.layers.
WITHOUT_CONTRIB: dict[str, str] = _TABLE["without_contrib"]


def of_name(path: str) -> str | None:
    """Returns the reason of a name's own row, or of a pattern that it matches."""
    first, name = path.partition(".")[0], path.rpartition(".")[2]
    if "." not in path:
        return None
    return INSTEAD.get(path) or INSTEAD.get(f"{first}.{name}") or next(
        (reason for pattern, reason in INSTEAD.items()
         if "*" in pattern and fnmatch.fnmatchcase(f"{first}.{name}", pattern)), None)


def of(path: str) -> str | None:
    """Returns the reason of the innermost module that has one."""
    parts = path.split(".")
    above = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((INSTEAD[module] for module in above if module in INSTEAD), None)
