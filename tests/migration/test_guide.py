# SPDX-License-Identifier: Apache-2.0
"""The migration guide: its programs are what `migrate` writes, its table what `migrate` uses."""

import pytest

from tests.docs import ROOT
from tpu_estimator_embedding.migration import names_page
from tpu_estimator_embedding.migration.legacy_names import NAMES
from tpu_estimator_embedding.migration.rewrite import rewrite

GUIDE = ROOT / "migration_guide"


@pytest.mark.parametrize("page", sorted(path.parent.name for path in GUIDE.glob("*/before.py")))
def test_program_after_is_what_the_rewriter_writes(page):
    result = rewrite((GUIDE / page / "before.py").read_bytes(), "before.py")
    assert result.data == (GUIDE / page / "after_imports.py").read_bytes()
    assert all(finding.code < "TEE2" for finding in result.findings)
    assert (GUIDE / f"{page}.rst").exists()


def test_table_of_names_has_a_cell_for_every_name_and_stage():
    lines = list(names_page.lines())
    assert lines.count("   * - ``estimator.tpu.TPUEstimator``") == 1
    assert sum(line.startswith("   * - ``") for line in lines) == len(NAMES)
    assert sum(line.startswith("     - ") for line in lines) == 4 * (len(NAMES) + 1)


def test_special_characters_are_escaped():
    row = next(line for line in names_page.lines() if "bfloat16" in line and "mixed" in line)
    assert r"set\_global\_policy('mixed\_bfloat16')" in row
