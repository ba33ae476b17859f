# SPDX-License-Identifier: Apache-2.0
"""Keeps pytest from importing programs, to look for doctests."""

collect_ignore_glob = ["*/*.before.py", "*/*.after.py"]
