# SPDX-License-Identifier: Apache-2.0
"""The variables of tables and their slots, one part for each host."""

import contextlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import ShardInfo

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.placement import THIS_PROCESS, by_part, placed_initializer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.partition_strategy import saved_rows
from tpu_estimator_embedding.types import Initializer, Tensor

_OF_ONE_VALUE = (tf.zeros_initializer, tf.compat.v1.zeros_initializer,
                 tf.ones_initializer, tf.compat.v1.ones_initializer)
_OF_ANY_VALUE = (tf.constant_initializer, tf.compat.v1.constant_initializer)


class TableSlice(tf.Variable.SaveSliceInfo):
    """Maps the part of one host to rows of the tensor in a checkpoint.

    TensorFlow reads the position of the slice; this package's restore reads the order of the rows.

    Attributes:
        partition_strategy: "div" or "mod".
        num_hosts: hosts that share the table.
        part: index of the part.
        checkpoint_num_hosts: number of hosts that wrote checkpoints that do not record their
            row layout; None if unknown.
    """

    def __init__(self, place: tf.Variable.SaveSliceInfo, *, partition_strategy: str,
                 num_hosts: int, part: int, checkpoint_num_hosts: int | None):
        """Adds the order of the rows to the position of a slice."""
        super().__init__(place.full_name, place.full_shape, place.var_offset, place.var_shape)
        self.partition_strategy = partition_strategy
        self.num_hosts = num_hosts
        self.part = part
        self.checkpoint_num_hosts = checkpoint_num_hosts


class TableNames(NamedTuple):
    """The names of a table and its slots in graphs and checkpoints."""

    table: str
    slots: Mapping[str, str]


class TableVariables(NamedTuple):
    """The variables of one table.

    Attributes:
        parts: resource variables `[rows of host, dim]` float32, one for each host.
        slots: slot name -> variables of the same shapes.
    """

    parts: list[tf.Variable]
    slots: dict[str, list[tf.Variable]]


def variables_made_by(make_parts: Callable[[TablePlan, str], list[tf.Variable]],
                      plan: EmbeddingPlan) -> dict[str, TableVariables]:
    """Returns table name -> what a function makes of each table of a plan, and of each slot.

    Args:
        make_parts: takes a table, and the name of the table or slot whose parts it returns.
        plan: the tables.
    """
    return {table.name: TableVariables(make_parts(table, table.name), {
        slot: make_parts(table, f"{table.name}/{slot}") for slot in table.slot_initial_values})
        for table in plan.tables}


def create_variables(plan: EmbeddingPlan, names: Mapping[str, TableNames],
                     checkpoint_num_hosts: int | None = None,
                     servers: Sequence[str] = ()) -> dict[str, TableVariables]:
    """Creates every table of the plan, and its slots if it has an optimizer.

    In a graph, `tf.compat.v1.get_variable` creates the parts with a partitioner, so that all parts
    of a table are saved as one tensor, regardless of the number of hosts. In eager execution they
    are plain variables named `{name}/part_{host}`. They are not trainable, because the engine
    updates them, not the model's optimizer.

    The initializer is called for each part with the shape of the part; in eager execution, see
    `part_value`. Constant initializers create the same table for any number of hosts, random
    initializers do not.

    Args:
        plan: the tables.
        names: table name -> names of its variables.
        checkpoint_num_hosts: see `TableSlice`.
        servers: devices of the hosts in a cluster; otherwise all parts are in this process.

    Returns:
        Table name -> variables.
    """
    devices = servers or [THIS_PROCESS] * plan.num_hosts
    variables = {table.name: _create_table(plan, table, names[table.name], devices)
                 for table in plan.tables}
    if not tf.executing_eagerly():
        for table in variables.values():
            for parts in (table.parts, *table.slots.values()):
                _record_layout(plan, parts, checkpoint_num_hosts)
    return variables


def create_slots(plan: EmbeddingPlan, table: TablePlan, names: TableNames,
                 servers: Sequence[str] = ()) -> dict[str, list[tf.Variable]]:
    """Creates the slots of a table like `create_variables`, but not the table.

    Returns:
        Slot name -> one variable for each host.
    """
    sizes, devices = plan.rows_per_host(table), servers or [THIS_PROCESS] * plan.num_hosts
    return {slot: _create_parts(names.slots[slot], table, sizes, tf.constant_initializer(value),
                                devices)
            for slot, value in table.slot_initial_values.items()}


