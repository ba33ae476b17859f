# SPDX-License-Identifier: Apache-2.0
"""Copying the part of a graph that computes some tensors from some inputs.

A replica's step is a copy of the first one's, fed with other inputs. Copied is what lies
between the inputs and the wanted tensors, plus random ops, which draw other numbers in
every copy, and the state of v1 while loops. What depends on none of these, variables and
reads of them for instance, is shared, and whatever writes to a variable is left out: it
happens once.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from tpu_estimator_embedding.types import Tensor

_WRITES = re.compile(
    r"(Ref)?(Assign|Scatter(Add|Sub|Mul|Div|Min|Max|Update|Nd(Add|Sub|Update)$)|Apply|SparseApply|"
    r"Resource(Apply|SparseApply|Scatter|StridedSliceAssign|CountUpTo)|CountUpTo|Write\w*Summary|"
    r"Queue\w*(Enqueue|Dequeue|Close)|LookupTable(Insert|Import|Remove)|\w*Initialize\w*Table)")
_SEED_STEP = 1_000_003  # far from the small seeds that TF gives neighbouring ops


def copy_subgraph(targets: Sequence[Tensor], replaced: Mapping[Tensor, Tensor],
                  scope: str, index: int) -> list[Tensor]:
    """Copies what computes `targets`, with other inputs.

    Args:
        targets: tensors of the default graph.
        replaced: input of the original -> input of the copy, of the same dtype. Keys are
            references (`tensor.ref()`).
        scope: name scope of the copies, and part of the names of copied while loops.
        index: which copy this is, from 1; shifts the seeds of random ops.

    Returns:
        The copies of `targets`; a target that depends on no input is its own copy.
    """
    inputs = {reference.deref().name: tensor for reference, tensor in replaced.items()}
    graph = tf.compat.v1.get_default_graph()
    ops = _ops_to_copy(targets, {graph.get_operation_by_name(name.split(":")[0])
                                 for name in inputs})
    if not ops:
        return [inputs.get(target.name, target) for target in targets]
    graph_def = _graph_def(graph, ops, scope, index)
    outside = _tensors_from_outside(ops)
    copies = tf.import_graph_def(
        graph_def, name=scope,
        input_map={tensor.name: inputs.get(tensor.name, tensor) for tensor in outside},
        return_elements=[target.name for target in targets if target.op in ops])
    copied = iter(copies)
    return [next(copied) if target.op in ops else inputs.get(target.name, target)
            for target in targets]


def _ops_to_copy(targets: Sequence[Tensor], boundary: set[tf.Operation]) -> set[tf.Operation]:
    ancestors = _closure((target.op for target in targets),
                         lambda op: () if op in boundary or _writes(op) else _sources(op))
    ancestors = {op for op in ancestors if not _writes(op)} - boundary
    starts = [op for op in ancestors if _is_random(op) or _is_of_one_step(op)
              or boundary.intersection(_sources(op))]
    while True:
        copied = _closure(starts, lambda op: ancestors.intersection(_consumers(op)))
        frames = {_frame(op) for op in copied} - {None}
        # A while loop is copied as a whole: its frame cannot be shared.
        starts = [op for op in ancestors if op in copied or _frame(op) in frames]
        if len(starts) == len(copied):
            return copied


def _closure(starts: Iterable[tf.Operation], neighbours) -> set[tf.Operation]:
    found = set(starts)
    waiting = deque(found)
    while waiting:
        for op in neighbours(waiting.popleft()):
            if op not in found:
                found.add(op)
                waiting.append(op)
    return found


def _sources(op: tf.Operation) -> list[tf.Operation]:
    return [tensor.op for tensor in op.inputs] + list(op.control_inputs)


def _consumers(op: tf.Operation) -> list[tf.Operation]:
    return [user for tensor in op.outputs for user in tensor.consumers()] + list(
        op._control_outputs)


def _writes(op: tf.Operation) -> bool:
    return _WRITES.match(op.type) is not None


def _is_random(op: tf.Operation) -> bool:
    return op.op_def.is_stateful and any(attr.name == "seed2" for attr in op.op_def.attr)


def _is_of_one_step(op: tf.Operation) -> bool:
    # Stacks and tensor arrays of v1 while loops: resources, but of one computation only.
    return op.type.startswith(("Stack", "TensorArray"))


def _frame(op: tf.Operation) -> str | None:
    """Returns the name of the outermost v1 while loop that the op is part of."""
    context, name = op._get_control_flow_context(), None
    if op.type == "Exit":
        context = None
    while context is not None:
        if context.IsWhileContext():
            name = context.name
        context = context.outer_context
    if name is None and op.type in ("Enter", "Exit"):
        name = _loop_of(op)
    return name


def _loop_of(op: tf.Operation) -> str | None:
    if op.type == "Enter":
        users = [user for user in op.outputs[0].consumers() if user.type != "Enter"]
        return _frame(users[0]) if users else None
    return _frame(op.inputs[0].op)


def _tensors_from_outside(ops: set[tf.Operation]) -> list[Tensor]:
    return [tensor for op in ops for tensor in op.inputs if tensor.op not in ops]


def _graph_def(graph: tf.Graph, ops: set[tf.Operation], scope: str,
               index: int) -> tf.compat.v1.GraphDef:
    names = {op.name for op in ops}
    graph_def = tf.compat.v1.GraphDef()
    whole = graph.as_graph_def(add_shapes=False)
    graph_def.versions.CopyFrom(whole.versions)
    graph_def.library.CopyFrom(whole.library)
    for node in whole.node:
        if node.name in names:
            _adapt(graph_def.node.add(), node, names, scope, index)
    return graph_def


def _adapt(copy: node_def_pb2.NodeDef, node: node_def_pb2.NodeDef, names: set[str], scope: str,
           index: int) -> None:
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(source for source in node.input
                      if not source.startswith("^") or source[1:] in names)
    copy.attr.pop("_class", None)  # may name an op that is not copied
    if "frame_name" in copy.attr:
        copy.attr["frame_name"].s = f"{scope}/".encode() + node.attr["frame_name"].s
    if "seed2" in copy.attr and (node.attr["seed"].i or node.attr["seed2"].i):
        copy.attr["seed2"].i = (node.attr["seed2"].i + index * _SEED_STEP) % 2 ** 31
