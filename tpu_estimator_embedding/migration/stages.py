# SPDX-License-Identifier: Apache-2.0
"""The stages of migration, from the legacy program on: values of `--to`, and columns of a page."""

STAGES = ("imports", "tf2", "layers", "keras3")
LATER_STAGES = STAGES[1:]  # those without a TPUEstimator
