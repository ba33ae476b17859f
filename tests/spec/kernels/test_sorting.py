# SPDX-License-Identifier: Apache-2.0
"""The sorting of ids, distributed over threads: its work, its memory, and lack of memory."""

import pytest

from tests.kernel_choice import found_compiler
from tests.spec.kernels import sanitized
from tests.subprocesses import start

IDS = 2 ** 20  # of the table in native/sorting.cc


@pytest.fixture(scope="module", name="lines_of")
def program_with_asan(tmp_path_factory):
    """Returns the lines of numbers that the program prints, under AddressSanitizer."""
    program = sanitized.compile_program(
        "sorting", tmp_path_factory.mktemp("sorting"),
        ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], found_compiler(),
        is_alone=True)

    def run(what):
        done = start([program, what])
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    return run


def test_work_of_a_thread_falls_as_there_are_more_of_them(lines_of):
    work = {int(threads): (int(scanned), int(sorted_ids))
            for threads, scanned, sorted_ids in lines_of("work")}
    assert list(work) == [1, 2, 4, 8, 16, 32, 64]
    for threads, (scanned, sorted_ids) in work.items():
        # Ids are scanned twice, and some are looked at to cut them into shares.
        assert scanned <= 2 * IDS / threads + 64 * (threads + 1)
        assert sorted_ids <= 1.5 * IDS / threads  # shares are as equal as those suggest


def test_one_thread_sorts_ids_of_any_size(lines_of):
    narrow, wide = lines_of("alone")
    assert int(narrow[0]) > 200 and int(wide[0]) > int(narrow[0])  # no line for a wrong one


def test_every_allocation_may_fail(lines_of):
    [[count, *words]] = lines_of("memory")
    assert int(count) > 30 and words == ["allocations", "failed"]


def test_any_exception_is_returned_once_all_work_is_done(lines_of):
    assert lines_of("exceptions") == [["odd", "after", "100"]] * 3


def test_memory_of_a_large_step_is_freed_after_small_ones(lines_of):
    small, large, *after = [int(kept) for _, kept in lines_of("scratch")]
    assert large > 32 * small > 0
    assert all(kept <= 3 * small for kept in after)
