# SPDX-License-Identifier: Apache-2.0
"""The infeed of replicas of several cores, on this machine.

On a TPU the cores of a replica share its computation, and each receives a partition of its input.
Here a replica is computed as one, so that it gets the whole input, at its first core.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu_feed
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.types import Tensor

_tensorflow_enqueue_ops = tpu_feed._PartitionedInfeedQueue.generate_enqueue_ops


@functools.wraps(_tensorflow_enqueue_ops)
def generate_enqueue_ops(self: Any,
                         sharded_inputs: Sequence[Sequence[Tensor]]) -> list[tf.Operation]:
    """Returns the op of each replica that enqueues its input.

    Args:
        self: the `_PartitionedInfeedQueue`.
        sharded_inputs: the tensors of each replica of the host.

    Raises:
        ValueError: if an input cannot be partitioned as its `input_partition_dims` say, or the
            replicas do not have equal dtypes and shapes.
    """
    if tpu_system.is_present():
        return _tensorflow_enqueue_ops(self, sharded_inputs)
    self.set_configuration_from_sharded_input_tensors(sharded_inputs)
    dims = self._input_partition_dims
    checks.check(dims is not None and len(dims) == len(sharded_inputs[0]), "input_partition_dims",
                 f"a list of {len(sharded_inputs[0])}, one for each input", dims)
    assignment = self._device_assignment
    replicas = assignment.lookup_replicas(task_id=self._host_id, logical_core=0)
    checks.check(len(sharded_inputs) <= len(replicas), "sharded_inputs",
                 f"the inputs of the {len(replicas)} replicas of host {self._host_id}",
                 len(sharded_inputs))
    enqueues = []
    for replica, inputs in zip(replicas, sharded_inputs, strict=False):
        for value, of_value in zip(inputs, dims, strict=True):
            self._check_input_partition_dims(value, of_value)
        with tf.device(assignment.host_device(replica=replica)):
            enqueues.append(tpu_ops.infeed_enqueue_tuple(
                inputs, [value.shape for value in inputs],
                device_ordinal=assignment.tpu_ordinal(replica=replica),
                name=f"enqueue/replica_{replica}"))
    return enqueues
