# SPDX-License-Identifier: Apache-2.0
"""Execution of enqueue, dequeue and apply_gradients: batches, replicas, servers, variables."""
