# SPDX-License-Identifier: Apache-2.0
"""The programs here run in processes of their own: pytest imports the tests alone."""

collect_ignore_glob = ["*_program.py"]
