# SPDX-License-Identifier: Apache-2.0
"""Checks `TPUConfig.input_partition_dims`, which splits a replica's tensors over cores of a TPU.

Nothing is split here, which does not affect results; dims that a TPU rejects are rejected.
"""

import math
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator import upstream
from tpu_estimator_embedding.estimator.input.step_input import StepInput

_Recorder = upstream.tpu_estimator._InputPipeline.InputsStructureRecorder


def check_partition_dims(tpu_config: Any, inputs: StepInput) -> None:
    """Checks the dims against the features and labels of a replica, except embedding features.

    Raises:
        ValueError: if dims and tensors differ in structure or rank, or the product of dims is
            not num_cores_per_replica.
    """
    dims = tpu_config.input_partition_dims
    if not dims:
        return
    replica = inputs.replicas[0]
    recorder = _Recorder(dims)
    recorder.validate_and_record_structure(replica.features, replica.labels)
    tensors = tf.nest.flatten([replica.features, replica.labels])
    for tensor, of_tensor in zip([tensor for tensor in tensors if tensor is not None],
                                 recorder.flattened_input_dims, strict=True):
        if of_tensor is not None:
            _check(tensor, list(of_tensor), tpu_config.num_cores_per_replica)


def _check(tensor: Any, dims: list[int], cores: int) -> None:
    if min(dims) < 1:
        raise ValueError(f"All input partition dims must be >= 1. Got {dims}.")
    parts = math.prod(dims)
    if parts == 1:
        return
    if parts != cores:
        raise ValueError(
            "The product of each input partition dim should equal to num_cores_per_replica. "
            f"(dim = {dims}, num_cores_per_replica = {cores})")
    if tensor.shape.rank not in (None, len(dims)):
        raise ValueError(
            "Input partition dims must have the same number of dimensions as the `Tensor` to be "
            f"partitioned. (tensor shape = {tensor.shape}, input partition dims = {dims}).")
