# SPDX-License-Identifier: Apache-2.0
"""What of this folder is not collected."""

collect_ignore = ["keras3_driver.py"]  # a program, which needs JAX and Keras 3
