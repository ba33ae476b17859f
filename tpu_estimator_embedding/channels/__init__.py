# SPDX-License-Identifier: Apache-2.0
"""Bounded queues that all graphs, sessions and threads of a process share."""
