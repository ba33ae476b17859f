# SPDX-License-Identifier: Apache-2.0
"""The interface of a backend, which runs the three parts of a step: prepare, look up, update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.measures import Marks, StepMeasures
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

EnqueueDatas = Mapping[str, EnqueueData | RaggedEnqueueData]
Replicas = Sequence[tuple[EnqueueDatas, Tensor]]  # ids and batch size of every replica
StepIds = Any  # the record of a backend: a nest of tensors and None
ToStepIds = Callable[[EmbeddingPlan, Replicas, bool, bool], StepIds]


class JoinedGradient(NamedTuple):
    """The gradients of the activations of all tables in one tensor.

    Attributes:
        gradient: `[num_rows, columns]`; the activations of all tables have as many rows.
        columns: table name -> the first of its columns.
    """

    gradient: Tensor
    columns: Mapping[str, int]


class StepGradients(NamedTuple):
    """The inputs of an update besides its ids: plain tensors that can wait in a queue.

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


class Exchange(NamedTuple):
    """The parts of an update whose tables are in other tasks.

    A *host step* is all that the update of a host needs: a nest of tensors and None, of one
    structure in every step, which can wait on the host.

    Attributes:
        to_sums: `Backend.to_step_ids` for ids that are exchanged as sums only: merged steps of such
            ids give the bits of one task.
        host_step: what this task sends to a host; from plan, ids, gradients and host.
        merged: the host steps of several tasks as that of one, with the rows of activations of
            the tasks one after another; from plan, host and host steps.
        update_host: the ops that update the tables of a host; from plan, variables, host and
            host step. They wait for nothing but the host step.
    """

    to_sums: ToStepIds
    host_step: Callable[[EmbeddingPlan, StepIds, StepGradients, int], Any]
    merged: Callable[[EmbeddingPlan, int, Sequence[Any]], Any]
    update_host: Callable[[EmbeddingPlan, Mapping[str, TableVariables], int, Any],
                          list[tf.Operation]]


class Backend(NamedTuple):
    """The functions of a backend.

    Attributes:
        to_step_ids: checks the ids of all replicas and prepares them; from the plan, for
            every replica its enqueued data and batch size, whether gradients will follow,
            and whether the result must have one structure for all batches of the plan.
        look_up: table name -> stacked activations; from plan, variables and prepared ids.
        update: the ops that update all tables; from plan, variables, ids and gradients.
        measured_update: updates as `update` does, marks the rows, and measures them if a
            scalar bool says so; from what `update` takes, marks and that bool.
        row_counts: table name -> rows of activations of each replica, `[replicas]` int64;
            from plan and ids.
        are_for_training: whether gradients may follow the ids.
        exchange: for tables in other tasks.
        look_up_joined: activations of tables of one host, concatenated along axis 1; from plan,
            variables, prepared ids and the names of the tables. None if nothing is gained.
    """

    to_step_ids: ToStepIds
    look_up: Callable[[EmbeddingPlan, Mapping[str, TableVariables], StepIds], dict[str, Tensor]]
    update: Callable[[EmbeddingPlan, Mapping[str, TableVariables], StepIds, StepGradients],
                     list[tf.Operation]]
    measured_update: Callable[[EmbeddingPlan, Mapping[str, TableVariables], StepIds,
                               StepGradients, Marks, Tensor], StepMeasures]
    row_counts: Callable[[EmbeddingPlan, StepIds], dict[str, Tensor]]
    are_for_training: Callable[[StepIds], bool]
    exchange: Exchange | None = None
    look_up_joined: Callable[[EmbeddingPlan, Mapping[str, TableVariables], StepIds,
                              Sequence[str]], Tensor] | None = None
