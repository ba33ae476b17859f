# SPDX-License-Identifier: Apache-2.0
"""Nothing that users could name has gone."""

from tests.public_surface import LIST
from tests.subprocesses import run_python


def test_everything_listed_is_still_there():
    found = run_python("""
        from tests import public_surface
        print(*public_surface.surface(), sep="\\n")
    """)
    gone = set(LIST.read_text("utf-8").splitlines()) - set(found.stdout.splitlines())
    assert not gone, "gone, or renamed:\n" + "\n".join(sorted(gone))


def test_the_list_has_every_kind_of_name():
    kinds = {line.split()[0] for line in LIST.read_text("utf-8").splitlines()}
    assert kinds == {"name", "argument", "command", "option", "choice", "environment"}
