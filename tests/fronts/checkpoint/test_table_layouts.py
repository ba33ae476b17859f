# SPDX-License-Identifier: Apache-2.0
"""The record of layouts in a checkpoint: its JSON format, and what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spec.oracle import cut
from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
    moves,
    parse_table_layouts,
)

LAYOUTS = {"words": TableLayout("mod", 3, 13), "words/Adagrad": TableLayout("div", 1, 13)}


def test_json_format():
    assert TABLE_LAYOUTS_KEY == "tpu_estimator_embedding/table_layouts"
    assert json.loads(format_table_layouts(LAYOUTS)) == {"version": 1, "tables": {
        "words": {"partition_strategy": "mod", "num_hosts": 3, "vocabulary_size": 13},
        "words/Adagrad": {"partition_strategy": "div", "num_hosts": 1, "vocabulary_size": 13}}}


@pytest.mark.parametrize("layouts", [LAYOUTS, {}])
@pytest.mark.parametrize("encode", [str, str.encode])
def test_parsing_gives_what_was_formatted(layouts, encode):
    assert parse_table_layouts(encode(format_table_layouts(layouts))) == layouts


def test_same_layouts_give_the_same_bytes():
    assert format_table_layouts(LAYOUTS) == format_table_layouts(
        dict(reversed(LAYOUTS.items())))


@pytest.mark.parametrize("layout, by_id", [
    (TableLayout("div", 4, 10), True), (TableLayout("mod", 4, 10), False),
    (TableLayout("mod", 1, 10), True), (TableLayout("mod", 4, 1), True)])
def test_rows_are_by_id_unless_mod_permutes_them(layout, by_id):
    assert layout.is_by_id is by_id


@given(st.integers(1, 40), *[st.tuples(st.sampled_from(["div", "mod"]), st.integers(1, 12))] * 2)
def test_moves_take_every_row_from_its_place_to_its_place(rows, old, new):
    (old_strategy, old_hosts), (new_strategy, new_hosts) = old, new
    ids = np.arange(rows)
    saved = np.concatenate(cut(ids, old_hosts, old_strategy))
    for part, expected in enumerate(cut(ids, new_hosts, new_strategy)):
        found = np.full(len(expected), -1)
        for move in moves(part, TableLayout(new_strategy, new_hosts, rows),
                          TableLayout(old_strategy, old_hosts, rows)):
            stored = saved[move.offset:move.offset + move.size]
            found[list(move.target)] = stored[list(move.source)]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("text, sentence", [
    ("{", "must be JSON of the format"),
    (b"\xff", "must be JSON of the format"),
    ("[]", "must be JSON of the format"),
    ('{"version": 1}', "must be JSON of the format"),
    ('{"version": 2, "tables": {}}', r"must be 1, got 2\. .* update"),
    ('{"version": 1, "tables": {"w": {"num_hosts": 2}}}', "Layout of 'w' in .* must be an object"),
    ('{"version": 1, "tables": {"w": 3}}', "Layout of 'w' in .* must be an object"),
    (format_table_layouts(LAYOUTS).replace("mod", "hash"), "`partition_strategy` must be one of"),
    (format_table_layouts(LAYOUTS).replace("13", "0"), "`vocabulary_size` must be an int of at"),
    (format_table_layouts(LAYOUTS).replace(": 3,", ": true,"), "`num_hosts` must be an int of at"),
])
def test_wrong_json_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_table_layouts(text)


def test_module_needs_no_tensorflow():
    code = ("import sys, tpu_estimator_embedding.checkpoint.table_layouts as _\n"
            "assert 'tensorflow' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)
