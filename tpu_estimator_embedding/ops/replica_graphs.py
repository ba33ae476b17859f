# SPDX-License-Identifier: Apache-2.0
"""The graph of several replicas that is being built, if there is one.

A computation for several replicas is built for the first one and copied for the others. An op
that must exist once for each replica, such as one that receives that replica's input, finds the
replicas here.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tpu_estimator_embedding.types import Tensor


class InnerGraphError(RuntimeError):
    """An op that each replica needs is built in a function, a condition or a loop of TensorFlow."""


class Replicas(Protocol):
    """A graph that several replicas share, built for the first of them."""

    def is_default(self) -> bool:
        """Whether ops are built in this graph, not in a function, condition or loop within it."""

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""

    def late_copies(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Returns each replica's copies of tensors, made later; the first has the tensors."""

    def add_inputs(self, replicas: Sequence[Sequence[Tensor]]) -> None:
        """Adds tensors that each replica receives; every one is the only output of its op."""


_RUNS_ONCE = "_runs_once_for_all_replicas"

_Replicas = TypeVar("_Replicas", bound=Replicas)


class _Building(threading.local):
    """What a thread has under construction, the innermost last, as TensorFlow's stack of graphs."""

    def __init__(self) -> None:
        """Makes the empty stacks of a thread."""
        self.graphs: list[Replicas] = []
        self.cores: list[list[int]] = []


_building = _Building()


def current() -> Replicas | None:
    """Returns the innermost graph of several replicas that is being built."""
    return _building.graphs[-1] if _building.graphs else None


def current_for_each(op: str) -> Replicas | None:
    """Returns the current graph, for an op that is built for each of its replicas.

    Raises:
        InnerGraphError: the op is built in a function, a condition or a loop within the graph.
    """
    replicas = current()
    if replicas is not None and not replicas.is_default():
        raise InnerGraphError(
            f"{op} must be called directly in a computation of {replicas.num_replicas} replicas, "
            "or in a loop of it, got a call in a tf.function or tf.cond. Call it outside, and pass "
            "the tensors in.")
    return replicas


def current_cores() -> list[int]:
    """Returns the core of each replica of the computation that is being built; `[0]` outside."""
    return _building.cores[-1] if _building.cores else [0]


@contextlib.contextmanager
def building(graph: _Replicas) -> Iterator[_Replicas]:
    """Makes a graph the current one of this thread."""
    _building.graphs.append(graph)
    try:
        yield graph
    finally:
        _building.graphs.pop()


@contextlib.contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Makes these the cores of the replicas that this thread builds."""
    _building.cores.append(cores)
    try:
        yield
    finally:
        _building.cores.pop()


def run_once(op: tf.Operation) -> tf.Operation:
    """Marks an op that does something for all replicas; neither it nor its inputs are copied."""
    op._set_attr(_RUNS_ONCE, attr_value_pb2.AttrValue(b=True))
    return op


def runs_once(op: tf.Operation) -> bool:
    """Whether `run_once` has marked the op."""
    return op.node_def.attr[_RUNS_ONCE].b if op.type == "NoOp" else False
