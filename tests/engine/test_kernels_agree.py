# SPDX-License-Identifier: Apache-2.0
"""The compiled ops and TensorFlow's own give the same tables, slots and activations."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, many_ids, random_gradients
from tests.kernel_choice import choose_kernels
from tests.optimizer_cases import CASES
from tests.oracle import Feature, Oracle, Table
from tests.runners import RUNNERS

VOCABULARY_SIZE, BATCH_SIZE, STEPS = 40, 24, 3

# Float32 keeps 6e-8 of a value; the sums of a step have about ten of size 1, and dividing by a
# sum of weights of down to 1/8 magnifies what they lose eightfold.
TOLERANCE = {"rtol": 1e-6, "atol": 5e-6}

KINDS = {"a": "sparse", "b": "ragged", "c": "flat sparse"}


def trained(choice, monkeypatch, case, *, dimension, combiner="mean", setting=None, **options):
    """Trains on random batches, weights for one feature; returns activations and state."""
    choose_kernels(choice, monkeypatch)
    rng = np.random.default_rng(7)
    dimension = 1 if CASES[case].kind == "FrequencyEstimator" else dimension
    table = Table("t", rng.uniform(-1, 1, [VOCABULARY_SIZE, dimension]).astype(np.float32),
                  combiner, dataclasses.replace(CASES[case], **options))
    oracle = Oracle([table], [Feature(name, "t") for name in KINDS])
    setting = setting or Setting(KINDS, weighted=("b",))
    runner = setting.runner(RUNNERS["eager"], [table], list(oracle.features.values()))
    activations = []
    for step in range(STEPS):
        batch = {name: many_ids(rng, BATCH_SIZE, VOCABULARY_SIZE, max_ids=6,
                                weighted=name in setting.weighted, padded=True)
                 for name in KINDS}
        gradients = random_gradients(rng, oracle.activations(batch))
        activations.append(runner.train(setting.arrays(batch), gradients, BATCH_SIZE, step))
    return activations, runner.read()


def assert_same(native, tensorflow):
    for ours, theirs in zip(native[0], tensorflow[0], strict=True):
        for name, values in theirs.items():
            np.testing.assert_allclose(ours[name], values, **TOLERANCE)
    for key, parts in tensorflow[1].items():
        for ours, theirs in zip(native[1][key], parts, strict=True):
            np.testing.assert_allclose(ours, theirs, **TOLERANCE, err_msg=str(key))


@pytest.mark.parametrize("case", CASES)
def test_every_optimizer(monkeypatch, case):
    """The dimension has columns of every size of block: 64, 32, 16, 8, 4 and single ones."""
    runs = [trained(choice, monkeypatch, case, dimension=127, decay=0.125,
                    gradient_limits=(-0.75, 1.0), weight_limits=(-1.25, 1.5))
            for choice in ("native", "tf")]
    assert_same(*runs)


@pytest.mark.parametrize("dimension", [1, 2, 5, 8, 16, 20, 32, 64, 100, 128, 2000])
def test_every_dimension(monkeypatch, dimension):
    assert_same(*[trained(choice, monkeypatch, "Adagrad", dimension=dimension)
                  for choice in ("native", "tf")])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
@pytest.mark.parametrize("weighted", [(), ("a", "c")])
def test_every_combiner(monkeypatch, combiner, weighted):
    setting = Setting(KINDS, weighted=weighted, ids_dtype=np.int32)
    assert_same(*[trained(choice, monkeypatch, "Adagrad", dimension=3, combiner=combiner,
                          setting=setting) for choice in ("native", "tf")])


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_core_by_core_on_several_hosts(monkeypatch, strategy):
    setting = Setting(KINDS, weighted=("c",), num_hosts=3, partition_strategy=strategy,
                      num_replicas=3)
    assert_same(*[trained(choice, monkeypatch, "Momentum", dimension=9, setting=setting,
                          accumulate=False) for choice in ("native", "tf")])


@pytest.mark.parametrize("case", ["Adagrad", "Adam, not lazy"])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, case):
    bits, session = set(), tf.compat.v1.Session
    monkeypatch.setitem(RUNNERS, "eager", RUNNERS["session"])
    for threads in (1, 2, 3, 7):
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
        monkeypatch.setattr(tf.compat.v1, "Session", functools.partial(session, config=config))
        activations, state = trained("native", monkeypatch, case, dimension=33)
        values = [value for step in activations for _, value in sorted(step.items())]
        values += [part for parts in state.values() for part in parts]
        bits.add(b"".join(value.tobytes() for value in values))
    assert len(bits) == 1
