# SPDX-License-Identifier: Apache-2.0
"""Random TPUEstimator programs, run in all ways that must give the same numbers.

`embeddings`, `models`, `training` and `inputs` are the grammar, and `grammar` puts a program
together. `ways` runs it, `reference` computes the same with stock TensorFlow and the tests' oracle.
"""
