# SPDX-License-Identifier: Apache-2.0
"""Views of modules."""

import importlib
import sys
from types import ModuleType

import pytest

from tpu_estimator_embedding.patches.module_view import ModuleView


@pytest.fixture(name="shown")
def a_shown_module():
    shown = ModuleType("shown")
    exec("value = 1\n_private = 2\ndef double(): return 2 * value", vars(shown))
    return shown


def test_view_shows_private_names_too(shown):
    view = ModuleView("view", lambda: shown)
    assert (view.value, view._private, view.double()) == (1, 2, 2)


def test_replaced_name_is_the_views_own(shown):
    view = ModuleView("view", lambda: shown, {"value": 10})
    assert view.value == 10 and shown.value == 1
    assert view.double() == 2


def test_setting_reaches_the_module_shown(shown):
    view = ModuleView("view", lambda: shown, {"_private": 20})
    view.value, view._private = 5, 6
    assert shown.double() == 10
    assert (view._private, shown._private) == (6, 2)


def test_star_import_takes_what_is_public(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "view", ModuleView("view", lambda: shown, {"more": 3}))
    taken = {}
    exec("from view import *", taken)
    assert {"value", "double", "more"} <= set(taken) and "_private" not in taken


def test_questions_about_the_view_load_nothing():
    def load():
        raise AssertionError("loaded")

    view = ModuleView("view", load)
    assert repr(view) == "<module 'view'>"
    assert not hasattr(view, "__path__") and not hasattr(view, "__file__")
    with pytest.raises(AssertionError, match="loaded"):
        _ = view.anything


def test_missing_name_raises_attribute_error(shown):
    with pytest.raises(AttributeError, match="'shown' has no attribute 'missing'"):
        _ = ModuleView("view", lambda: shown).missing


def test_view_can_be_imported(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "view", ModuleView("view", lambda: shown))
    assert importlib.import_module("view").value == 1
