# SPDX-License-Identifier: Apache-2.0
"""Files that replace others together: all of them, or none."""

import pytest

from tpu_estimator_embedding.checkpoint import files


def contents(directory):
    return {path.name: path.read_text() if path.is_file() else None for path in directory.iterdir()}


@pytest.mark.parametrize("are_there", [True, False])
def test_a_file_that_cannot_be_replaced_leaves_all_as_they_were(tmp_path, are_there):
    first, second = tmp_path / "first", tmp_path / "second"
    if are_there:
        first.write_text("former")
    second.mkdir()  # no file can take its name
    before = contents(tmp_path)
    with pytest.raises(OSError), files.replace_files([first, second]) as unfinished:
        for path in unfinished:
            path.write_text("new")
    assert contents(tmp_path) == before


def test_all_are_replaced_and_nothing_else_stays(tmp_path):
    paths = [tmp_path / "first", tmp_path / "second"]
    paths[0].write_text("former")
    with files.replace_files(paths) as unfinished:
        for path in unfinished:
            path.write_text("new")
    assert contents(tmp_path) == {"first": "new", "second": "new"}
