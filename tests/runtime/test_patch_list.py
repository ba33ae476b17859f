# SPDX-License-Identifier: Apache-2.0
"""The list of what is patched."""

import importlib
import pkgutil

import pytest

from tpu_estimator_embedding import compat, runtime
from tpu_estimator_embedding.compat.patch import Patch
from tpu_estimator_embedding.runtime import patch_list, tf1


def test_list_has_every_row_of_every_table():
    rows = [row for folder in (compat, runtime)
            for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")
            for table in vars(importlib.import_module(module.name)).values()
            if isinstance(table, tuple) for row in table if isinstance(row, Patch)]
    rows += tf1.table()
    assert set(rows) == set(patch_list.ROWS)
    assert len({(row.path, row.source) for row in rows}) == len(patch_list.ROWS)


@pytest.mark.parametrize("module, spelled", [
    ("tensorflow", "tf"), ("tensorflow._api.v2.tpu", "tf.tpu"), ("", ""),
    ("tensorflow._api.v2.compat.v1.tpu", "tf.compat.v1.tpu"), ("tensorflow.tpu", "tf.tpu"),
    ("tensorflow._api.v2.compat.v2.config", "tf.config"), ("tensorflow.compat.v2", "tf"),
    ("tensorflow.python.tpu:Class", "tensorflow.python.tpu.Class"),
    ("tensorflow_estimator.python", "tensorflow_estimator.python")])
def test_modules_are_spelled_as_in_programs(module, spelled):
    assert patch_list.spelled(Patch(module, "name", "source", "reason")) == spelled


def test_line_shows_as_many_names_as_fit():
    [_, line] = patch_list.lines([Patch("m", f"name_{i:03}", "s", "r") for i in range(50)])
    assert len(line) <= 96 and line.endswith(" more}") and line.startswith("    m.{name_000, ")
    [_, line] = patch_list.lines([Patch("m" * 90, name, "s", "r") for name in "ab"])
    assert line == f"    {'m' * 90}.{{2 names}}"
