# SPDX-License-Identifier: Apache-2.0
"""The compiled ops and TensorFlow's own give the same tables, slots and activations."""

import dataclasses

import numpy as np
import pytest

from tests.batches import Setting, many_ids, random_gradients
from tests.kernel_choice import choose_kernels
from tests.runners import RUNNERS
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Oracle, Table

pytestmark = pytest.mark.every_tensorflow

VOCABULARY_SIZE, BATCH_SIZE, STEPS = 40, 24, 3

# Both sum in the same order: without weights, or without a combiner's factors, they agree to the
# last bit. With both, ours multiplies a gradient by their product, TensorFlow's by one after the
# other. What that rounds, 6e-8 of each term, is not relative to a sum near 0 but to its terms:
# hence the part that is relative to the largest value there is. Over 12 seeds, all but one rule
# kept to half of it.
RELATIVE_TO_VALUE, RELATIVE_TO_LARGEST = 1e-6, 1e-6

# At an accumulator of 0, sqrt(a) of the first step is |g| itself, and w = -(g - |g| w / rate) *
# rate / |g| divides by it what is left of a difference: 1.1e-6 in 12 seeds.
RELATIVE_TO_LARGEST_OF_CASE = {"FTRL, accumulator from 0": 3e-6}

KINDS = {"a": "sparse", "b": "ragged", "c": "flat sparse"}


def trained(choice, monkeypatch, case, *, dimension, combiner="mean", setting=None, seed=7,
            **options):
    """Trains on random batches, weights for one feature; returns activations and state."""
    choose_kernels(choice, monkeypatch)
    rng = np.random.default_rng(seed)
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


def assert_same(native, tensorflow, relative_to_largest=RELATIVE_TO_LARGEST):
    for ours, theirs in zip(native[0], tensorflow[0], strict=True):
        assert ours.keys() == theirs.keys()
        for name, values in theirs.items():
            assert_close(ours[name], values, relative_to_largest, name)
    assert native[1].keys() == tensorflow[1].keys()
    for key, parts in tensorflow[1].items():
        for ours, theirs in zip(native[1][key], parts, strict=True):
            assert_close(ours, theirs, relative_to_largest, str(key))


def assert_close(ours, theirs, relative_to_largest, name):
    largest = float(np.abs(theirs).max(initial=0))
    np.testing.assert_allclose(ours, theirs, RELATIVE_TO_VALUE, relative_to_largest * largest,
                               err_msg=name)


@pytest.mark.all_cases
@pytest.mark.parametrize("case", CASES)
def test_every_optimizer(monkeypatch, case):
    """The dimension has columns of every size of block: 64, 32, 16, 8, 4 and single ones."""
    for seed in (1, 2, 3):
        runs = [trained(choice, monkeypatch, case, dimension=127, seed=seed, decay=0.125,
                        gradient_limits=(-0.75, 1.0), weight_limits=(-1.25, 1.5))
                for choice in ("native", "tf")]
        assert_same(*runs, RELATIVE_TO_LARGEST_OF_CASE.get(case, RELATIVE_TO_LARGEST))


@pytest.mark.parametrize("case", ["Adagrad", "Adam, not lazy"])
@pytest.mark.parametrize("dimension", [1, 2, 5, 8, 16, 20, 32, 64, 100, 128, 1024, 1025, 2100])
def test_every_dimension(monkeypatch, dimension, case):
    """The kernels sum the gradients of 1,024 columns at once."""
    assert_same(*[trained(choice, monkeypatch, case, dimension=dimension)
                  for choice in ("native", "tf")])
