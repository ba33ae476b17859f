# SPDX-License-Identifier: Apache-2.0
"""The base class of baselines whose step runs in a session."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.baselines.graph_inputs import Feeds, initialize
from benchmarks.baselines.stepping import timed_steps

Parts = Sequence[tf.Variable]


class SessionSteps:
    """A step that is built once and runs in a session."""

    def __init__(self, build: Callable[[Feeds], tuple[Sequence[Parts], Any]], num_batches: int,
                 threads: int):
        """Builds the step and initializes its variables.

        Args:
            build: adds the feeds of the initializers to its argument; returns the parts of
                every table, in the order of the workload, and the ops of a step.
            num_batches: number of batches, which are used in turn.
            threads: maximum number of threads of the session; 0 means TensorFlow's default.
        """
        self._num_batches = num_batches
        with tf.Graph().as_default():
            feeds: Feeds = {}
            self._tables, step = build(feeds)
            self._session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads))
            initialize(self._session, feeds)
            self._train = self._session.make_callable(step)

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps over the batches in turn; returns their duration in seconds."""
        return timed_steps(lambda _: self._train(), first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [np.concatenate(self._session.run(list(parts))) for parts in self._tables]

    def close(self) -> None:
        """Frees the tables."""
        self._session.close()
