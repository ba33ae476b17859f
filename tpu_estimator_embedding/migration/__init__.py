# SPDX-License-Identifier: Apache-2.0
"""Moves Estimator-era programs: to explicit imports, to TF2, to Keras layers, to Keras 3."""
