# SPDX-License-Identifier: Apache-2.0
"""The ops that load a TPU's tables and slots and retrieve them, for every optimizer.

    load_tpu_embedding_{optimizer}_parameters(parameters, *slots, num_shards, shard_id, ...)
    retrieve_tpu_embedding_{optimizer}_parameters(num_shards, shard_id, ...)

Slots have the names and the order of the optimizer's record. A shard is the part of the table on
one host, by the sharding strategy of the configuration. The ops `..._grad_accum_debug` of
TensorFlow 1.15 also have the gradients that wait to be applied: on this machine there are none.
"""

import collections
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stubs.tpu_engine import on_the_engine
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.optimizers.record import OptimizerRecord
from tpu_estimator_embedding.optimizers.registry import records
from tpu_estimator_embedding.types import Tensor

Result = TypeVar("Result")

_DEBUG = "_grad_accum_debug"
_WAITING = "gradient_accumulators"
_NO_GRADIENT = 1e-30  # a TPU marks rows without a gradient with a smaller number
_SHARD = {"num_shards": inspect.Parameter.empty, "shard_id": inspect.Parameter.empty,
          "table_id": -1, "table_name": "", "config": "", "name": None}


class Shard(NamedTuple):
    """One part of a table and of its slots.

    Attributes:
        parts: "parameters" or slot name -> variable.
        delayed: makes the op that drops, or applies, a delayed update of the tables.
    """

    parts: Mapping[str, tf.Variable]
    delayed: Callable[[], tf.Operation]


def _load(record: OptimizerRecord, *, debug: bool) -> Callable[..., tf.Operation]:
    name = f"load_tpu_embedding_{record.proto}_parameters{_DEBUG * debug}"
    values = _values(record, debug)
    signature = _signature(values)

    def load(engine: TPUEmbedding, *arguments: Any, **named: Any) -> tf.Operation:
        given = _bound(signature, arguments, named)
        shard = _shard(engine, record, name, given, loads=True)
        waiting = [_check_none_waits(name, given[_WAITING])] if debug else []
        with tf.control_dependencies([*waiting, shard.delayed()]):
            return tf.group(*(part.assign(_checked_value(value, given[value], part))
                              for value, part in shard.parts.items()))

    return _public(load, name, signature, f"Loads one shard of a table under {record.prefix}.")


def _retrieve(record: OptimizerRecord, *,
              debug: bool) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    name = f"retrieve_tpu_embedding_{record.proto}_parameters{_DEBUG * debug}"
    values = _values(record, debug)
    signature = _signature([])
    kind = collections.namedtuple(  # type: ignore[misc]  # its name is not that of the variable
        f"Retrieved{record.parameters}", values)

    def retrieve(engine: TPUEmbedding, *arguments: Any,
                 **named: Any) -> Tensor | tuple[Tensor, ...]:
        shard = _shard(engine, record, name, _bound(signature, arguments, named), loads=False)
        with tf.control_dependencies([shard.delayed()]):
            found = {value: tf.identity(part.read_value()) for value, part in shard.parts.items()}
        if debug:
            found[_WAITING] = tf.zeros_like(found["parameters"])
        return kind(**found) if len(found) > 1 else found["parameters"]

    return _public(retrieve, name, signature,
                   f"Retrieves one shard of a table under {record.prefix}.")


def _values(record: OptimizerRecord, debug: bool) -> list[str]:
    return ["parameters", *(slot.name for slot in record.slots), *[_WAITING] * debug]


def _signature(values: Sequence[str]) -> inspect.Signature:
    defaults = dict.fromkeys(values, inspect.Parameter.empty) | _SHARD
    return inspect.Signature([
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in defaults.items()])


def _bound(signature: inspect.Signature, arguments: Sequence[object],
           named: Mapping[str, object]) -> dict[str, Any]:
    bound = signature.bind(*arguments, **named)
    bound.apply_defaults()
    return bound.arguments


def _public(function: Callable[..., Result], name: str, signature: inspect.Signature,
            line: str) -> Callable[..., Result]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{line}\n\nSee the module for arguments and results."
    public = on_the_engine(function)
    public.__signature__ = signature  # type: ignore[attr-defined]
    return public


def _shard(engine: TPUEmbedding, record: OptimizerRecord, op: str, given: Mapping[str, Any], *,
           loads: bool) -> Shard:
    table = _table_name(engine, given["table_id"], given["table_name"])
    plan = engine._plan.table_by_name[table]
    own = plan.optimizer.rule.record if plan.optimizer else None
    checks.check(own is record, f"optimizer of table {table!r}", f"{record.prefix} for {op}",
                 own and own.prefix, f"Call {op.partition('embedding_')[0]}embedding_"
                 f"{own.proto}_parameters." if own else "")
    hosts = len(engine.hosts)
    checks.check(given["num_shards"] == hosts, "num_shards",
                 f"the number of hosts of the configuration, {hosts}", given["num_shards"])
    graph_ops = engine._ops_for(op)
    tables = graph_ops.engine()
    variables = tables.variables[table]
    number = len(variables.parts)
    checks.check(0 <= given["shard_id"] < number, "shard_id",
                 f"in [0, {number}), the shards of table {table!r}", given["shard_id"])
    return Shard(_parts(variables, given["shard_id"]),
                 graph_ops.load if loads else lambda: graph_ops.retrieve(tables))


def _parts(variables: TableVariables, shard: int) -> dict[str, tf.Variable]:
    return {"parameters": variables.parts[shard],
            **{slot: parts[shard] for slot, parts in variables.slots.items()}}


def _table_name(engine: TPUEmbedding, table_id: int, table_name: str) -> str:
    names = list(engine.table_to_features_dict)
    checks.check((table_id == -1) != (table_name == ""), "table_name",
                 "given where table_id is not, and only there", (table_name, table_id))
    if table_name:
        checks.check_one_of("table_name", names, table_name)
        return table_name
    checks.check(0 <= table_id < len(names), "table_id", f"the number of one of the tables {names}",
                 table_id)
    return names[table_id]


def _checked_value(name: str, value: Tensor, part: tf.Variable) -> Tensor:
    value = tf.convert_to_tensor(value)
    checks.check(value.dtype == tf.float32 and value.shape.is_compatible_with(part.shape), name,
                 f"a float32 tensor of shape {part.shape}", value)
    return value


def _check_none_waits(op: str, gradients: Tensor) -> tf.Operation:
    return tf.group(*assert_that(
        tf.reduce_all(tf.abs(gradients) < _NO_GRADIENT),
        f"`{_WAITING}` must be zeros, got other values. Every step applies all gradients here: "
        f"load a state without pending gradients with {op.removesuffix(_DEBUG)}."))


# Name of the op -> the function; all of them are names of this module.
OPS: Mapping[str, Callable[..., object]] = {
    function.__name__: function for record in records() for make in (_load, _retrieve)
    for debug in (False, True) for function in [make(record, debug=debug)]}

globals().update(OPS)
