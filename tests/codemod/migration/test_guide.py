# SPDX-License-Identifier: Apache-2.0
"""The migration guide: its pages name what there is, its table is what `migrate` uses."""

import re
import runpy

import pytest

from tests.docs import ROOT
from tpu_estimator_embedding.migration.codes import CODES
from tpu_estimator_embedding.migration.rewrite import rewrite

GUIDE = ROOT / "migration_guide"


@pytest.mark.parametrize("page", sorted(path.parent.name for path in GUIDE.glob("*/before.py")))
def test_explicit_imports_leave_nothing_to_be_done(page):
    result = rewrite((GUIDE / page / "before.py").read_bytes(), "before.py")
    assert result.data != (GUIDE / page / "before.py").read_bytes()
    assert all(finding.code < "TEE2" for finding in result.findings)
    assert (GUIDE / f"{page}.rst").exists()


def test_every_code_is_explained_where_the_report_points_to():
    text = (GUIDE / "report_codes.rst").read_text()
    page = runpy.run_path(str(ROOT / "docs" / "report_codes.py"))
    assert text == "\n".join(page["lines"]()), (
        "python docs/report_codes.py > migration_guide/report_codes.rst")
    for code in CODES.values():
        path, _, anchor = code.guide.partition("#")
        assert ROOT / path == GUIDE / "report_codes.rst"
        assert f"\n.. _{anchor}:\n\n{code.name}\n---" in text


def test_files_and_codes_that_pages_name_exist():
    for page in GUIDE.glob("*.rst"):
        text = page.read_text()
        assert {name.upper() for name in re.findall(r":ref:`(tee\d+)`", text)} <= CODES.keys()
        for name in re.findall(r"``(\w+\.rst)``", text):
            assert (GUIDE / name).exists(), f"{page.name}: {name}"
        for path in re.findall(r"literalinclude:: /\.\./(\S+)", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
