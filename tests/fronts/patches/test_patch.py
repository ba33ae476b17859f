# SPDX-License-Identifier: Apache-2.0
"""Patches: what they change, when they do not, and what they remember."""

import sys
import types
from collections import Counter

import pytest

from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.patches.patch import Patch


def test_table_has_every_name_once():
    rows = [row for table in vars(patch_table).values() if isinstance(table, tuple)
            for row in table if isinstance(row, Patch)]
    paths = [(row.path, row.source) for row in rows]
    assert len(paths) > 50 and len(set(paths)) == len(paths)


@pytest.fixture
def module(monkeypatch):
    """A module of another package, with a function, and the replacement in one of this package."""
    theirs, ours = types.ModuleType("theirs"), types.ModuleType("ours")
    theirs.function = lambda: "theirs"
    ours.wrapping = lambda original: lambda: f"ours({original()})"
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    monkeypatch.setitem(sys.modules, "ours", ours)
    monkeypatch.setattr(patch, "_originals", {})
    monkeypatch.setattr(patch, "_held", Counter())
    return theirs


ROW = Patch("theirs", "function", "ours:wrapping", "needed", replaces=True, wraps=True)
LEFT = r"^theirs\.function was replaced after .*\(needed\).* and call uninstall\(\)\.$"


def wrapping(function):
    return lambda: f"program({function()})"


def test_what_a_program_put_on_top_stays_when_all_patches_are_undone(module):
    original = module.function
    patch.apply(ROW)
    patched = module.function
    module.function = wrapper = wrapping(patched)
    with pytest.warns(UserWarning, match=LEFT):
        patch.undo_all()
    assert module.function is wrapper and wrapper() == "program(ours(theirs))"
    assert list(patch.originals()) == [ROW]  # it is still in force
    patch.apply(ROW)
    assert module.function is wrapper and wrapper() == "program(ours(theirs))"
    module.function = patched
    patch.undo_all()
    assert module.function is original and not patch.originals()


def test_what_a_program_put_on_top_in_a_context_stays_after_it(module):
    original = module.function
    with pytest.warns(UserWarning, match=LEFT), patch.applied([ROW]):
        patched = module.function
        module.function = wrapper = wrapping(patched)
    assert module.function is wrapper and wrapper() == "program(ours(theirs))"
    module.function = patched  # as a program does that replaces a name for a moment
    with patch.applied([ROW]):
        assert module.function is patched
    assert module.function is original and not patch.originals()


def test_context_within_a_context_and_a_wrapper(module):
    with pytest.warns(UserWarning, match=LEFT), patch.applied([ROW]):
        with patch.applied([ROW]):
            module.function = wrapping(module.function)
        assert module.function() == "program(ours(theirs))"
    patch.apply(ROW)  # for good
    with patch.applied([ROW]):
        pass
    assert module.function() == "program(ours(theirs))" and list(patch.originals()) == [ROW]


@pytest.mark.parametrize("change", ["restored", "deleted"])
def test_program_that_undid_a_patch_itself_is_no_matter(module, change, recwarn):
    original = module.function
    patch.apply(ROW)
    if change == "restored":
        module.function = original
    else:
        del module.function
    patch.undo_all()
    assert module.function is original and not patch.originals() and not recwarn


def test_module_that_a_program_put_in_place_of_ours_stays(module):
    row = Patch("theirs", "submodule", "ours", "needed", is_module=True)
    patch.apply(row)
    sys.modules["theirs.submodule"] = programs = types.ModuleType("theirs.submodule")
    with pytest.warns(UserWarning, match=r"^theirs\.submodule was replaced"):
        patch.undo_all()
    assert sys.modules.pop("theirs.submodule") is programs
    patch.undo_all()
    assert not hasattr(module, "submodule") and not patch.originals()


def test_wrapper_from_before_is_below_the_next_patch(module):
    patch.apply(ROW)
    patch.undo_all()
    module.function = wrapping(module.function)
    patch.apply(ROW)
    assert module.function() == "ours(program(theirs))"