def default_names(plan: EmbeddingPlan) -> dict[str, TableNames]:
    """Returns names made of table and slot names: `{table}` and `{table}/{slot}`."""
    return {table.name: TableNames(
        table.name, {slot: f"{table.name}/{slot}" for slot in table.slot_initial_values})
        for table in plan.tables}


def _create_table(plan: EmbeddingPlan, table: TablePlan, names: TableNames,
                  devices: Sequence[str]) -> TableVariables:
    sizes = plan.rows_per_host(table)
    initializer = table.initializer
    if len(sizes) > 1 and not tf.executing_eagerly():
        initializer = _of_rows(plan, table)
    slots = create_slots(plan, table, names, devices)
    return TableVariables(
        _create_parts(names.table, table, sizes, initializer, devices), slots)


def _of_rows(plan: EmbeddingPlan, table: TablePlan) -> Initializer:
    """Returns an initializer for the parts of a table of several hosts.

    A constant for every value of the table gives each part the rows of its ids. Warns of an
    initializer that may compute ids from offsets, which `mod` has not.
    """
    initializer = table.initializer
    is_constant = type(initializer) in _OF_ANY_VALUE
    values: Any = getattr(initializer, "value", None) if is_constant else None
    shape = (table.vocabulary_size, table.dimension)
    if np.size(values) == math.prod(shape) > 1:
        order = np.argsort(saved_rows(shape[0], plan.num_hosts, plan.partition_strategy))
        return _part_of(np.reshape(values, shape)[order])
    if plan.partition_strategy == "mod" and _uses_offset(initializer):
        warnings.warn(
            f"The initializer of table {table.name!r} takes partition_info, whose var_offset is "
            "not an id under partition_strategy='mod', as on a TPU: host h of n holds the ids h, "
            "h + n, h + 2n, ... Compute ids in this way, or use 'div'.", stacklevel=2)
    return initializer


def _part_of(values: np.ndarray) -> Initializer:
    """Returns an initializer that reads its rows from a table, in the order of parts."""
    def initialize(shape: Sequence[int], dtype: tf.DType = tf.float32,
                   partition_info: Any = None) -> Tensor:
        first = partition_info.var_offset[0]
        return tf.constant(values[first:first + shape[0]], dtype)
    return initialize


def _uses_offset(initializer: Initializer) -> bool:
    """Whether an initializer may read its offset; TensorFlow's take the argument and do not."""
    if type(initializer).__module__.startswith("tensorflow."):
        return False
    return "partition_info" in inspect.signature(initializer).parameters


def _create_parts(name: str, table: TablePlan, sizes: list[int], initializer: Initializer,
                  devices: Sequence[str]) -> list[tf.Variable]:
    if tf.executing_eagerly():
        return [_create_eagerly(f"{name}/part_{part}", initializer, sizes, part, table.dimension,
                                devices[part]) for part in range(len(sizes))]
    device = by_part(name, devices)
    initializer = computed_in_session(initializer)
    if any(name != THIS_PROCESS for name in devices):
        initializer = placed_initializer(initializer, device)
    graph = tf.compat.v1.get_default_graph()
    with graph.device(device), _explained_parts(name, table, sizes):
        return list(tf.compat.v1.get_variable(
            name, [sum(sizes), table.dimension], tf.float32,
            initializer=initializer,
            partitioner=tf.compat.v1.fixed_size_partitioner(len(sizes)),
            trainable=False, use_resource=True))


@contextlib.contextmanager
def _explained_parts(name: str, table: TablePlan, sizes: Sequence[int]) -> Iterator[None]:
    """Says in errors which variable has the name already, or that an initializer fills a part."""
    try:
        yield
    except (TypeError, ValueError) as error:
        # The parts of a table have other names.
        if f"{name}:0" in [variable.name for variable in tf.compat.v1.global_variables()]:
            raise ValueError(
                f"{error} The program has a variable {name!r}, which is a name of the table "
                f"{table.name!r}. Give one of them another name.") from error
        if len(sizes) == 1:
            raise
        raise ValueError(
            f"{error} The table {table.name!r} is split over {len(sizes)} hosts, and its "
            "initializer is called for each part, with the shape "
            f"{[sizes[0], table.dimension]} for instance. Return values of that shape; an "
            "initializer with the argument `partition_info` gets the first row of the part, "
            "partition_info.var_offset[0].") from error


