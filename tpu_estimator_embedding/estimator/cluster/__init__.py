# SPDX-License-Identifier: Apache-2.0
"""Training on parameter servers: their state, recovery from faults, and synchronous steps."""
