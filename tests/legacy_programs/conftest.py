# SPDX-License-Identifier: Apache-2.0
"""The programs here run in processes of their own: pytest imports the tests alone."""

import pathlib

collect_ignore = [path.name for path in pathlib.Path(__file__).parent.glob("*.py")
                  if not path.name.startswith(("test_", "conftest"))]
