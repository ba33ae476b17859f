# SPDX-License-Identifier: Apache-2.0
"""Converts the input of a feature to EnqueueData.

Ids always have weights, 1 if the caller passes none, so that all batches have the same structure
and fit in one queue.
"""

import threading
from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, EnqueueData, to_enqueue_data
from tpu_estimator_embedding.mid_level.config.structure import Ids
from tpu_estimator_embedding.mid_level.input.enqueue_device import parse_device, refusal
from tpu_estimator_embedding.mid_level.input.output_shapes import OutputShape
from tpu_estimator_embedding.mid_level.input.row_layout import RowLayout
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.sparse_ids import check_weights_are_numbers, row_major
from tpu_estimator_embedding.types import Tensor

Leaves = Sequence[Any]


def feature_data(path: str, value: Ids, weights: Ids | None, layout: RowLayout) -> AnyEnqueueData:
    """Returns the ids of a feature and the rows of activations that they contribute to.

    Args:
        path: path of the feature.
        value: Tensor, SparseTensor or RaggedTensor of integers.
        weights: floats of the same tensor type with the same indices, or None.
        layout: the rows of all features.

    Raises:
        ValueError: if weights and ids differ in tensor type, weights are given for a dense
            Tensor, or the ids do not fill output_shape.
    """
    check_weights(path, value, weights)
    if isinstance(value, tf.RaggedTensor):
        return _from_ragged(path, value, weights, layout)
    if isinstance(value, tf.SparseTensor):
        return _from_sparse(path, value, weights, layout)
    return _from_dense(path, value, layout)


def batch_data(path: str, value: Ids, weights: Ids | None) -> AnyEnqueueData:
    """Returns the ids of a feature of any batch size, whose samples are those of the input.

    Args:
        path: path of the feature.
        value: Tensor of one id per sample, SparseTensor or RaggedTensor of rank 2, of integers.
        weights: floats of the same tensor type with the same indices, or None.

    Raises:
        ValueError: if weights and ids differ in tensor type, or weights are given for a dense
            Tensor.
    """
    check_weights(path, value, weights)
    return to_enqueue_data(value, weights)


def empty_data(max_sequence_length: int) -> EnqueueData:
    """Returns no ids, for a feature that a batch does not have."""
    places = [0, 2] if max_sequence_length else [0]
    return EnqueueData(tf.zeros([0], tf.int64), tf.zeros(places, tf.int64))


def batch_size_of(value: Ids) -> Tensor:
    """Returns the number of samples of the input of a feature, a scalar int32."""
    if isinstance(value, tf.RaggedTensor):
        return tf.cast(value.nrows(), tf.int32)
    shape = value.dense_shape if isinstance(value, tf.SparseTensor) else tf.shape(value)
    return tf.cast(shape[0], tf.int32)


def check_weights(path: str, value: Ids, weights: Ids | None) -> None:
    """Raises ValueError unless weights are None or numbers in the tensor type of sparse ids."""
    if weights is None:
        return
    checks.check_with_sentence(
        isinstance(value, tf.SparseTensor | tf.RaggedTensor), "Weight specified for dense input "
        f"{path}, which is not allowed. Weight will always be 1 in this case.",
        "Pass the ids and weights as SparseTensors or RaggedTensors.")
    kind = tf.SparseTensor if isinstance(value, tf.SparseTensor) else tf.RaggedTensor
    checks.check_with_sentence(
        isinstance(weights, kind), f"Weight for {path} is type {type(weights)} which does not "
        f"match type input which is {kind.__name__}.",
        "Pass both as the same type of tensor, with the same indices.")
    check_weights_are_numbers(weights, path)


def _from_dense(path: str, value: Tensor, layout: RowLayout) -> AnyEnqueueData:
    num_rows = layout.num_rows(path)
    checks.check(value.shape.num_elements() in (None, num_rows),
                 f"number of ids of feature {path!r}", f"{num_rows}, one per row of activations",
                 value.shape.num_elements())
    places = tf.range(num_rows, dtype=tf.int64) if layout.rows_per_sample[path] else None
    return to_enqueue_data(
        value, places=None if places is None else _coordinates(path, places, layout))


