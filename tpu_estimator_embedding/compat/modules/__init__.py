# SPDX-License-Identifier: Apache-2.0
"""The modules that TensorFlow 2.16 removed; `compat.restored_modules` puts them in place."""
