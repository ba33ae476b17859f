# SPDX-License-Identifier: Apache-2.0
"""Patches: what they change, when they do not, and what they remember."""

import sys
from types import ModuleType

import pytest

from tpu_estimator_embedding.compat import patch, patch_table
from tpu_estimator_embedding.compat.patch import NOTHING, Patch


@pytest.fixture(name="target")
def a_target_module(monkeypatch):
    target = ModuleType("patch_target", "A module to patch.")
    target.__path__ = []  # a package, so that submodules can be looked for
    target.present = "theirs"
    monkeypatch.setitem(sys.modules, "patch_target", target)
    monkeypatch.setattr(patch, "_originals", {})
    yield target
    sys.modules.pop("patch_target.submodule", None)


def test_new_name_is_added_and_remembered(target):
    row = Patch("patch_target", "absent", "math:pi", "needed")
    patch.apply(row)
    assert target.absent == sys.modules["math"].pi
    assert row.is_applied and patch.originals()[row].attribute is NOTHING


def test_present_name_stays_unless_replaced(target):
    row = Patch("patch_target", "present", "math:pi", "needed")
    patch.apply(row)
    assert target.present == "theirs" and not row.is_applied


def test_replaced_name_is_remembered(target):
    row = Patch("patch_target", "present", "math:pi", "needed", replaces=True)
    patch.apply(row)
    patch.apply(row)
    assert target.present == sys.modules["math"].pi
    assert patch.originals()[row].attribute == "theirs"


def test_module_becomes_importable(target):
    row = Patch("patch_target", "submodule", "math", "needed", is_module=True)
    patch.apply(row)
    import patch_target.submodule
    assert patch_target.submodule is sys.modules["math"]
    assert target.submodule is sys.modules["math"]


def test_lazy_module_is_imported_when_it_is_read(target, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    patch.apply(Patch("patch_target", "submodule", "this", "needed", is_module=True,
                      is_lazy=True))
    from patch_target import submodule
    assert "this" not in sys.modules
    assert submodule.s.startswith("Gur Mra")


def test_originals_are_in_order(target):
    rows = [Patch("patch_target", name, "math:pi", "needed") for name in ("b", "a", "c")]
    for row in rows:
        patch.apply(row)
    assert list(patch.originals()) == rows


def test_table_has_every_name_once():
    rows = [row for table in vars(patch_table).values() if isinstance(table, tuple)
            for row in table if isinstance(row, Patch)]
    paths = [(row.path, row.source) for row in rows]
    assert len(paths) > 50 and len(set(paths)) == len(paths)
