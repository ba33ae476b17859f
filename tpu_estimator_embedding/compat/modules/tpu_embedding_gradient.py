# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.tpu_embedding_gradient`, with this package's functions."""

from tpu_estimator_embedding.low_level.tpu_embedding_gradient import (
    create_dummy_table_variables,
    get_gradients_through_compute_gradients,
    get_gradients_through_dummy_table_variables,
    hook_dummy_table_variables_to_activations,
)

__all__ = [
    "create_dummy_table_variables", "get_gradients_through_compute_gradients",
    "get_gradients_through_dummy_table_variables", "hook_dummy_table_variables_to_activations",
]
