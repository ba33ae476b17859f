# SPDX-License-Identifier: Apache-2.0
"""The tables of a stack are looked up and updated separately, where that changes no number."""

import numpy as np
import pytest
import tensorflow as tf

from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.mid_level import SGD, Adam, FeatureConfig, TableConfig
from tpu_estimator_embedding.mid_level.sparse_core.stack_engine import plan_of_tables
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import to_stacks
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2
from tpu_estimator_embedding.plan.table_stacking import SparseCores


def configs():
    words, users = (TableConfig(rows, 4, tf.ones_initializer(), name=name)
                    for name, rows in (("words", 10), ("users", 20)))
    return {"body": FeatureConfig(words, output_shape=[4]),
            "reader": FeatureConfig(users, output_shape=[4]),
            "title": FeatureConfig(words, output_shape=[4])}


@pytest.mark.parametrize("optimizer, tables", [
    (SGD(0.5), {"users_words/users": ["reader"], "users_words/words": ["body", "title"]}),
    (Adam(lazy_adam=False), {"users_words": ["body", "reader", "title"]})])
def test_a_stack_is_one_table_only_where_rows_without_ids_move(optimizer, tables):
    stacks = to_stacks(configs(), optimizer, SparseCores(1, 4))
    plan = plan_of_tables(stacks, "users_words")
    assert {table.name: [feature.name for feature in plan.features_of(table.name)]
            for table in plan.tables} == tables
    assert {table.vocabulary_size for table in plan.tables} == {
        stacks.stacks["users_words"].shape[0]}


@pytest.mark.parametrize("kernels", ["tf", "native"])
@pytest.mark.parametrize("is_measured", [False, True])
def test_measures_may_begin_between_a_lookup_and_its_update(is_measured, kernels, monkeypatch):
    choose_kernels(kernels, monkeypatch)
    features = configs()
    embedding = TPUEmbeddingV2(features, SGD(0.5))
    ids = {"body": [0, 1, 2, 3], "reader": [19, 19, 0, 5], "title": [3, 3, 9, 0]}
    activations, preserved = embedding({path: tf.constant(each) for path, each in ids.items()})
    if is_measured:
        embedding.record_measures()
    embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations), preserved)
    for table, paths in ((features["reader"].table, ["reader"]),
                         (features["body"].table, ["body", "title"])):
        looked_up = np.concatenate([ids[path] for path in paths])
        counts = np.bincount(looked_up, minlength=table.vocabulary_size)
        np.testing.assert_array_equal(embedding.embedding_tables[table][:, 0], 1 - 0.5 * counts)
