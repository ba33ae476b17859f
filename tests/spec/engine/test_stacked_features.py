# SPDX-License-Identifier: Apache-2.0
"""Features whose tables share a stack, against loops over the tables themselves."""

import numpy as np
import pytest
import tensorflow as tf

from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.stacked_activations import split_activations
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.plan.stacked_feature import StackedFeature
from tpu_estimator_embedding.plan.table_stacking import SparseCores, StackableTable, stack_tables

DIM, RATE = 8, 0.5
TABLES = {"a": (10, "mean"), "b": (70, "sum"), "c": (5, "sqrtn")}  # rows and combiner
SAMPLES = {"first": ("a", 4), "second": ("b", 2), "third": ("c", 2), "fourth": ("b", 3)}
IDS = {"first": [[1, 9], [], [1], [0, 3, 3]], "second": [[69, 4], [5]],
       "third": [[4, 2, 2], [-1, 0]], "fourth": [[4], [5], [0]]}
WEIGHTS = {"first": [1.0, 2.0, 3.0, 0.5, 1.0, 4.0]}


def stack_of(num_chips):
    [stack] = stack_tables([StackableTable(name, rows, DIM, samples=8)
                            for name, (rows, _) in TABLES.items()], SparseCores(num_chips, 2))
    return stack


def plan_of(stack, num_chips):
    rows = np.random.default_rng(0).standard_normal(stack.shape).astype(np.float32)
    start = iter(np.split(rows, num_chips))
    features = [FeaturePlan(name, stack.name, stacked=StackedFeature(
        stack, table, TABLES[table][1], samples)) for name, (table, samples) in SAMPLES.items()]
    table = TablePlan(stack.name, *stack.shape, lambda *_, **__: tf.constant(next(start)), "sum",
                      RowOptimizer(SGD(), RATE))
    return EmbeddingPlan.build([table], features, num_hosts=num_chips), rows


def datas():
    flat = {name: [id_ for ids in lists for id_ in ids] for name, lists in IDS.items()}
    ragged = {name: tf.ragged.constant(lists, tf.int64) for name, lists in IDS.items()}
    return {"first": EnqueueData(tf.constant(flat["first"]),
                                 ragged["first"].to_sparse().indices,
                                 tf.constant(WEIGHTS["first"])),
            "second": RaggedEnqueueData(ragged["second"].values, ragged["second"].row_splits),
            "third": RaggedEnqueueData(ragged["third"].values, ragged["third"].row_splits),
            "fourth": EnqueueData(tf.constant(flat["fourth"], tf.int32))}


def plain_step(stack, rows, gradient_of):
    """Returns the activations and the rows after an update, id by id."""
    updated, activations = rows.astype(np.float64), {}
    for name, (table, samples) in SAMPLES.items():
        weights = iter(WEIGHTS.get(name, [1.0] * 99))
        activations[name] = np.zeros([samples, DIM])
        for sample, ids in enumerate(IDS[name]):
            given = [(id_, next(weights)) for id_ in ids]
            given = [(stack.row(table, id_), weight) for id_, weight in given if id_ >= 0]
            over = {"sum": 1, "mean": sum(weight for _, weight in given),
                    "sqrtn": np.sqrt(sum(weight ** 2 for _, weight in given))}[TABLES[table][1]]
            for row, weight in given:
                activations[name][sample] += rows[row] * weight / over
                updated[row] -= RATE * gradient_of[name][sample] * weight / over
    return activations, updated


@pytest.mark.parametrize("num_chips", [1, 2])
@pytest.mark.parametrize("kernels", ["native", "tf"])
def test_stacked_features_equal_loops(kernels, num_chips, monkeypatch):
    choose_kernels(kernels, monkeypatch)
    stack = stack_of(num_chips)
    plan, rows = plan_of(stack, num_chips)
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    random = np.random.default_rng(1)
    gradients = {name: random.standard_normal([samples, DIM]).astype(np.float32)
                 for name, (_, samples) in SAMPLES.items()}
    expected, updated = plain_step(stack, rows, gradients)
    ids = prepare_ids(plan, datas(), 1, training=True)
    found = split_activations(plan, engine.lookup(ids), 1)
    for name, activations in expected.items():
        np.testing.assert_allclose(found[name], activations, rtol=1e-5, atol=1e-6)
    stacked = np.concatenate([gradients[feature.name] for feature in plan.features])
    engine.apply_gradients(ids, {stack.name: tf.constant(stacked)}, step=0)
    parts = engine.variables[stack.name].parts
    np.testing.assert_allclose(np.concatenate(parts), updated, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernels", ["native", "tf"])
@pytest.mark.parametrize(("feature", "data", "sentence"), [
    ("third", RaggedEnqueueData(tf.constant([5, 0], tf.int64), tf.constant([0, 1, 2])),
     r"Ids of feature .*third.* must be in \[0, 5\), its vocabulary_size, got 5"),
    ("fourth", EnqueueData(tf.constant([1, 2])),
     r"Samples of feature .*fourth.* must be 3, the batch size, got 2")])
def test_checks_are_those_of_the_small_table(kernels, feature, data, sentence, monkeypatch):
    choose_kernels(kernels, monkeypatch)
    plan, _ = plan_of(stack_of(1), 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        prepare_ids(plan, {**datas(), feature: data}, 1, training=False)
