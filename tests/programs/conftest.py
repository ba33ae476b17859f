# SPDX-License-Identifier: Apache-2.0
"""Keeps pytest from importing programs, which need `install()`, to look for doctests."""

collect_ignore_glob = ["found/*.py"]
