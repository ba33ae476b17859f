# SPDX-License-Identifier: Apache-2.0
"""Reads and prepares the input step by step, and puts it into the queue of steps."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.estimator.input.input_reader import Reading

_STEPS_WAITING = 4  # in addition to the one in preparation


class Feeding:
    """The ops that feed a queue.

    Datasets are fed by a loop in the graph: one run of the session feeds all steps, without
    Python between two of them. Tensors are evaluated once per run, so each step takes one run;
    so it does for Datasets in a cluster.

    Attributes:
        queue: the queue that is fed.
        in_one_run: whether one run of `feed` feeds all steps.
        feed: the op that feeds steps until `stop` runs, or one step.
        stop: ends `feed` after the current step.
        start: the op to run first.
        steps_fed: variable that counts the steps.
    """

    def __init__(self, reading: Reading, prepare: Callable[[list[tuple[Any, Any]]], Any], *,
                 in_one_run: bool):
        """Makes the ops in the default graph.

        Args:
            reading: where the batches of a step come from.
            prepare: converts them to the input of a step.
            in_one_run: whether one run may feed all steps, if they come from Datasets.
        """
        self.steps_fed = _local_variable("input_steps_fed", 0, tf.int64)
        self._goes_on = _local_variable("input_goes_on", True, tf.bool)
        self.stop = self._goes_on.assign(False, read_value=False)
        initializers = [self.steps_fed.initializer, self._goes_on.initializer]
        if reading.initializer is not None:
            initializers.append(reading.initializer)
        self.start = tf.group(*initializers)

        def feed_one() -> tf.Operation:
            step = prepare(reading.read())
            with tf.init_scope():  # outside the loop
                self.queue = TensorQueue(step, capacity=_STEPS_WAITING)
            with tf.control_dependencies([self.queue.enqueue(step)]):
                return self.steps_fed.assign_add(1, read_value=False)

        self.in_one_run = in_one_run and reading.is_repeatable
        self.feed = self._repeat(feed_one) if self.in_one_run else feed_one()

    def _repeat(self, feed_one: Callable[[], tf.Operation]) -> tf.Operation:
        def body(goes_on: Any) -> Any:
            with tf.control_dependencies([feed_one()]):
                return self._goes_on.read_value()

        return tf.compat.v1.while_loop(
            lambda goes_on: goes_on, body, [self._goes_on.read_value()],
            parallel_iterations=1).op


def _local_variable(name: str, value: Any, dtype: tf.DType) -> tf.Variable:
    return tf.compat.v1.get_variable(
        name, [], dtype, initializer=tf.compat.v1.constant_initializer(value, dtype),
        use_resource=True, trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])
