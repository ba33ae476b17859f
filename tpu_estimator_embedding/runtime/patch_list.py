# SPDX-License-Identifier: Apache-2.0
"""The list of patches as text, grouped by reason, with names as programs write them."""

import re
from collections.abc import Iterable

from tpu_estimator_embedding.patches import patch_table
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.runtime import install, program_setup, tf1

_WIDTH = 96  # columns of a line

# Every row that can be applied; `install` applies all but the optimizers and the last two, which
# `run` applies.
ROWS = (
    *patch_table.KERAS, *patch_table.MODULES, *patch_table.EXPORT_NAMES,
    *patch_table.NAMES_OF_NIGHTLY, *patch_table.EXPERIMENTAL, *patch_table.V1_API,
    *patch_table.V1_ENGINE, *patch_table.SAVERS,
    *patch_table.TPU_OPS, *patch_table.V1_OPTIMIZERS, *patch_table.KERAS_2_OPTIMIZERS,
    *patch_table.KERAS_3_OPTIMIZERS, *install.ROWS, *tf1.table(),
    *program_setup.TABLE)


def lines(rows: Iterable[Patch]) -> list[str]:
    """Returns the reasons, each followed by the indented names that it applies to.

    >>> lines([Patch("tensorflow._api.v2.tpu", "core", "...", "it fails"),
    ...        Patch("tensorflow.tpu", "shard", "...", "it fails")])
    ['it fails', '    tf.tpu.{core, shard}']
    """
    reasons: dict[str, dict[str, dict[str, None]]] = {}  # dictionaries keep the order
    for row in rows:
        modules = reasons.setdefault(row.reason, {})
        modules.setdefault(spelled(row), {})[row.name] = None
    return [line for reason, modules in reasons.items()
            for line in (reason, *(f"    {_names(module, list(names))}"
                                   for module, names in sorted(modules.items())))]


def spelled(row: Patch) -> str:
    """Returns the module of a row as written after `import tensorflow as tf`."""
    path = row.module.replace(":", ".")
    path = re.sub(r"^tensorflow(\._api\.v2)?(\.compat\.v2)?(?=\.|$)", "tf", path)
    return re.sub(r"^tf\.python\b", "tensorflow.python", path)


def _names(module: str, names: list[str]) -> str:
    """Returns as many names of a module as fit in one line."""
    if len(names) == 1:
        return f"{module}.{names[0]}".lstrip(".")
    for shown in range(len(names), 0, -1):
        rest = [f"{len(names) - shown} more"] * (shown < len(names))
        line = f"{module}.{{{', '.join([*names[:shown], *rest])}}}".lstrip(".")
        if len(line) <= _WIDTH - 4:
            return line
    return f"{module}.{{{len(names)} names}}"
