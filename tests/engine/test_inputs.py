# SPDX-License-Identifier: Apache-2.0
"""Every shape that a feature's ids can have, against the NumPy oracle."""

import numpy as np
import pytest

from tests.batches import Setting, many_ids, one_id_each, train_beside_oracle, with_holes
from tests.oracle import Entry, Feature, Optimizer, Oracle, Table
from tests.runners import RUNNERS

pytestmark = pytest.mark.usefixtures("kernels")

VOCABULARY_SIZE, DIMENSION, BATCH_SIZE, STEPS = 9, 4, 6, 3

# Values of size 1 in float32: see test_against_oracle.py. Dividing by a sum of weights of down
# to 1/8 magnifies the rounding eightfold.
TOLERANCE = {"rtol": 1e-6, "atol": 4e-6}


def new_oracle(combiner="sum", length=0, names=("a", "b")):
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, [VOCABULARY_SIZE, DIMENSION]).astype(np.float32)
    table = Table("t", values, combiner, Optimizer("Adagrad", 0.5))
    return Oracle([table], [Feature(name, "t", length) for name in names])


def batches_of(make, names=("a", "b")):
    rng = np.random.default_rng(2)
    return [{name: make(rng, BATCH_SIZE, VOCABULARY_SIZE) for name in names}
            for _ in range(STEPS)]


@pytest.fixture(params=["session", "eager"])
def runner(request):
    return RUNNERS[request.param]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_weights_of_one_feature_leave_the_other_unweighted(runner, kind, combiner):
    batches = batches_of(many_ids)
    rng = np.random.default_rng(3)
    for batch in batches:
        batch["a"] = many_ids(rng, BATCH_SIZE, VOCABULARY_SIZE, weighted=True)
    setting = Setting({"a": kind, "b": kind}, weighted=("a",))
    train_beside_oracle(runner, new_oracle(combiner), batches, setting, **TOLERANCE)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_denominator_of_zero_gives_zero_and_trains_nothing(runner, combiner):
    opposite = [Entry(1, 0.5), Entry(2, -0.5)] if combiner == "mean" else [Entry(1, 0.0)]
    batch = {"a": [opposite, [Entry(3, 0.0)], [Entry(4, 2.0)]]}
    setting = Setting({"a": "sparse"}, weighted=("a",))
    oracle = new_oracle(combiner, names=("a",))
    before = oracle.tables["t"].values[:4].copy()
    train_beside_oracle(runner, oracle, [batch], setting, **TOLERANCE)
    np.testing.assert_array_equal(oracle.activations(batch)["a"][:2], 0.0)
    np.testing.assert_array_equal(oracle.tables["t"].values[:4], before)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_negative_ids_are_padding(runner, kind, combiner):
    def make(rng, batch_size, vocabulary_size):
        samples = many_ids(rng, batch_size, vocabulary_size, weighted=True, padded=True)
        samples[-1] = [Entry(-1), Entry(-3)]
        return samples

    setting = Setting({"a": kind, "b": kind}, weighted=("a", "b"))
    train_beside_oracle(runner, new_oracle(combiner), batches_of(make), setting, **TOLERANCE)


def test_negative_dense_id_gives_zeros(runner):
    batch = {"a": [[Entry(2)], [Entry(-1)], [Entry(2)]]}
    train_beside_oracle(runner, new_oracle(names=("a",)), [batch] * 2,
                        Setting({"a": "dense"}), **TOLERANCE)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
def test_dense_ids_have_one_row_each_whatever_the_combiner(runner, combiner):
    setting = Setting({"a": "dense", "b": "dense"})
    oracle = new_oracle(combiner)
    train_beside_oracle(runner, oracle, batches_of(one_id_each), setting, **TOLERANCE)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_dense_ids_with_weights(runner, combiner):
    batch = {"a": [[Entry(2, 0.5)], [Entry(3, -2.0)], [Entry(2, 0.0)]]}
    setting = Setting({"a": "dense"}, weighted=("a",))
    train_beside_oracle(runner, new_oracle(combiner, names=("a",)), [batch] * 2, setting,
                        **TOLERANCE)


@pytest.mark.parametrize("combiner, weighted", [
    ("sum", False), ("sum", True), ("mean", True), ("sqrtn", True), (None, False)])
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_sequences_are_cut_and_padded(length, kind, combiner, weighted):
    def make(rng, batch_size, vocabulary_size):
        return many_ids(rng, batch_size, vocabulary_size, weighted=weighted)

    setting = Setting({"a": kind, "b": kind}, weighted=("a", "b") if weighted else ())
    train_beside_oracle(RUNNERS["eager"], new_oracle(combiner, length), batches_of(make), setting,
                        **TOLERANCE)


@pytest.mark.parametrize("runner", RUNNERS)
def test_sequences_may_have_holes(runner):
    rng = np.random.default_rng(4)

    def make(rng_of_batch, batch_size, vocabulary_size):
        samples = many_ids(rng_of_batch, batch_size, vocabulary_size, padded=True)
        return with_holes(rng, samples, last_position=8)

    train_beside_oracle(RUNNERS[runner], new_oracle("mean", 5), batches_of(make),
                        Setting({"a": "sparse", "b": "sparse"}), **TOLERANCE)


@pytest.mark.parametrize("runner", RUNNERS)
def test_sequence_and_combined_feature_share_a_table(runner):
    oracle = new_oracle("mean")
    oracle.features["b"] = Feature("b", "t", 3)
    train_beside_oracle(RUNNERS[runner], oracle, batches_of(many_ids),
                        Setting({"a": "sparse", "b": "ragged"}), **TOLERANCE)


@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_empty_samples_give_zeros(runner, kind, length):
    batches = [{"a": [[], [], []], "b": [[], [Entry(1)], []]},
               {"a": [[], [], []], "b": [[], [], []]}]
    train_beside_oracle(runner, new_oracle("mean", length), batches,
                        Setting({"a": kind, "b": kind}), **TOLERANCE)


@pytest.mark.parametrize("kind, length", [
    ("sparse", 0), ("sparse", 3), ("ragged", 0), ("ragged", 3), ("dense", 0)])
def test_empty_batch_changes_nothing(runner, kind, length):
    train_beside_oracle(runner, new_oracle("mean", length), [{"a": [], "b": []}],
                        Setting({"a": kind, "b": kind}), **TOLERANCE)


@pytest.mark.parametrize("kind", ["sparse", "flat sparse", "dense", "ragged"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_of_either_width(runner, dtype, kind):
    make = one_id_each if kind == "dense" else many_ids
    train_beside_oracle(runner, new_oracle("mean"), batches_of(make),
                        Setting({"a": kind, "b": kind}, ids_dtype=dtype), **TOLERANCE)


def test_batch_size_may_change_from_step_to_step(runner):
    rng = np.random.default_rng(6)
    batches = [{name: many_ids(rng, size, VOCABULARY_SIZE) for name in ("a", "b")}
               for size in (4, 1, 7)]
    train_beside_oracle(runner, new_oracle("sqrtn"), batches,
                        Setting({"a": "sparse", "b": "ragged"}), **TOLERANCE)


def test_last_id_of_the_vocabulary_is_looked_up(runner):
    batch = {"a": [[Entry(VOCABULARY_SIZE - 1), Entry(0)]]}
    train_beside_oracle(runner, new_oracle(names=("a",)), [batch] * 2, Setting({"a": "sparse"}),
                        **TOLERANCE)
