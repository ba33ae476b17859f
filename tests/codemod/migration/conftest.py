# SPDX-License-Identifier: Apache-2.0
"""What of this folder is not collected."""

collect_ignore = ["dlrm.py", "keras3_driver.py", "keras3_optimizers.py", "packages"]  # programs
