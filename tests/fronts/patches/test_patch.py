# SPDX-License-Identifier: Apache-2.0
"""Patches: what they change, when they do not, and what they remember."""



from tpu_estimator_embedding.patches import patch_table
from tpu_estimator_embedding.patches.patch import Patch


def test_table_has_every_name_once():
    rows = [row for table in vars(patch_table).values() if isinstance(table, tuple)
            for row in table if isinstance(row, Patch)]
    paths = [(row.path, row.source) for row in rows]
    assert len(paths) > 50 and len(set(paths)) == len(paths)
