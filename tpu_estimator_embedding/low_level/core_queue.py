# SPDX-License-Identifier: Apache-2.0
"""The queues of one core: enqueued batches, and the received batch whose gradients are due.

    enqueue ─▶ waiting ─ receive ─▶ due ─ take_due ─▶ gradients
    enqueue ───────────────▶ backward only ─ take_backward_only ─▶ gradients

Batches are received in the order in which they were enqueued, also in another graph or session;
without the native kernels, in the same graph and session only. Receiving blocks until there is a
batch. Calls that would block forever on a TPU raise
InvalidArgumentError: sending gradients of a batch for inference, and receiving a batch while
gradients are due.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

import tensorflow as tf

from tpu_estimator_embedding.channels import channel
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.step import EnqueueDatas, StepIds
from tpu_estimator_embedding.engine.step_ids import prepare_ids, prepare_replicas
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.low_level.engine_configuration import BatchMode
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor

_BATCHES_WAITING = 100  # enqueueing blocks while the queue is full, as on a TPU


# Ends the name of the channel of an update that waits for the next batch: a part of the tables.
DELAYED_UPDATE = "delayed update"


class Share(NamedTuple):
    """How batches are split over cores.

    Attributes:
        plan: the tables and features.
        batch_size: samples of one core's share.
        num_cores: number of shares of a batch.
        training: whether the engine can be trained.
        engine: name of the engine, in the names of its channels.
        is_of_process: whether the tables belong to the process, not to a graph and session.
    """

    plan: EmbeddingPlan
    batch_size: int
    num_cores: int
    training: bool
    engine: str
    is_of_process: bool = False


class CoreIds(NamedTuple):
    """The checked ids of one core; their structure is the same for every batch.

    Attributes:
        own: the prepared ids of this core, for the lookup. If there is only one core, the
            update uses them too.
        joinable: feature name -> ids, sample indices and weights, from which `join_cores`
            prepares the ids of the update. Empty if there is only one core, or no training.
    """

    own: StepIds
    joinable: Mapping[str, EnqueueData]

    def without_own(self) -> "CoreIds":
        """Returns the ids that the update needs, without those that only the lookup needs."""
        return self._replace(own=cast(StepIds, ())) if self.joinable else self


def core_ids(share: Share, enqueue_datas: EnqueueDatas) -> CoreIds:
    """Checks the ids of one core.

    Args:
        share: how the batch is split.
        enqueue_datas: feature name -> ids.
    """
    is_alone = share.num_cores == 1
    own = prepare_ids(share.plan, enqueue_datas, share.batch_size,
                      training=share.training and is_alone, uniform=True)
    if is_alone or not share.training:
        return CoreIds(own, {})
    checked = [leaf for leaf in tf.nest.flatten(own) if leaf is not None]
    with tf.control_dependencies(checked):
        return CoreIds(own, {
            feature.name: EnqueueData(*with_all_parts(feature, enqueue_datas[feature.name]))
            for feature in share.plan.features})


def join_cores(share: Share, cores: Sequence[CoreIds]) -> StepIds:
    """Combines the ids of all cores into the prepared ids of one update."""
    if share.num_cores == 1:
        return cores[0].own
    return prepare_replicas(share.plan, [(core.joinable, share.batch_size) for core in cores],
                            training=True, uniform=True)


def example_ids(share: Share) -> CoreIds:
    """Returns placeholders, in the default graph, with the structure of every batch's ids."""
    return core_ids(share, {feature.name: EnqueueData(
        tf.compat.v1.placeholder(tf.int64, [None]),
        tf.compat.v1.placeholder(tf.int64, [None, 2])) for feature in share.plan.features})