def _from_sparse(path: str, value: tf.SparseTensor, weights: tf.SparseTensor | None,
                 layout: RowLayout) -> AnyEnqueueData:
    shape = layout.shapes[path]
    if shape.max_sequence_length and value.shape.rank == 2:
        shape = shape._replace(sequence_length=shape.max_sequence_length)
    _check_sparse_shape(path, value, shape)
    samples = shape.dims[:1] if shape.sequence_length else shape.dims
    static = value.shape.as_list()[:len(samples)]
    with tf.control_dependencies([] if static == list(samples) else require(
            tf.reduce_all(tf.equal(value.dense_shape[:len(samples)], list(samples))),
            f"Batch of feature {path!r} must be {list(samples)} as in earlier calls.",
            ValueError)):
        indices = tf.identity(value.indices)
    has_one_row = len(samples) == 1 and not (shape.sequence_length or layout.rows_per_sample[path])
    if layout.is_sequence(path) or has_one_row:
        return to_enqueue_data(value, weights, places=indices)
    rows = row_major(indices, cast(tuple[int, ...], samples), len(samples))
    return _at_rows(path, value, weights, rows, indices[:, -1], shape.sequence_length, layout)


def _from_ragged(path: str, value: tf.RaggedTensor, weights: tf.RaggedTensor | None,
                 layout: RowLayout) -> AnyEnqueueData:
    shape, num_rows = layout.shapes[path], layout.num_rows(path)
    length = shape.sequence_length
    num_samples: Any = value.shape[0]
    if shape.is_stated:
        num_samples = num_samples or (shape.dims[0] if shape.max_sequence_length else num_rows)
        checks.check(num_rows % num_samples == 0, f"batch of feature {path!r}",
                     f"a divisor of the rows of its output_shape, {num_rows}", num_samples)
        length = num_rows // num_samples if num_rows > num_samples else 0
    expected = num_rows // (length or 1)
    with tf.control_dependencies([] if value.shape[0] is not None else require(
            tf.equal(value.nrows(), expected),
            f"Batch of feature {path!r} must be {expected} as in earlier calls.", ValueError)):
        splits = tf.identity(value.row_splits)
    if layout.is_sequence(path) or (not length and not layout.rows_per_sample[path]):
        return to_enqueue_data(value, weights, places=splits)
    samples = tf.cast(value.value_rowids(), tf.int64)
    positions = tf.range(tf.size(samples, tf.int64)) - tf.gather(tf.cast(splits, tf.int64), samples)
    return _at_rows(path, value, weights, samples, positions, length, layout)


def _at_rows(path: str, value: tf.SparseTensor | tf.RaggedTensor,
             weights: tf.SparseTensor | tf.RaggedTensor | None, samples: Tensor, positions: Tensor,
             length: int, layout: RowLayout) -> EnqueueData:
    """Returns ids with the coordinates of their samples and, for a sequence, positions."""
    ids, weights = value.values, None if weights is None else weights.values
    if not length:
        return EnqueueData(ids, _coordinates(path, samples, layout), weights)
    kept = tf.where(positions < length)[:, 0]
    rows = tf.gather(samples * length + positions, kept)
    return EnqueueData(tf.gather(ids, kept), _coordinates(path, rows, layout),
                       None if weights is None else tf.gather(weights, kept))


