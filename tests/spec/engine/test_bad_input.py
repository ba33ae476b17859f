# SPDX-License-Identifier: Apache-2.0
"""Input that must be rejected: the type of the error, its message, and that nothing changed."""

import numpy as np
import pytest
import tensorflow as tf

from tests.runners import RUNNERS, to_plan
from tests.spec.oracle import Feature, Optimizer, Table
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names

pytestmark = pytest.mark.usefixtures("kernels")

GOOD = np.array([1, 2]), None, None


def ints(*values):
    return np.array(values, np.int64)


def new_plan(optimizer=None):
    """`a` and `b` share a table of 9 rows, `c` has its own of 4, with the optimizer."""
    adagrad = Optimizer("Adagrad", 0.5)
    tables = [Table("t", np.zeros([9, 2]), "mean", adagrad),
              Table("u", np.zeros([4, 2]), "mean", optimizer or adagrad)]
    return to_plan(tables, [Feature("a", "t"), Feature("b", "t"), Feature("c", "u")])


def train_in_vain(runner_class, optimizer=None, **overridden):
    """Trains one step of two samples; returns the error after checking that nothing changed.

    Args:
        optimizer: of the table of `c`.
        overridden: feature -> (kind, arrays); the others get good ids.
    """
    inputs = {name: overridden.get(name, ("dense", GOOD)) for name in ("a", "b", "c")}
    runner = runner_class(new_plan(optimizer), {name: kind for name, (kind, _) in inputs.items()})
    before = runner.read()
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)) as caught:
        runner.train({name: arrays for name, (_, arrays) in inputs.items()},
                     {name: np.ones([2, 2]) for name in inputs}, 2, 0)
    for key, parts in runner.read().items():
        for part, was in zip(parts, before[key], strict=True):
            np.testing.assert_array_equal(part, was)
    # The kernel of Assert escapes quotes in what it prints.
    return caught.type, str(caught.value).replace("\\'", "'")


@pytest.fixture(params=["session", "eager"])
def runner(request):
    return RUNNERS[request.param]


@pytest.mark.parametrize("rate", [
    0.0, -0.1, lambda step: 0.1 * tf.cast(step, tf.float32)], ids=["zero", "negative", "schedule"])
def test_ftrl_needs_a_learning_rate_above_0(runner, rate):
    error, message = train_in_vain(runner, Optimizer("FTRL", rate))
    assert error is tf.errors.InvalidArgumentError
    assert "lr is not a positive scalar: " in message
    assert "table 'u'" in message
    assert "multiply_linear_by_learning_rate=True" in message


WHEN_RUN = {
    "dense id": ("dense", (ints(3, 9), None, None), "Ids of feature 'a' must be in [0, 9), "
                 "its vocabulary_size, got 9. Raise vocabulary_size"),
    "sparse id": ("sparse", (ints(30), ints([0, 0]), None), "got 30."),
    "ragged id": ("ragged", (ints(-1, 1000, 9), ints(0, 2, 3), None), "got 1000."),
    "narrow id": ("dense", (np.array([2, 2**31 - 1], np.int32), None, None), "got 2147483647."),
    "wide id": ("dense", (ints(2, 2**40), None, None), "got 1099511627776."),
    "dense samples missing": ("dense", (ints(1), None, None), "Samples of feature 'a' must be "
                              "2, the batch size, got 1. Give every feature"),
    "dense samples left over": ("dense", (ints(1, 1, 1), None, None), "got 3. Give every"),
    "dense matrix": ("dense", (ints([1, 2], [3, 4]), None, None), "got 4. Give every"),
    "ragged samples missing": ("ragged", (ints(1), ints(0, 1), None), "got 1. Give every"),
    "ragged samples left over": ("ragged", (ints(1), ints(0, 0, 0, 1), None), "got 3. Give"),
    "sample beyond the batch": ("flat sparse", (ints(1, 2), ints(0, 2), None), "Sample indices "
                                "of feature 'a' must be in [0, 2), the batch size, got [0 2]."),
    "sample below 0": ("sparse", (ints(1, 2), ints([-1, 0], [0, 0]), None), "got [-1 0]."),
    "unsorted sample beyond the batch": (
        "sparse", (ints(1, 2), ints([2, 0], [0, 0]), None), "the batch size, got [0 2]."),
    "unsorted sample indices of other ids": (
        "flat sparse", (ints(1, 2, 3), ints(1, 0), None), "as many as its ids, 3, got 2."),
    "row splits not sorted": ("ragged", (ints(1, 2), ints(0, 3, 2), None), "Row splits of feature "
                              "'a' must be in increasing order, got some that decrease"),
    "row splits of other ids": ("ragged", (ints(1, 2), ints(0, 1, 1), None), "Row splits of "
                                "feature 'a' must be as many as its ids, 2, got 1."),
    "sample indices of other ids": ("flat sparse", (ints(1, 2), ints(0), None), "Sample indices "
                                    "of feature 'a' must be as many as its ids, 2, got 1."),
    "weights missing": ("flat sparse", (ints(1, 2), ints(0, 1), np.ones(1, np.float32)),
                        "Weights of feature 'a' must be as many as its ids, 2, got 1."),
    "weights left over": ("ragged", (ints(1, 2), ints(0, 1, 2), np.ones(3, np.float32)),
                          "Weights of feature 'a' must be as many as its ids, 2, got 3."),
}


