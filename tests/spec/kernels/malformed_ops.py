# SPDX-License-Identifier: Apache-2.0
"""A program that calls the compiled ops with what no graph of the package holds.

It records the calls of real steps, changes one to three of their attributes and inputs at random,
and calls the ops with that. They may refuse a call, or make it; if one reads or writes out of
bounds the process may die, and does under AddressSanitizer. It prints how many calls of each op
were refused and made, and how many of the sentences it saw.

    python -m tests.spec.kernels.malformed_ops SEED CALLS
"""

import collections
import json
import re
import sys
import tempfile

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import JoinedGradient
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

# What is too large for the memory is refused for that; so are tensors that end too early.
REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError,
            tf.errors.ResourceExhaustedError, tf.errors.DataLossError, ValueError, TypeError,
            OverflowError)
OPEN, LOOK_UP = "tpu_embedding_open_stored_table", "tpu_embedding_look_up"
ENDS = (-2 ** 63, -2 ** 31, -1, 0, 1, 2, 3, 7, 2 ** 31 - 1, 2 ** 31, 2 ** 62, 2 ** 63 - 1)
# By these a size may grow and its product with 4 or 8 columns stay the same number of 64 bits.
STEPS = (-2, -1, 1, 2, 2 ** 61, 2 ** 62)
NUMBER = r"-?\d+"
# For larger ones there may be no memory.
MOST = {"num_hosts": 4, "num_tables": 50, "batch_sizes": 50, "num_sparse": 50, "row_counts": 50,
        "dims": 50}


class Recorder:
    """The compiled ops, which notes how they are called."""

    def __init__(self, ops):
        self._ops, self.calls = ops, []

    def __getattr__(self, name):
        def call(**arguments):
            self.calls.append((name, arguments))
            return getattr(self._ops, name)(**arguments)

        return call


def recorded_calls(ops, num_hosts, *, on_servers=False):
    """Returns the calls of a training step of three tables, and their variables."""
    optimizers = [RowOptimizer(rule, 0.5, use_gradient_accumulation=False)
                  for rule in (SGD(), Momentum(0.5), Adam(lazy_adam=False))]
    plan = EmbeddingPlan.build(
        [TablePlan(f"t{k}", 9, (4, 8, 5)[k], tf.compat.v1.ones_initializer(),
                   ("sum", "mean", "sqrtn")[k], optimizer)
         for k, optimizer in enumerate(optimizers)],
        [FeaturePlan(f"f{k}", f"t{k}", max_sequence_length=2 * (k == 2)) for k in range(3)],
        num_hosts=num_hosts, partition_strategy="mod")
    variables = create_variables(plan, default_names(plan))
    data = {"f0": EnqueueData(tf.constant([3, 8])),
            "f1": RaggedEnqueueData(tf.constant([1, 7, 0]), tf.constant([0, 1, 3]),
                                    tf.constant([1.0, 2.0, 0.5])),
            "f2": EnqueueData(tf.constant([2, 5]), tf.constant([[0, 0], [1, 1]]))}
    recorder = Recorder(ops)
    original, load.native_ops = load.native_ops, lambda: recorder
    try:
        engine = PartitionedEmbedding(plan, variables)
        ids = prepare_replicas(plan, [(data, 2)], training=True, on_servers=on_servers)
        stacked = engine.lookup(ids)
        engine.apply_gradients(ids, {name: tf.ones_like(value) for name, value in stacked.items()},
                               0)
    finally:
        load.native_ops = original
    return recorder.calls, variables


def joined_calls(ops):
    """Returns the calls of a step whose activations are columns of one tensor, and variables."""
    plan = EmbeddingPlan.build(
        [TablePlan(f"t{k}", 9, 5, tf.compat.v1.ones_initializer(), "sum", RowOptimizer(SGD(), 0.5))
         for k in range(2)], [FeaturePlan(f"f{k}", f"t{k}") for k in range(2)])
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    ids = prepare_replicas(plan, [({f"f{k}": EnqueueData(tf.constant([3, 8])) for k in range(2)},
                                   2)], training=True)
    recorder = Recorder(ops)
    original, load.native_ops = load.native_ops, lambda: recorder
    try:
        joined = engine.lookup_joined(ids, ["t1", "t0"])
        gradients = engine.step_gradients({}, 0)
        engine.update(ids, gradients._replace(joined=JoinedGradient(joined, {"t1": 0, "t0": 5})))
    finally:
        load.native_ops = original
    return recorder.calls, engine.variables


def parse_call():
    """Returns a call that parses two records, with features of every kind."""
    record = bytes.fromhex("0a0f0a0d0a03696473") + bytes.fromhex("12061a040a020708")  # ids: 7, 8
    return "tpu_embedding_parse_examples", {
        "serialized": tf.constant([record, b""]),
        "dense_defaults": [tf.constant([0.5, 1.5]), tf.constant(["text"])],
        "dense_keys": ["price", "text"], "dense_shapes": [[2], []],
        "ragged_keys": ["ids", "words"], "ragged_types": [tf.int64, tf.string],
        "ragged_split_types": [tf.int32, tf.int64], "sparse_keys": ["pages"],
        "sparse_types": [tf.int64], "num_sparse": 1}


def changed_number(rng, value):
    if isinstance(value, float):
        return float(rng.choice([np.nan, np.inf, -1.0, 0.0, value + 1]))
    if rng.random() < 0.5:
        return value + STEPS[rng.integers(len(STEPS))]
    return ENDS[rng.integers(len(ENDS))]


