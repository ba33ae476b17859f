# SPDX-License-Identifier: Apache-2.0
"""Where the activations of a step come from. A step uses one of three:

===================================  ==============================================================
`LookupInStep`                       looks up in the step itself
`joined_tables.JoinedLookup`         likewise, directly into the model's concatenation of all tables
`lookahead.Lookahead`                looked up in the previous step: pipelined execution
===================================  ==============================================================
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.stacked_activations import Stacked, split_replicas
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.ops.graph_rewrites import late_tensor, set_late_tensor
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class Concatenation(NamedTuple):
    """A tensor that consists of the activations of all tables.

    Attributes:
        tensor: `[batch, sum of dims]`.
        tables: names of the tables, in the order of their columns.
    """

    tensor: Tensor
    tables: tuple[str, ...]


class LookedUp(NamedTuple):
    """The result of the lookup of a step.

    Attributes:
        replicas: for each replica, table name -> its activations `[num_rows, dim]`.
        before_update: what an update of the same step has to wait for.
        joined: the same activations in one tensor, if the model uses them so.
        hooks: hooks that the session needs.
    """

    replicas: Sequence[Stacked]
    before_update: Sequence[tf.Operation | Tensor]
    joined: Concatenation | None = None
    hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] = ()


class StepLookup(Protocol):
    """Looks up the activations of a step, whose model is built before there are tables."""

    @property
    def step_input(self) -> StepInput:
        """The input of the step to compute."""

    @property
    def first(self) -> Stacked:
        """The activations `[num_rows, dim]` of the first replica, by table name."""

    def lookup(self, engine: PartitionedEmbedding) -> LookedUp:
        """Connects `first` to the tables of the engine; call it once the model is built."""


class LookupInStep:
    """Looks up in the step itself; the model is built on tensors that get their values later.

    Attributes:
        step_input, first: see `StepLookup`.
    """

    def __init__(self, plan: EmbeddingPlan, step_input: StepInput):
        """Takes the tables and the input of the step."""
        self.step_input = step_input
        self.first = late_activations(plan)

    def lookup(self, engine: PartitionedEmbedding) -> LookedUp:
        """Looks up all tables."""
        ids = self.step_input.ids
        with tf.device(THIS_PROCESS):
            stacked = engine.lookup(ids)
            replicas = split_replicas(engine.plan, stacked, ids, len(self.step_input.replicas))
        set_activations(self.first, replicas[0])
        return LookedUp([self.first, *replicas[1:]], list(stacked.values()))


def late_activations(plan: EmbeddingPlan) -> dict[str, Tensor]:
    """Returns table name -> activations `[num_rows, dim]` without values."""
    return {table.name: late_tensor(tf.TensorSpec([None, table.dimension]), name="activations")
            for table in plan.tables}


def set_activations(late: Stacked, activations: Stacked) -> None:
    """Gives late activations their values."""
    for name, values in activations.items():
        set_late_tensor(late[name], values)
