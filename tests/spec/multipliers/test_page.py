# SPDX-License-Identifier: Apache-2.0
"""What docs/experiments.rst says of the schedules."""

import re

from tests import docs
from tpu_estimator_embedding import multipliers

PAGE = docs.page("experiments")


def test_every_schedule_of_the_table_has_the_text_beside_it():
    rows = re.findall(r"``(\w+\([^`]*\))`` +``([^`]+)``", PAGE, re.MULTILINE)
    assert {python.split("(")[0] for python, _ in rows} == set(multipliers.__all__) - {
        "Schedule", "TableMultipliers", "parse", "to_schedule"}
    for python, text in rows:
        schedule = eval(python, vars(multipliers))
        assert (schedule.text, multipliers.parse(text)) == (text, schedule)


def test_example_prints_what_it_says(capsys):
    [example] = [block for block in docs.code_blocks(PAGE) if "print(" in block]
    exec(compile(example, "experiments.rst", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"  # (.*)", example)
