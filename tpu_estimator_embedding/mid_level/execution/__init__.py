# SPDX-License-Identifier: Apache-2.0
"""Executes enqueue, dequeue and apply_gradients: batches, replicas, parameter servers, variables."""