def _coordinates(path: str, rows: Tensor, layout: RowLayout) -> Tensor:
    count = layout.rows_per_sample[path]
    return tf.stack([rows // count, rows % count], 1) if count else rows


def _check_sparse_shape(path: str, value: tf.SparseTensor, shape: OutputShape) -> None:
    num_dims = 2 if shape.sequence_length else len(shape.dims) + 1
    checks.check(value.shape.rank == num_dims, f"rank of the sparse input of feature {path!r}",
                 f"{num_dims}, for activations {list(shape.dims)}", value.shape.rank)
    for size, expected in zip(value.shape.as_list()[:num_dims - 1], shape.dims, strict=False):
        checks.check(size in (None, expected), f"batch of feature {path!r}",
                     f"{list(shape.dims)}", value.shape)


class DeviceShares:
    """The shares of one batch received so far, by one thread for each device or by one for all.

    >>> shares = DeviceShares(["/device:CPU:0", "/device:CPU:1"])
    >>> shares.add("/TPU:1", [11], training=True)
    >>> shares.add("/TPU:0", [10], training=True)
    [[10], [11]]
    """

    def __init__(self, devices: Sequence[str]) -> None:
        """Starts without shares; `devices` has the device of each replica."""
        self._devices = list(devices)
        self._shares: dict[int, Leaves] = {}
        self._training = False
        self._graph: tf.Graph | None = None  # of the function that added the shares
        self._lock = threading.RLock()

    def add(self, device: str, leaves: Leaves, training: bool) -> list[Leaves] | None:
        """Adds the share of one replica.

        Args:
            device: the device of a replica, or "/TPU:r" for replica r.
            leaves: the values of the share.
            training: whether gradients will follow, the same for all replicas.

        Returns:
            The shares of all replicas if this was the last one, else None.

        Raises:
            TypeError: if the device is no string.
            ValueError: if no replica has the device, a device is given inside `strategy.run` or
                together with distributed values, or `training` differs between the shares.
            RuntimeError: if the device already has its share, or another function left shares.
        """
        replica = self._replica(device)
        _check_is_one_share(device, leaves)
        with self._lock:
            if self._shares and _current_function() is not self._graph:
                self.check_complete()
            checks.check(not self._shares or training == self._training, "training",
                         f"{self._training}, as for the other devices", training)
            if replica in self._shares:
                raise RuntimeError(f"`device` must be the device of a replica without ids, got "
                                   f"{device!r} twice. Devices without ids: {self._missing()}.")
            self._shares[replica], self._training = leaves, training
            self._graph = _current_function()
            return None if self._missing() else self._take()

    def check_complete(self) -> None:
        """Raises RuntimeError if only some replicas have a share.

        The shares stay, except for those of another function, which no call can complete.
        """
        with self._lock:
            if not self._shares:
                return
            missing = self._missing()
            kept = "wait for them. Call drop_batches() to drop them"
            if _current_function() is not self._graph:
                self.drop()
                kept = "were tensors of another function, and are dropped"
            raise RuntimeError("`enqueue` must be called for every device, got no ids for "
                               f"{missing}. The ids of the other devices {kept}.")

    def drop(self) -> None:
        """Drops the shares."""
        with self._lock:
            self._take()

    def _replica(self, device: str) -> int:
        specs = [tf.DeviceSpec.from_string(name) for name in self._devices]
        rule = (f"None, one of {self._devices}, or '/TPU:0' to '/TPU:{len(specs) - 1}' for the "
                "replicas in order")
        spec = parse_device(device, rule)
        found = [replica for replica, own in enumerate(specs)
                 if (spec.device_type, spec.device_index) in (
                     (own.device_type, own.device_index), ("TPU", replica))]
        if not found:
            raise ValueError(refusal(device, rule))
        return found[0]

    def _missing(self) -> list[str]:
        return [name for replica, name in enumerate(self._devices) if replica not in self._shares]

    def _take(self) -> list[Leaves]:
        shares = [self._shares[replica] for replica in sorted(self._shares)]
        self._shares, self._graph = {}, None
        return shares


def _current_function() -> tf.Graph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _check_is_one_share(device: str, leaves: Leaves) -> None:
    checks.check(tf.distribute.in_cross_replica_context() or not tf.distribute.has_strategy(),
                 "device", "None inside strategy.run, because each replica has its device", device)
    checks.check(not any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in leaves),
                 "device", "None for distributed values, which contain all replicas", device)
