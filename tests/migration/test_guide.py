# SPDX-License-Identifier: Apache-2.0
"""The migration guide: its programs are what `migrate` writes, its table what `migrate` uses."""

import re

import pytest

from tests.docs import ROOT
from tpu_estimator_embedding.migration import codes_page, legacy_names
from tpu_estimator_embedding.migration.codes import CODES, OPEN
from tpu_estimator_embedding.migration.legacy_names import NAMES
from tpu_estimator_embedding.migration.rewrite import rewrite

GUIDE = ROOT / "migration_guide"


@pytest.mark.parametrize("page", sorted(path.parent.name for path in GUIDE.glob("*/before.py")))
def test_program_after_is_what_the_rewriter_writes(page):
    result = rewrite((GUIDE / page / "before.py").read_bytes(), "before.py")
    assert result.data == (GUIDE / page / "after_imports.py").read_bytes()
    assert all(finding.code < "TEE2" for finding in result.findings)
    assert (GUIDE / f"{page}.rst").exists()


@pytest.mark.parametrize("page", ["checkpoints", "export", "replicas", "summaries"])
def test_page_explains_what_the_tool_leaves_to_be_done(page):
    found = rewrite((GUIDE / page / "before.py").read_bytes(), "before.py", to="tf2").findings
    left = {finding.code for finding in found if finding.about.kind in OPEN}
    text = (GUIDE / f"{page}.rst").read_text()
    assert left <= {name.upper() for name in re.findall(r":ref:`(tee\d+)`", text)}
    assert page == "replicas" or left


def test_every_code_is_explained_where_the_report_points_to():
    text = (GUIDE / "report_codes.rst").read_text()
    assert text == "\n".join(codes_page.lines()), (
        "python -m tpu_estimator_embedding.migration.codes_page > migration_guide/report_codes.rst")
    assert codes_page.ADVICE.keys() == CODES.keys()
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


def test_every_program_is_on_a_page():
    pages = {path.stem: path.read_text() for path in GUIDE.glob("*.rst")}
    for path in GUIDE.glob("*/*.py"):
        assert f"{path.parent.name}/{path.name}" in pages[path.parent.name] or (
            f"``migration_guide/{path.parent.name}/``" in pages[path.parent.name])


def test_table_of_names_has_a_cell_for_every_name_and_stage():
    lines = list(legacy_names.page_lines())
    assert lines.count("   * - ``estimator.tpu.TPUEstimator``") == 1
    assert sum(line.startswith("   * - ``") for line in lines) == len(NAMES)
    assert sum(line.startswith("     - ") for line in lines) == 4 * (len(NAMES) + 1)


def test_special_characters_are_escaped():
    row = next(line for line in legacy_names.page_lines() if "bfloat16" in line and "mixed" in line)
    assert r"set\_global\_policy('mixed\_bfloat16')" in row
