# SPDX-License-Identifier: Apache-2.0
"""Tensors that functions of the user use without being given them.

A model_fn that captures a tensor of its input_fn would compute with another batch than that of its
features. A host function or metric function that captures a tensor of the model would see the first
replica only. Both are refused.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.compat.stubs import tpu_ops
from tpu_estimator_embedding.estimator.replicas import op_kinds
from tpu_estimator_embedding.types import Tensor

# Ops that give another value whenever they run.
_READS_INPUT = re.compile(
    r"IteratorGetNext|OptionalGetValue|\w*Queue\w*Dequeue|Reader\w*Read|(Eager)?PyFunc|\w*Unstage|"
    r"Random|(Parameterized)?TruncatedNormal|Multinomial|Stateful|Rng")


def check_input_is_given(num_ops: int, given: Collection[Tensor]) -> None:
    """Checks that the model in the default graph reads its input from the given tensors.

    Args:
        num_ops: the number of ops that were in the graph before the model.
        given: the tensors of features and labels.

    Raises:
        ValueError: if the model uses another tensor that is different in every run.
    """
    ops = tf.compat.v1.get_default_graph().get_operations()[:num_ops]
    own = {tensor.op for tensor in given}
    # Initializers draw random numbers, too, but once: what they write is not followed.
    reads = [op for op in ops if _READS_INPUT.match(op.type) and op not in own]
    found = _reached(reads, within=set(ops))
    if found is not None:
        source, op = found
        raise ValueError(
            f"model_fn must take its input through `features` and `labels`, got an op {op.name!r} "
            f"that uses {source.name!r} of input_fn, which yields a different batch from that of "
            "the features. Return that tensor from input_fn as one of the features.")


def leave_out_summaries_of_input() -> None:
    """Removes summaries of the input from the default graph, before a model adds its own.

    Whenever they were written, they would take a batch that is not trained on.
    """
    kept = []
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    for summary in summaries:
        if any(_READS_INPUT.match(op.type) for op in _sources(summary.op, lambda op: False)):
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: summary %r of input_fn is not written, because it would "
                "take another batch from the input. Summarize the features in model_fn.",
                summary.op.name)
        else:
            kept.append(summary)
    summaries[:] = kept


def check_host_is_given(num_ops: int, given: Iterable[Tensor], first: Iterable[Tensor]) -> None:
    """Checks that host and metric functions use tensors of all replicas.

    Args:
        num_ops: the number of ops that were in the default graph before these functions ran.
        given: the tensors of `eval_metrics` and `host_call`, of all replicas.
        first: the inputs of the first replica.

    Raises:
        ValueError: if one of them uses another tensor that differs by replica.
    """
    ops = tf.compat.v1.get_default_graph().get_operations()
    model = set(ops[:num_ops])
    used = {tensor.ref(): op for op in ops[num_ops:] for tensor in op.inputs
            if tensor.op in model and not tensor.op.type.endswith("Summary")}
    of_all = {tensor.op for tensor in given}
    inputs = {tensor.op for tensor in first}

    def is_of_all(op: tf.Operation) -> bool:
        is_sum = (tpu_ops.is_stub(op) and not tpu_ops.exchange(op)
                  and len(tpu_ops.group_assignment(op) or [[]]) == 1)
        return is_sum or op in of_all

    for reference, op in used.items():
        tensor = reference.deref()
        if any(source in inputs or op_kinds.is_random(source.node_def)
               for source in _sources(tensor.op, is_of_all)):
            raise ValueError(
                "Functions of eval_metrics and host_call must be given the tensors that they use, "
                f"got an op {op.name!r} that uses {tensor.name!r} of model_fn, which belongs to "
                "the first of several replicas. Pass that tensor to the function as well.")


def _reached(starts: Sequence[tf.Operation], within: Collection[tf.Operation]
             ) -> tuple[Tensor, tf.Operation] | None:
    """Returns an op that uses what `starts` lead to, but is not `within`, and what it uses."""
    seen, waiting = set(starts), list(starts)
    while waiting:
        for tensor in waiting.pop().outputs:
            for op in tensor.consumers():
                if op not in within:
                    return tensor, op
                if op not in seen and not op_kinds.writes(op.type):
                    seen.add(op)
                    waiting.append(op)
    return None


def _sources(op: tf.Operation, is_end: Callable[[tf.Operation], bool]) -> set[tf.Operation]:
    """Returns the ops that an op depends on, and the op itself, up to the ends."""
    seen: set[tf.Operation] = set()
    waiting = [op]
    while waiting:
        op = waiting.pop()
        if op not in seen and not is_end(op):
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return seen
