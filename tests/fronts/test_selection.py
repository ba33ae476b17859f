# SPDX-License-Identifier: Apache-2.0
"""What `pytest` runs without options covers every kind of thing, whatever the seed."""

import collections
import re

import pytest

from tests import mutations, selection
from tpu_estimator_embedding import cli

SEEDS = range(20)


class Item:
    """A test as pytest collects it."""

    def __init__(self, nodeid, *marks):
        self.nodeid = nodeid
        self.marks = set(marks)

    def get_closest_marker(self, name):
        return name in self.marks

    def add_marker(self, name):
        self.marks.add(name)


def items():
    """Returns a suite: the core, tests of all kinds, three cases of each."""
    core = [test if "::" in test else f"{test}::test" for test in set(selection.CORE)]
    names = [*core, *(f"tests/spec/engine/test_x.py::test_{i}" for i in range(50)),
             *(f"{selection.LONG[0]}::test_{i}" for i in range(50)),
             *(f"tests/release/packaging/test_pip.py::test_{i}" for i in range(5))]
    suite = [Item(f"{name}[{case}]") for name in names for case in "abc"]
    suite += [Item(f"tests/fronts/test_cli.py::test_smoke[{case}]", "smoke") for case in "abc"]
    suite += [Item(f"tests/fronts/test_cli.py::test_{i}[{case}]", "slow")
              for i in range(50) for case in "abc"]
    suite += [Item(f"tests/spec/engine/test_x.py::test_whole[{case}]", "all_cases")
              for case in "abc"]
    selection.mark(suite)
    return suite


def by_test(selected):
    return collections.Counter(item.nodeid.partition("[")[0] for item in selected)


@pytest.mark.parametrize("test", sorted(set(selection.CORE)))
def test_core_is_of_tests_that_exist(test):
    file, _, name = test.partition("::")
    text = (selection.ROOT / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text or not name
    assert not f"{file}/".startswith(tuple(f"{path}/" for path in selection.RELEASE))


def test_folders_and_files_of_kinds_exist():
    paths = {*selection.EVERY_TENSORFLOW, *selection.RELEASE, *selection.LONG, *selection.WHOLE}
    assert [path for path in paths if not (selection.ROOT / path).exists()] == []


def test_core_has_every_command():
    assert selection.COMMANDS.keys() == cli.VERBS.keys()


def test_core_has_every_front_door_of_the_readme():
    text = (selection.ROOT / "README.rst").read_text(encoding="utf-8")
    rows = text[text.index("\nFront door "):].split("===\n")[1].splitlines()
    doors = [re.split(r"  |\s\[", row)[0].strip("`") for row in rows if row[:1].strip("=")]
    assert len(doors) >= 5
    assert [door for door in doors
            if not any(name.startswith(door) for name in selection.FRONT_DOORS)] == []


@pytest.mark.parametrize("share", [1, 7])
def test_plain_run_has_a_case_of_all_the_core_and_a_share_of_the_rest(share):
    for seed in SEEDS:
        tests = by_test(selection.of_plain_run(items(), seed, share))
        for test in selection.CORE:
            is_whole = test.startswith(selection.WHOLE)
            assert tests[test if "::" in test else f"{test}::test"] == (3 if is_whole else 1)
        assert tests["tests/fronts/test_cli.py::test_smoke"] == 3
        short = [test for test in tests if test.startswith("tests/spec/engine/test_x.py::test_")]
        assert len(short) == pytest.approx(51 / share, abs=2)
        for mark, file in (("long", selection.LONG[0]), ("slow", "tests/fronts/test_cli.py")):
            marked = [tests[f"{file}::test_{i}"] for i in range(50)]
            assert sum(marked) == -(-50 // max(share, selection.SHARES[mark]))
        assert not any(test.startswith("tests/release/packaging") for test in tests)


def test_seed_decides():
    chosen = [{item.nodeid for item in selection.of_plain_run(items(), seed, 1)} for seed in SEEDS]
    again = [{item.nodeid for item in selection.of_plain_run(items(), seed, 1)} for seed in SEEDS]
    assert chosen == again
    assert len(set(map(frozenset, chosen))) == len(SEEDS)


def test_full_run_has_everything_or_a_share_of_it():
    suite = items()
    assert selection.of_full_run(suite, 1, 1) == set(suite)
    assert len(selection.of_full_run(suite, 1, 10)) == -(-len(suite) // 10)


@pytest.mark.all_cases
@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.name)
def test_line_that_a_mutation_changes_is_there(mutation):
    text = (mutations.ROOT / mutations.PACKAGE / mutation.file).read_text(encoding="utf-8")
    assert mutations.mutated(text, mutation) != text