def _create_eagerly(name: str, initializer: Initializer, sizes: list[int], part: int,
                    dimension: int, device: str) -> tf.Variable:
    with tf.device(device):  # the value is computed there too
        value = part_value(initializer, sizes, part, dimension)
        check_initial_value(name.rpartition("/part_")[0], value, [sizes[part], dimension])
        return tf.Variable(value, trainable=False, name=name)


def check_initial_value(table: str, value: Tensor, shape: list[int]) -> None:
    """Raises ValueError unless the initializer of a table returned a value of a shape."""
    checks.check(list(value.shape) == shape, f"value of the initializer of table {table!r}",
                 f"of shape {shape}", list(value.shape))


def _record_layout(plan: EmbeddingPlan, parts: list[tf.Variable],
                   checkpoint_num_hosts: int | None) -> None:
    for number, part in enumerate(parts):
        part._set_save_slice_info(TableSlice(
            part._get_save_slice_info(), partition_strategy=plan.partition_strategy,
            num_hosts=plan.num_hosts, part=number, checkpoint_num_hosts=checkpoint_num_hosts))


def computed_in_session(initializer: Initializer) -> Initializer:
    """Returns an initializer of the same values that TensorFlow cannot constant-fold.

    TensorFlow keeps a folded initial value as a constant of the session. That doubles the memory
    of the variable, and the first step that changes the variable copies it.

    Args:
        initializer: TensorFlow's zeros, ones, or scalar constant initializer (v1 or v2) is
            replaced. Any other, including subclasses of these, is returned unchanged.

    >>> zeros = computed_in_session(tf.zeros_initializer())
    >>> zeros([2, 3], tf.float32).shape
    TensorShape([2, 3])
    """
    if not _is_of_one_value(initializer):
        return initializer

    def fill(shape: Sequence[int], dtype: tf.DType = tf.float32,
             partition_info: object = None) -> Tensor:
        del partition_info  # all parts are equal
        # Stateful ops are never constant-folded, even if they have only one possible result.
        zero = tf.raw_ops.Empty(shape=[], dtype=tf.int32, init=True)
        return tf.fill(shape, tf.raw_ops.Gather(params=initializer([1], dtype), indices=zero))

    return fill


def _is_of_one_value(initializer: Initializer) -> bool:
    if type(initializer) in _OF_ANY_VALUE:
        value = initializer.value  # type: ignore[attr-defined]
        return isinstance(value, int | float | np.generic) or (
            isinstance(value, np.ndarray) and value.shape == ())
    return type(initializer) in _OF_ONE_VALUE


def part_value(initializer: Initializer, sizes: Sequence[int], part: int,
               dimension: int) -> Tensor:
    """Returns the initial value of a part; calls the initializer like tf.distribute does.

    An initializer with the argument `shard_info`, or `partition_shape` and `partition_offset`,
    receives the rows that it fills. Any other gets the shape of the part; if it refuses that,
    like one with a constant table, it gets the shape of the table.

    Args:
        initializer: the initializer of the table.
        sizes: number of rows of each part.
        part: index of the part.
        dimension: number of values per row.

    >>> table = tf.constant_initializer([[1.0], [2.0], [3.0]])
    >>> [part_value(table, [2, 1], part, 1).numpy().tolist() for part in (0, 1)]
    [[[1.0], [2.0]], [[3.0]]]
    """
    shape, whole = [sizes[part], dimension], [sum(sizes), dimension]
    if len(sizes) == 1:
        return initializer(whole, tf.float32)
    offset = sum(sizes[:part])
    parameters = inspect.signature(initializer).parameters
    if "shard_info" in parameters:
        return initializer(shape, tf.float32,
                           shard_info=ShardInfo(tf.TensorShape(shape), (offset, 0)))
    if "partition_shape" in parameters or any(
            each.kind == each.VAR_KEYWORD for each in parameters.values()):
        try:
            return initializer(whole, tf.float32, partition_shape=tuple(shape),
                               partition_offset=(offset, 0))
        except (TypeError, ValueError):
            pass  # TensorFlow's initializers raise it if they cannot fill a part
    try:
        return initializer(shape, tf.float32)
    except (TypeError, ValueError):
        return initializer(whole, tf.float32)[offset:offset + sizes[part]]
