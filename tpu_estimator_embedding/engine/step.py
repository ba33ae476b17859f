# SPDX-License-Identifier: Apache-2.0
"""The records of a step, and the interface of its ids, which look up and update tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.measures import Marks, StepMeasures
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

EnqueueDatas = Mapping[str, EnqueueData | RaggedEnqueueData]
Replicas = Sequence[tuple[EnqueueDatas, Tensor | int]]  # ids and batch size of every replica
Variables = Mapping[str, TableVariables]  # by table name


class JoinedGradient(NamedTuple):
    """The gradients of the activations of all tables in one tensor.

    Attributes:
        gradient: `[num_rows, columns]`; the activations of all tables have as many rows.
        columns: table name -> the first of its columns.
    """

    gradient: Tensor
    columns: Mapping[str, int]


class StepGradients(NamedTuple):
    """The inputs of an update other than its ids: plain tensors that can wait in a queue.

    Attributes:
        gradients: table name -> gradient `[num_rows, dim]` of the stacked activations.
        learning_rates: table name -> scalar float32, or a float.
        multipliers: table name -> scalar float32 that its gradients are multiplied with; of
            the tables that have a multiplier.
        step: scalar, the global step before it is incremented.
        joined: the same gradients in one tensor, if there is one, for a single host: reading
            them there saves splitting it.
    """

    gradients: Mapping[str, Tensor]
    learning_rates: Mapping[str, Tensor | float]
    multipliers: Mapping[str, Tensor]
    step: Tensor
    joined: JoinedGradient | None = None


class StepIds(Protocol):
    """The ids of all tables in one step, checked and prepared by the backend that also uses them.

    It is a nest of tensors and None, which can wait in a queue or cross a `tf.function`.
    """

    @property
    def is_native(self) -> bool:
        """Whether compiled ops prepared the ids."""

    @property
    def are_for_training(self) -> bool:
        """Whether gradients may follow."""

    @property
    def can_join(self) -> bool:
        """Whether these are `JoinableStepIds`."""

    def rows_of_replicas(self, plan: EmbeddingPlan) -> dict[str, Tensor]:
        """Returns table name -> rows of activations of each replica, `[replicas]` int64.

        The rows of a replica are those of its features, in the order of the plan.
        """

    def lookup(self, plan: EmbeddingPlan, variables: Variables) -> dict[str, Tensor]:
        """Returns table name -> stacked activations `[num_rows, dim]` float32."""

    def update(self, plan: EmbeddingPlan, variables: Variables,
               step_gradients: StepGradients) -> list[tf.Operation]:
        """Returns the ops that update all tables and slots."""

    def measured_update(self, plan: EmbeddingPlan, variables: Variables,
                        step_gradients: StepGradients, marks: Marks,
                        measures: Tensor) -> StepMeasures:
        """Updates as `update` does, marks the rows, and measures them if `measures` is true."""


class JoinableStepIds(StepIds, Protocol):
    """The ids of tables of one host, whose activations can be looked up as one tensor."""

    def lookup_joined(self, plan: EmbeddingPlan, variables: Variables,
                      names: Sequence[str]) -> Tensor:
        """Returns the activations of tables, `[num_rows, sum of dims]` float32."""


class StepIdsOnServers(StepIds, Protocol):
    """The ids of tables in other tasks, whose update is made of one part per host.

    A *host step* is all that the update of a host needs: a nest of tensors and None, of one
    structure in every step, which can wait on the host.
    """

    def host_step(self, plan: EmbeddingPlan, step_gradients: StepGradients, host: int) -> Any:
        """Returns what this task sends to a host."""

    def merged(self, plan: EmbeddingPlan, host: int, steps: Sequence[Any]) -> Any:
        """Returns the host steps of several tasks as that of one.

        The rows of activations of the tasks are concatenated along axis 0.
        """

    def update_host(self, plan: EmbeddingPlan, variables: Variables, host: int,
                    step: Any) -> list[tf.Operation]:
        """Returns the ops that update the tables of a host; they wait for the host step only."""
