# SPDX-License-Identifier: Apache-2.0
"""What a plan checks, how it is ordered and how it prints."""

import dataclasses

import pytest

from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.plan.format_bytes import format_bytes


def table(name="t", rows=10, dimension=4, **options):
    return TablePlan(name, rows, dimension, None, **options)


def test_tables_and_features_are_sorted_from_any_order():
    plan = EmbeddingPlan.build([table("b"), table("a")], [
        FeaturePlan("z", "a"), FeaturePlan("x", "b"), FeaturePlan("y", "a")])
    assert [table.name for table in plan.tables] == ["a", "b"]
    assert [feature.name for feature in plan.features] == ["y", "z", "x"]
    assert [feature.name for feature in plan.features_of("a")] == ["y", "z"]
    assert plan.table_by_name["b"] is plan.tables[1]


@pytest.mark.parametrize("field, bad, rule", [
    ("vocabulary_size", 0, "an int of at least 1"), ("vocabulary_size", 1.5, "an int of"),
    ("vocabulary_size", True, "an int of at least 1"), ("dimension", 0, "an int of at least 1"),
    ("dimension", "4", "an int of at least 1"),
    ("combiner", "max", "one of 'mean', 'sum', 'sqrtn', None")])
def test_tables_are_checked(field, bad, rule):
    with pytest.raises(ValueError, match=f"`{field}` must be {rule}.*, got {bad!r}\\."):
        dataclasses.replace(table(), **{field: bad})


@pytest.mark.parametrize("options, sentence", [
    ({"num_hosts": 0}, "`num_hosts` must be an int of at least 1, got 0."),
    ({"partition_strategy": "hash"},
     "`partition_strategy` must be one of 'div', 'mod', got 'hash'.")])
def test_options_are_checked(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        EmbeddingPlan.build([table()], [FeaturePlan("f", "t")], **options)


@pytest.mark.parametrize("tables, features, sentence", [
    ([table(), table()], [FeaturePlan("f", "t")],
     r"`tables` must have distinct names, got \['t', 't'\]\."),
    ([table()], [FeaturePlan("f", "t"), FeaturePlan("f", "t")],
     r"`features` must have distinct names, got \['f', 'f'\]\."),
    ([table()], [FeaturePlan("f", "u")],
     r"Table of feature 'f' must be one of the tables \['t'\], got 'u'\."),
    ([table(), table("u")], [FeaturePlan("f", "t")],
     r"`tables` must be used by at least one feature each, got \['u'\]\. Drop the unused")])
def test_names_are_checked(tables, features, sentence):
    with pytest.raises(ValueError, match=sentence):
        EmbeddingPlan.build(tables, features)


def test_feature_in_two_tables_is_refused():
    with pytest.raises(ValueError, match=r"`features` must have distinct names, got \['f', 'f'"):
        EmbeddingPlan.build([table("t"), table("u")], [FeaturePlan("f", "t"),
                                                       FeaturePlan("f", "u")])


def test_plans_are_frozen_values():
    plans = [EmbeddingPlan.build([table()], [FeaturePlan("f", "t")]) for _ in range(2)]
    assert plans[0] == plans[1]
    with pytest.raises(dataclasses.FrozenInstanceError):
        plans[0].num_hosts = 2


@pytest.mark.parametrize("rule, copies", [(SGD(), 1), (Adagrad(), 2), (Adam(), 3)])
def test_bytes_count_the_table_and_its_slots(rule, copies):
    optimizer = RowOptimizer(rule, 0.5)
    plan = EmbeddingPlan.build([table(rows=1000, dimension=8, optimizer=optimizer)],
                               [FeaturePlan("f", "t")])
    assert plan.bytes == plan.tables[0].bytes == copies * 1000 * 8 * 4


def test_rows_per_host_leave_out_hosts_beyond_the_vocabulary():
    plan = EmbeddingPlan.build([table(rows=3)], [FeaturePlan("f", "t")], num_hosts=8)
    assert plan.rows_per_host(plan.tables[0]) == [1, 1, 1]


def test_rows_per_sample_is_the_sequence_length():
    assert FeaturePlan("f", "t").rows_per_sample == 1
    assert FeaturePlan("f", "t", 7).rows_per_sample == 7


def test_a_plan_prints_as_a_table():
    def falling(step):
        return step

    plan = EmbeddingPlan.build(
        [TablePlan("words", 1000, 16, None, "mean", RowOptimizer(Adagrad(), 0.125)),
         TablePlan("users", 13, 2, None, None, RowOptimizer(Adam(), falling))],
        [FeaturePlan("title", "words"), FeaturePlan("body", "words", 20, "tfidf"),
         FeaturePlan("user", "users")],
        num_hosts=5, partition_strategy="mod", pipelined=True,
        gradient_multiplier_fn=lambda step: 1.0)
    assert str(plan).splitlines() == [
        "Embedding plan: 2 tables, 3 features, 5 hosts, partition 'mod', pipelined, "
        "gradient multiplier, 125.3 KiB",
        "table  rows  dim  combiner  optimizer       slots                rows per host      "
        "bytes  features",
        "users    13    2  None      Adam(falling)   momenta, velocities            3/2      "
        "312 B  user",
        "words  1000   16  mean      Adagrad(0.125)  accumulators                   200  "
        "125.0 KiB  body[20]*tfidf, title",
    ]


@pytest.mark.parametrize("count, text", [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"),
    (5 * 2**30, "5.0 GiB"), (2**40, "1.0 TiB"), (2**50, "1024.0 TiB")])
def test_bytes_print_with_the_largest_unit_that_fits(count, text):
    assert format_bytes(count) == text


def test_a_restricted_plan_keeps_features_and_the_tables_they_use():
    plan = EmbeddingPlan.build([table("t"), table("u")], [
        FeaturePlan("f", "t"), FeaturePlan("g", "t"), FeaturePlan("h", "u")], num_hosts=3)
    kept = plan.restricted_to(["g"])
    assert kept == EmbeddingPlan.build([table("t")], [FeaturePlan("g", "t")], num_hosts=3)
