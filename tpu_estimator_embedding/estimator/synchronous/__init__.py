# SPDX-License-Identifier: Apache-2.0
"""Steps of several workers that make one update together."""
