# SPDX-License-Identifier: Apache-2.0
"""Kinds of ops that a graph copy treats specially: writes, random draws, state of one step."""

import re
from collections.abc import Iterator

from tensorflow.core.framework import attr_value_pb2, node_def_pb2

_WRITES = re.compile(
    r"(Ref)?(Assign|Scatter(Add|Sub|Mul|Div|Min|Max|Update|Nd(Add|Sub|Update)$)|Apply|SparseApply|"
    r"Resource(Apply|SparseApply|Scatter|StridedSliceAssign|CountUpTo)|CountUpTo|Write\w*Summary|"
    r"Queue\w*(Enqueue|Dequeue|Close)|LookupTable(Insert|Import|Remove)|\w*Initialize\w*Table|"
    r"TpuEmbedding(Update|MeasuredUpdate|ResetChannels|Channel(Put|Take)))")
# Ops of `tf.random.Generator`: every run advances the state of the generator.
_GENERATOR = re.compile(r"Rng|Stateful(Uniform|StandardNormal|TruncatedNormal|Random)")
_SEED_STEP = 1_000_003  # far from the small seeds that TF gives neighbouring ops


def writes(op_type: str) -> bool:
    """Whether an op changes a variable, a table, a queue or an event file."""
    return _WRITES.match(op_type) is not None


def is_random(node: node_def_pb2.NodeDef) -> bool:
    """Whether an op returns different values in every run."""
    return "seed2" in node.attr or _GENERATOR.match(node.op) is not None


def is_of_one_step(op_type: str) -> bool:
    """Whether an op holds a stack or tensor array of v1 control flow.

    These are resources, but of a single computation.
    """
    return op_type.startswith(("Stack", "TensorArray"))


def is_gradient_of_py_function(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node calls back into the tape of a `tf.py_function`."""
    return node.op == "EagerPyFunc" and node.name.rpartition("/")[0].endswith("_grad")


def shift_seed(node: node_def_pb2.NodeDef, index: int) -> None:
    """Gives copy `index` of a seeded op different numbers; unseeded ops have them anyway."""
    if "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
        node.attr["seed2"].i = (node.attr["seed2"].i + index * _SEED_STEP) % 2 ** 31


def called_functions(node: node_def_pb2.NodeDef) -> Iterator[attr_value_pb2.NameAttrList]:
    """Yields the attribute values of a node that name the functions it calls."""
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func
        yield from attribute.list.func