def with_all_parts(feature: FeaturePlan,
                   data: EnqueueData | RaggedEnqueueData) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ids `[n]`, their samples `[n]` or places in sequences `[n, 2]`, and weights `[n]`."""
    ids, places, weights = data
    ids = tf.cast(tf.reshape(ids, [-1]), tf.int64)
    places = _coordinates(feature, data, tf.size(ids, tf.int64), places)
    sparse_ids.check_weights_are_numbers(weights, feature.name)
    flat = sparse_ids.flat_weights(weights)
    return ids, places, tf.ones_like(ids, tf.float32) if flat is None else flat


def _coordinates(feature: FeaturePlan, data: EnqueueData | RaggedEnqueueData, count: Tensor,
                 places: Tensor | None) -> Tensor:
    """Returns the sample `[n]` of each id, or sample and position `[n, 2]` for a sequence."""
    if places is None:
        return tf.range(count)
    places = tf.cast(places, tf.int64)
    if isinstance(data, RaggedEnqueueData):
        samples = sparse_ids.samples_of_rows(places, count)
        positions = tf.range(count) - tf.gather(places, samples)
        return tf.stack([samples, positions], 1) if feature.max_sequence_length else samples
    if feature.max_sequence_length or places.shape.rank == 1:
        return places
    return places[:, 0]


class Batch(NamedTuple):
    """One core's share of a batch.

    Attributes:
        ids: the ids of the share.
        trains: scalar bool, whether gradients are due after the batch was received.
    """

    ids: CoreIds
    trains: Tensor


_Batch = TypeVar("_Batch")


def _queue_of(share: Share, name: str, element: _Batch) -> TensorQueue[_Batch]:
    """Returns a queue of the process; without native kernels, of one graph and session."""
    return TensorQueue(element, capacity=_BATCHES_WAITING, channel=channel_of(share, name)
                       if channel.are_available() else None)


def channel_of(share: Share, name: str) -> str:
    """Returns the name of a channel of the engine, which ends with it."""
    return f"{share.engine} {name}"


class CoreQueue:
    """Keeps the batches of one core in order."""

    def __init__(self, core: int, share: Share):
        """Creates empty queues for the batches of one core."""
        self._core = core
        with tf.Graph().as_default():
            batch = Batch(example_ids(share), tf.compat.v1.placeholder(tf.bool, []))
        self._waiting = _queue_of(share, f"ids of core {core}", batch)
        self._due = TensorQueue(batch, capacity=1)
        self._backward_only = _queue_of(share, f"backward-pass-only ids of core {core}", batch.ids)

    def enqueue(self, ids: CoreIds, mode: BatchMode) -> tf.Operation:
        """Returns the op that enqueues a batch; it blocks while the queue is full."""
        if mode != BatchMode.BACKWARD_PASS_ONLY:
            return self._waiting.enqueue(Batch(ids, tf.constant(mode == BatchMode.TRAINING)))
        nothing_waits = assert_that(
            tf.equal(self._waiting.size(), 0),
            "mode_override='backward_pass_only' must be enqueued after all earlier batches were "
            f"received, got batches of core {self._core} that were not received.")
        with tf.control_dependencies(nothing_waits):
            return self._backward_only.enqueue(ids)

    def receive(self) -> Batch:
        """Dequeues the next batch; blocks until there is one."""
        with tf.control_dependencies([self._drop_inference_batch()]):
            number_due = self._due.size() + self._backward_only.size()
        nothing_due = assert_that(
            tf.equal(number_due, 0),
            f"Gradients of the previous batch must be sent before core {self._core} receives "
            "another one, got none. Run the op that generate_send_gradients_op returned together "
            "with the activations, or enqueue with mode_override='inference'.")
        with tf.control_dependencies(nothing_due):
            return self._waiting.dequeue()

    def receive_in_loop(self) -> Batch:
        """Dequeues the next batch for a step whose graph sends its gradients too, if it trains."""
        return self._waiting.dequeue()

    def set_due(self, batch: Batch) -> tf.Operation:
        """Returns the op that stores `batch` as the one whose gradients are due."""
        return self._due.enqueue(batch)

    def take_due(self) -> CoreIds:
        """Dequeues the ids of the received batch."""
        return self.trained_ids(self._due.dequeue())

    def trained_ids(self, batch: Batch) -> CoreIds:
        """Returns the ids of a batch; an error when they are evaluated if it is for inference."""
        is_expected = assert_that(
            batch.trains,
            f"Gradients must be sent for training batches only, got gradients of core "
            f"{self._core} for a batch for inference. Leave out generate_send_gradients_op, or "
            "the mode_override of generate_enqueue_ops.")
        with tf.control_dependencies(is_expected):
            return tf.nest.map_structure(
                lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf, batch.ids)

    def take_backward_only(self) -> CoreIds:
        """Dequeues the ids of the next backward-pass-only batch; blocks until there is one."""
        return self._backward_only.dequeue()

    def _drop_inference_batch(self) -> Tensor:
        """Drops the received batch if it was for inference, because no gradients are due."""
        def drop_or_put_back() -> Tensor:
            batch = self._due.dequeue()
            return tf.cond(batch.trains, lambda: after(self._due.enqueue(batch)),
                           lambda: tf.constant(True))

        return tf.cond(self._due.size() > 0, drop_or_put_back, lambda: tf.constant(True))
