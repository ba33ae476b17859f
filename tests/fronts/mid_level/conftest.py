# SPDX-License-Identifier: Apache-2.0
"""The programs here run in separate processes: pytest imports the tests only."""

collect_ignore_glob = ["*_program.py"]
