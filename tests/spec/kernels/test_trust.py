# SPDX-License-Identifier: Apache-2.0
"""Compiled code is loaded from where no other user could have put it."""

import os
import pathlib

import pytest

from tpu_estimator_embedding.kernels import build, library, load, trust
from tpu_estimator_embedding.kernels.trust import UntrustedError

SOMEBODY = 4321


@pytest.fixture(name="path")
def library_of_this_user(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    path = folder / "library.so"
    path.write_bytes(b"")
    path.chmod(0o755)
    return path


@pytest.fixture(name="give")
def give_away(monkeypatch):
    """Lets a path belong to another user, whichever user runs the tests."""
    stat = pathlib.Path.stat

    def give(given):
        def stat_of(path, **options):
            found = list(stat(path, **options))
            found[4] = SOMEBODY if path == given else found[4]
            return os.stat_result(found)

        monkeypatch.setattr(pathlib.Path, "stat", stat_of)

    return give


def test_own_folders_are_trusted(path):
    trust.check(path)
    trust.check(path.parent)
    trust.check(path.parent / "not" / "there" / "yet")


@pytest.mark.parametrize("number", range(3))
def test_what_belongs_to_others_is_not(path, give, number):
    owned = [path, *path.parents][number]
    give(owned)
    with pytest.raises(UntrustedError, match=f"{owned} belongs to user {SOMEBODY}, neither to "
                                             "this user nor to root"):
        trust.check(path)


@pytest.mark.parametrize("number", range(3))
def test_what_others_can_write_is_not(path, number):
    [path, *path.parents][number].chmod(0o757)
    with pytest.raises(UntrustedError, match="others can write .* Run `chmod go-w`"):
        trust.check(path)


def test_sticky_folders_are_trusted_around_the_one_of_the_library(path):
    path.parent.parent.chmod(0o1777)
    trust.check(path)
    path.parent.chmod(0o1777)
    with pytest.raises(UntrustedError, match="others can write"):
        trust.check(path)


def test_a_group_of_one_user_is_no_other(path, monkeypatch):
    path.parent.chmod(0o775)
    monkeypatch.setattr(trust, "_is_private", lambda group, user: True)
    trust.check(path)
    monkeypatch.setattr(trust, "_is_private", lambda group, user: False)
    with pytest.raises(UntrustedError, match="others can write"):
        trust.check(path)


def test_a_link_is_followed(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    path.parent.chmod(0o777)
    with pytest.raises(UntrustedError, match="others can write"):
        trust.check(link / path.name)


def test_library_where_others_can_write_is_not_loaded_and_a_line_says_why(
        sources, tensorflow, capfd):
    build.build(tensorflow, library.cache())
    library.cache().chmod(0o777)
    assert load.native_ops() is None
    [line] = capfd.readouterr().err.splitlines()
    assert "running on TF ops" in line and f"others can write {library.cache()}" in line


def test_nothing_is_compiled_where_others_can_write(sources, tensorflow, capfd):
    library.cache().mkdir(parents=True)
    library.cache().chmod(0o777)
    assert load.native_ops() is None
    assert "others can write" in capfd.readouterr().err
    assert not list(library.cache().iterdir())


def test_an_installed_library_is_trusted_as_the_package_is(sources, tensorflow):
    installed = build.build(tensorflow, library.INSTALLED)
    library.INSTALLED.chmod(0o777)
    assert library.find(tensorflow) == installed