def changed_list(rng, values):
    values = list(values)
    change = rng.integers(4)
    if values and change == 0:
        del values[rng.integers(len(values))]
    elif values and change == 1:
        values.append(values[rng.integers(len(values))])
    elif values and change == 2:
        values[::-1] = list(values)
    elif values:
        place = rng.integers(len(values))
        values[place] = changed(rng, values[place])
    return values


def changed_tensor(rng, tensor):
    array = tensor.numpy()
    change = rng.integers(4)
    if change == 0 and array.size and array.dtype != object:
        flat = array.reshape(-1).copy()
        number = changed_number(rng, flat[rng.integers(flat.size)].item())
        limits = np.iinfo(flat.dtype) if flat.dtype.kind == "i" else None
        flat[rng.integers(flat.size)] = (
            number if limits is None else np.clip(number, limits.min, limits.max))
        array = flat.reshape(array.shape)
    elif change == 1:
        array = array[:max(0, len(array) - 1)] if array.ndim else array[None]
    elif change == 2:
        array = np.concatenate([array, array[-1:]]) if array.ndim else np.stack([array] * 2)
    else:
        array = array[None] if rng.random() < 0.5 else array.reshape(-1)
    return tf.constant(array)


def changed(rng, value):
    """Returns something of the same kind that is not what belongs there."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return changed_number(rng, value)
    if isinstance(value, str):
        return str(rng.choice(["sum", "mean", "one_id_each", "row_splits", "coordinates", "Adam"]))
    if isinstance(value, list):
        return changed_list(rng, value)
    if tf.is_tensor(value) and value.dtype == tf.resource:
        return OTHER_HANDLES[rng.integers(len(OTHER_HANDLES))]
    if tf.is_tensor(value):
        return changed_tensor(rng, value)
    return value


def is_moderate(arguments):
    """Whether the call asks for no more memory than a small machine has."""
    for name, most in MOST.items():
        value = arguments.get(name, 0)
        if np.any(np.asarray(value) > most):
            return False
    return True


def call_changed(rng, ops, calls):
    """Returns the op and what came of it."""
    name, arguments = calls[rng.integers(len(calls))]
    arguments = dict(arguments)
    for key in rng.choice(list(arguments), size=rng.integers(1, 4)):
        arguments[key] = changed(rng, arguments[key])
    return name, outcome_of(ops, name, arguments)


def outcome_of(ops, name, arguments):
    """Returns what comes of a call: skipped, made, or the sentence that refuses it."""
    if not is_moderate(arguments):
        return "skipped"
    try:
        getattr(ops, name)(**arguments)
    except REFUSALS as error:
        sentence = re.sub(r"\{\{.*?\}\} |\[Op:.*", "", str(error))
        return f"{type(error).__name__}: {re.sub(NUMBER, 'N', sentence)}"[:80]
    return "made"


def open_changed(rng, ops, path, lookup):
    """Opens a table of 9 rows in a file, and looks up in it; yields ops and what came of them.

    Args:
        path: of a file with 90 numbers.
        lookup: arguments of a lookup in a table of the same size.
    """
    table = tf.Variable(np.ones([9, 4], np.float32)).handle
    opening = {"table": table, "files": tf.constant([path]),
               "pieces": tf.constant([[0, 5, 0, 0], [5, 4, 0, 80]], tf.int64),
               "order": tf.constant([9, 0, 1, 9, 1 + rng.integers(3)], tf.int64),
               "kept_bytes": tf.constant(rng.choice([0, 100, 10000]), tf.int64), "dim": 4}
    for key in rng.choice(["files", "pieces", "order", "kept_bytes", "dim"],
                          size=rng.integers(0, 3)):
        opening[key] = changed(rng, opening[key])
    outcome = outcome_of(ops, OPEN, opening)
    yield OPEN, outcome
    if outcome == "made":
        lookup = {**lookup, "tables": [table, *lookup["tables"][1:]]}
        key = rng.choice([key for key in lookup if key != "tables"])
        lookup[key] = changed(rng, lookup[key])
        yield LOOK_UP, outcome_of(ops, LOOK_UP, lookup)


OTHER_HANDLES = []


def main(seed, num_calls):
    ops = load.native_ops()
    rng = np.random.default_rng(seed)
    kept = [recorded_calls(ops, 1), recorded_calls(ops, 2),
            recorded_calls(ops, 2, on_servers=True), joined_calls(ops)]
    others = [tf.Variable(value) for value in (np.ones([9, 5]), np.ones([3, 5], np.float32),
                                               np.float32(1), np.ones([9, 5], np.float32))]
    OTHER_HANDLES.extend(variable.handle for variable in others)
    OTHER_HANDLES.append(kept[0][1]["t0"].parts[0].handle)
    calls = [call for of_plan, _ in kept for call in of_plan] + 2 * [parse_call()]
    outcomes = collections.Counter()
    for _ in range(num_calls):
        outcomes[call_changed(rng, ops, calls)] += 1
    lookup = next(arguments for name, arguments in kept[0][0] if name == LOOK_UP)
    with tempfile.NamedTemporaryFile() as file:
        np.arange(90, dtype=np.float32).tofile(file.name)
        for _ in range(num_calls // 8):
            outcomes.update(open_changed(rng, ops, file.name, lookup))
    names = sorted({name for name, _ in outcomes})
    print(json.dumps({
        name: {"made": outcomes[name, "made"],
               "sentences": len([1 for (op, what) in outcomes if op == name]) - 1,
               "refused": sum(count for (op, what), count in outcomes.items()
                              if op == name and what not in ("made", "skipped"))}
        for name in names}))
    if "-v" in sys.argv:
        for (name, what), count in sorted(outcomes.items()):
            print(count, name, what)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
