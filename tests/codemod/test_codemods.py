# SPDX-License-Identifier: Apache-2.0
"""Every program of the pairs of files becomes what stands beside it."""

import ast
import importlib
import importlib.util

import pytest

from tests.codemod.cases import read_cases
from tpu_estimator_embedding.migration import codes
from tpu_estimator_embedding.migration.rewrite import rewrite

CASES = [pytest.param(case, id=case.name) for case in read_cases()]
pytestmark = pytest.mark.all_cases  # which say different things, and take milliseconds


def codes_of(findings):
    return sorted({finding.code if finding.about.kind == codes.CHANGED else
                   f"{finding.code}:{finding.line}:{finding.column}" for finding in findings})


@pytest.mark.parametrize("case", CASES)
def test_program_becomes_its_counterpart(case):
    result = rewrite(case.before, to=case.stage)
    assert result.data.decode() == case.after
    assert codes_of(result.findings) == case.report


@pytest.mark.parametrize("case", CASES)
def test_result_is_python_and_explicit_imports_are_not_rewritten_again(case):
    ast.parse(case.after)
    if case.stage == "imports":
        assert rewrite(case.after).data.decode() == case.after


@pytest.mark.parametrize("case", CASES)
def test_what_is_imported_of_this_package_is_there(case):
    for node in ast.walk(ast.parse(case.after)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tpu_estimator_"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) or importlib.util.find_spec(
                f"{node.module}.{alias.name}") for alias in node.names), ast.unparse(node)


@pytest.mark.parametrize("case", CASES)
def test_windows_line_ends_stay(case):
    result = rewrite(case.before.replace("\n", "\r\n").encode(), to=case.stage)
    assert result.data == case.after.replace("\n", "\r\n").encode()
