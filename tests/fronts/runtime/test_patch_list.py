# SPDX-License-Identifier: Apache-2.0
"""The list of what is patched."""

import importlib
import pkgutil

from tpu_estimator_embedding import compat, runtime
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.runtime import patch_list, tf1


def test_list_has_every_row_of_every_table():
    rows = [row for folder in (compat, runtime)
            for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")
            for table in vars(importlib.import_module(module.name)).values()
            if isinstance(table, tuple) for row in table if isinstance(row, Patch)]
    rows += tf1.table()
    assert set(rows) == set(patch_list.ROWS)
    assert len({(row.path, row.source) for row in rows}) == len(patch_list.ROWS)
