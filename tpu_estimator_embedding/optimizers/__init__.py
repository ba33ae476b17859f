# SPDX-License-Identifier: Apache-2.0
"""The optimizers of the embedding engine: one update rule in each module.

Modules are imported by name, as in
`from tpu_estimator_embedding.optimizers.adagrad import Adagrad`; `registry.rules()` finds all of
them. `row_optimizer.RowOptimizer` adds the settings that they share. `record` lists the names of
an optimizer in checkpoints, messages and APIs, and explains how to add one.
"""
