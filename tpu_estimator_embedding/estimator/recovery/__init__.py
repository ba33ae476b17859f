# SPDX-License-Identifier: Apache-2.0
"""Training on servers that stop, restart or do not answer, and beside a chief that restarts."""
