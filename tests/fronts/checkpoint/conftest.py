# SPDX-License-Identifier: Apache-2.0
"""What of this folder is not collected."""

# Programs, which need JAX and Keras 3.
collect_ignore = ["jax_model.py", "sparse_core_model.py"]
