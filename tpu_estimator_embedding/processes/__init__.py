# SPDX-License-Identifier: Apache-2.0
"""Child processes: `child_process` starts, watches and ends them, and all that they start."""
