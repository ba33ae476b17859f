# SPDX-License-Identifier: Apache-2.0
"""Makes what is published. Not part of the package: run it from the checkout."""
