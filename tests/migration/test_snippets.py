# SPDX-License-Identifier: Apache-2.0
"""Before and after of `--to imports`: the cases in snippets/*.txt.

A case is `=== its name`, the text before, `--- the codes of its report` (with line and column,
for what is not a change) and the text after; no text after means that nothing changes.
"""

import ast
import pathlib
import re

import pytest

from tpu_estimator_embedding.migration import codes
from tpu_estimator_embedding.migration.rewrite import rewrite

FILES = sorted(pathlib.Path(__file__).parent.glob("snippets/*.txt"))


def read_cases():
    for file in FILES:
        for case in re.split(r"^=== ", file.read_text(), flags=re.MULTILINE)[1:]:
            name, _, rest = case.partition("\n")
            before, expected, after = re.split(r"^---(.*)\n", rest, flags=re.MULTILINE)
            yield pytest.param(before, expected.split(), after or before, id=name)


CASES = list(read_cases())


def codes_of(findings):
    return sorted({finding.code if finding.about.kind == codes.CHANGED else
                   f"{finding.code}:{finding.line}:{finding.column}" for finding in findings})


def test_there_are_enough_cases():
    assert len(CASES) >= 100
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("before, expected, after", CASES)
def test_snippet(before, expected, after):
    result = rewrite(before)
    assert result.data.decode() == after
    assert codes_of(result.findings) == expected


@pytest.mark.parametrize("before, expected, after", CASES)
def test_result_is_python_and_is_not_rewritten_again(before, expected, after):
    ast.parse(after)
    assert rewrite(after).data.decode() == after


@pytest.mark.parametrize("before, expected, after", CASES)
def test_windows_line_ends_stay(before, expected, after):
    result = rewrite(before.replace("\n", "\r\n").encode())
    assert result.data == after.replace("\n", "\r\n").encode()
