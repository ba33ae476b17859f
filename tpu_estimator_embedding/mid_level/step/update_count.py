# SPDX-License-Identifier: Apache-2.0
"""Counts the updates of tables; the count is the step of multiplier schedules."""

import tensorflow as tf

from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.mid_level.step.table_variables import outside_strategies
from tpu_estimator_embedding.multipliers.schedule import Constant
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class UpdateCount:
    """Counts updates, if a multiplier depends on the step.

    Attributes:
        children: name in checkpoints -> scalar int64 variable; empty if nothing is counted.
    """

    def __init__(self, plan: EmbeddingPlan, device: str = THIS_PROCESS):
        """Creates the counter for a plan, outside of strategies and functions.

        Args:
            plan: the tables.
            device: device of the counter; in a cluster, a server.
        """
        self.children: dict[str, tf.Variable] = {}
        if any(table.multiplier and not isinstance(table.multiplier, Constant)
               for table in plan.tables):
            with outside_strategies(), tf.device(device):
                self.children["multiplier_step"] = tf.Variable(
                    0, trainable=False, dtype=tf.int64, name="multiplier_step")

    def next(self) -> Tensor:
        """Increments the counter; returns its previous value, scalar int64."""
        count = self.children.get("multiplier_step")
        if count is None:
            return tf.constant(0, tf.int64)
        before = tf.identity(count.read_value())
        with tf.control_dependencies([before]):
            count.assign_add(1, read_value=False)
        return before