@pytest.mark.parametrize("case", WHEN_RUN)
def test_bad_values_are_named_and_change_no_table(runner, case):
    kind, arrays, sentence = WHEN_RUN[case]
    error, message = train_in_vain(runner, a=(kind, arrays))
    assert error is tf.errors.InvalidArgumentError
    assert sentence in message


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("feature", ["a", "b", "c"])
def test_bad_id_of_any_feature_is_blamed_on_it(runner, feature):
    inputs = {feature: ("dense", (ints(0, 99), None, None))}
    error, message = train_in_vain(RUNNERS[runner], **inputs)
    assert error is tf.errors.InvalidArgumentError
    assert f"Ids of feature {feature!r} must be" in message


def test_string_ids_are_refused_when_the_step_is_built(runner):
    error, message = train_in_vain(runner, b=("dense", (np.array(["x", "y"]), None, None)))
    assert error is ValueError
    assert ("Ids of feature 'b' must be integers, got 'string'. Map strings to ids in "
            "input_fn") in message


def test_float_ids_are_refused(runner):
    error, message = train_in_vain(runner, b=("dense", (np.array([1.0, 2.0]), None, None)))
    assert error is ValueError
    assert "Ids of feature 'b' must be integers, got 'float64'." in message


@pytest.mark.parametrize("kind, arrays", [
    ("dense", (ints(1, 2), None, None)), ("flat sparse", (ints(1, 2), ints(0, 1), None)),
    ("sparse", (ints(1, 2), ints([0], [1]), None))])
def test_sequence_without_positions_is_refused(kind, arrays):
    plan = to_plan([Table("t", np.zeros([9, 2]), "mean", Optimizer("SGD"))],
                   [Feature("a", "t", 3)])
    runner = RUNNERS["eager"](plan, {"a": kind})
    with pytest.raises(ValueError, match="Ids of sequence feature 'a' must be ragged, or "
                                         r"sparse with sample indices \[n, 2\], got "):
        runner.train({"a": arrays}, {"a": np.ones([2, 3, 2])}, 2, 0)


def test_missing_and_unknown_features_are_listed():
    plan = new_plan()
    datas = {"a": EnqueueData(tf.constant([1])), "x": EnqueueData(tf.constant([1]))}
    with pytest.raises(ValueError, match=r"`features` must be exactly \['a', 'b', 'c'\], got "
                       r"\['a', 'x'\]\. Missing: \['b', 'c'\]\. Not configured: \['x'\]\."):
        prepare_ids(plan, datas, 1, training=True)


@pytest.mark.parametrize("data", [tf.constant([1]), tf.sparse.from_dense([[1]]), ([1], None, None)])
def test_ids_that_are_not_enqueued_data_are_refused(data):
    plan = to_plan([Table("t", np.zeros([9, 2]), "mean", Optimizer("SGD"))], [Feature("a", "t")])
    with pytest.raises(TypeError, match="Ids of feature 'a' must be an EnqueueData or "
                                        "RaggedEnqueueData, got "):
        prepare_ids(plan, {"a": data}, 1, training=True)


@pytest.mark.parametrize("make, argument, bad", [
    (EnqueueData.from_sparse_tensor, "sp_tensor", "SparseTensor"),
    (RaggedEnqueueData.from_ragged_tensor, "rg_tensor", "RaggedTensor")])
def test_enqueued_data_is_made_of_its_own_kind_of_tensor(make, argument, bad):
    good = {"SparseTensor": tf.sparse.from_dense([[1]]), "RaggedTensor": tf.ragged.constant([[1]])}
    with pytest.raises(TypeError, match=f"`{argument}` must be a {bad}, got <tf.Tensor"):
        make(tf.constant([1]))
    with pytest.raises(TypeError, match=f"`weights` must be a {bad} or None, got <tf.Tensor"):
        make(good[bad], tf.constant([1.0]))


def one_table_engine(optimizer):
    from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
    plan = EmbeddingPlan.build([TablePlan("t", 9, 2, tf.ones_initializer(), "sum", optimizer)],
                               [FeaturePlan("a", "t")])
    return PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))


def test_gradients_need_an_optimizer():
    engine = one_table_engine(None)
    ids = prepare_ids(engine.plan, {"a": EnqueueData(tf.constant([1]))}, 1, training=True)
    with pytest.raises(RuntimeError, match=r"`apply_gradients` must have an optimizer for every "
                                           r"table, got none for \['t'\]\. Build the plan for"):
        engine.apply_gradients(ids, {"t": tf.ones([1, 2])}, 0)


def test_gradients_need_ids_made_for_training():
    from tests.runners import to_row_optimizer
    engine = one_table_engine(to_row_optimizer(Optimizer("SGD")))
    ids = prepare_ids(engine.plan, {"a": EnqueueData(tf.constant([1]))}, 1, training=False)
    with pytest.raises(RuntimeError, match="`ids` must be made for training, got ids made for "
                                           "inference. Call prepare_ids"):
        engine.apply_gradients(ids, {"t": tf.ones([1, 2])}, 0)
    np.testing.assert_array_equal(engine.lookup(ids)["t"], [[1.0, 1.0]])
