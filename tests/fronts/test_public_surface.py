# SPDX-License-Identifier: Apache-2.0
"""What users can name changes only together with the changelog."""

import re

import pytest

import tpu_estimator_embedding
from release import changelog
from tests import docs, public_surface
from tests.subprocesses import run_python


def listed() -> tuple[str, list[str]]:
    """The version whose surface is recorded, and the lines of it."""
    version, *lines = public_surface.LIST.read_text("utf-8").splitlines()
    return version.removeprefix("version "), lines


def unnamed_changes(before: list[str], now: list[str], text: str) -> list[str]:
    """Lines that came or went although no literal of a text has what they are about."""
    literals = set(re.findall(r"[\w-]+", " ".join(re.findall(r"``([^`]+)``", text))))
    changes = [f"- {line}" for line in sorted({*before} - {*now})]
    changes += [f"+ {line}" for line in sorted({*now} - {*before})]
    return [line for line in changes if public_surface.subject(line[2:]) not in literals]


def test_changelog_names_what_changed_since_the_newest_release():
    found = run_python("""
        from tests import public_surface
        print(*public_surface.surface(), sep="\\n")
    """)
    unnamed = unnamed_changes(listed()[1], found.stdout.splitlines(), changelog.unreleased())
    assert not unnamed, (
        "Name these in a literal of section Unreleased of CHANGELOG.rst:\n" + "\n".join(unnamed))


def test_list_is_of_the_newest_release():
    assert listed()[0] == changelog.newest().version == tpu_estimator_embedding.__version__


@pytest.mark.parametrize(("before", "now", "subject"), [
    ("name p.io.f", "name p.io.g", "f"),
    ("signature p.f(a, b=1)", "signature p.f(a, b=2)", "f"),
    ("signature p.C.train(a)", "signature p.C.train(b)", "train"),
    ("option run --cores default=None", "option run --cores default=1", "--cores"),
    ("environment variable TPU_X", "command x", "TPU_X"),
])
def test_change_that_the_changelog_does_not_name_is_found(before, now, subject):
    assert unnamed_changes([before], [before], "") == []
    assert f"- {before}" in unnamed_changes([before], [now], f"Words about {subject}, or ``else``.")
    assert f"- {before}" not in unnamed_changes([before], [now], f"* ``other`` and ``{subject}``.")


def test_the_list_has_every_kind_of_thing():
    kinds = {line.split()[0] for line in listed()[1]}
    assert kinds == {"name", "signature", "command", "option", "choice", "environment"}


def test_page_on_stability_names_every_public_module():
    promised = docs.page("stability").partition("What may change")[0]
    for module in public_surface.public_modules():
        is_tensorflows = module.startswith("tpu_estimator_embedding.compat.modules.")
        assert is_tensorflows or f"``{module}``" in promised
