# SPDX-License-Identifier: Apache-2.0
"""A program that trains on more ids than one thread sorts, unevenly spread, beside NumPy.

Weights are eighths, gradients too, and rows have 16 ids or no combiner's factor: float32 holds
every sum, in any order, without rounding. What differs from NumPy is a mistake.
"""

import dataclasses
import json

import numpy as np

from tests.batches import Setting
from tests.runners import RUNNERS, assert_same_state
from tests.spec.engine.same_bits import NUM_THREADS, digest, use_threads
from tests.spec.oracle import Feature, Optimizer, Table, cut

VOCABULARY_SIZE, DIMENSION = 40_000, 2
BATCH_SIZE, IDS_PER_ROW = 12_288, 16  # 196,608 ids, which are sorted in 2 to 6 shares
RATE, INITIAL_ACCUMULATOR = 0.5, 0.25
KINDS = {"a": "ragged", "b": "dense"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to spread ids out, and to update with them.

    Attributes:
        spread: "half" (of all places have one id) or "sorted" (the most frequent ids first).
        is_padded: whether some ids are negative.
    """

    spread: str
    combiner: str = "sum"
    is_weighted: bool = False
    is_padded: bool = False
    num_replicas: int = 1
    num_hosts: int = 1


CASES = [
    Case("half", "mean"),
    Case("sorted", is_weighted=True),
    Case("sorted", is_padded=True),
    Case("half", is_weighted=True, num_replicas=4),
    Case("sorted", is_weighted=True, is_padded=True, num_replicas=3, num_hosts=2),
]


def spread_ids(rng, case, count):
    if case.spread == "half":
        ids = rng.integers(0, VOCABULARY_SIZE, count)
        ids[rng.random(count) < 0.5] = VOCABULARY_SIZE - 3
    else:
        ids = np.minimum(rng.zipf(1.2, count) - 1, VOCABULARY_SIZE - 1)
    if case.is_padded:
        ids[rng.random(count) < 0.1] = -1
    return ids


def new_inputs(rng, case):
    """Returns for each replica feature name -> (ids, row splits, weights)."""
    share = BATCH_SIZE // case.num_replicas
    splits = np.arange(0, (share + 1) * IDS_PER_ROW, IDS_PER_ROW)
    replicas = []
    for _ in range(case.num_replicas):
        weights = rng.integers(1, 9, share * IDS_PER_ROW) / 8 if case.is_weighted else None
        replicas.append({
            "a": (spread_ids(rng, case, share * IDS_PER_ROW), splits,
                  None if weights is None else weights.astype(np.float32)),
            "b": (spread_ids(rng, case, share), None, None)})
    return replicas


def gradient_sums(case, replicas, gradients, replica):
    """Returns `[vocabulary, dim]` sums of one replica, and `[vocabulary]` whether there are any."""
    share = BATCH_SIZE // case.num_replicas
    sums = np.zeros([VOCABULARY_SIZE, DIMENSION])
    is_touched = np.zeros(VOCABULARY_SIZE, bool)
    for name, ids_per_row in (("a", IDS_PER_ROW), ("b", 1)):
        ids, _, weights = replicas[replica][name]
        upstream = gradients[name][replica * share:(replica + 1) * share].astype(np.float64)
        terms = np.repeat(upstream, ids_per_row, axis=0)
        terms *= 1 if weights is None else weights[:, np.newaxis]
        terms /= ids_per_row if case.combiner == "mean" else 1
        np.add.at(sums, ids[ids >= 0], terms[ids >= 0])
        is_touched[ids[ids >= 0]] = True
    return sums, is_touched


def expected_state(case, values, replicas, gradients):
    """Adagrad in float64, replica after replica around the ring from each row's home."""
    accumulators = np.full_like(values, INITIAL_ACCUMULATOR)
    sums = [gradient_sums(case, replicas, gradients, k) for k in range(case.num_replicas)]
    home = np.arange(VOCABULARY_SIZE) % case.num_replicas
    for distance in range(case.num_replicas):
        for replica, (gradient, is_touched) in enumerate(sums):
            rows = is_touched & ((home + distance) % case.num_replicas == replica)
            accumulators[rows] += gradient[rows] ** 2
            values[rows] -= RATE * gradient[rows] / np.sqrt(accumulators[rows])
    return {None: values, "accumulators": accumulators}


def expected_activations(case, values, ids, weights):
    """Returns the activations of feature "a" in one replica, in float64."""
    terms = values[ids] * (ids >= 0)[:, np.newaxis]
    terms *= 1 if weights is None else weights[:, np.newaxis]
    sums = terms.reshape([-1, IDS_PER_ROW, DIMENSION]).sum(1)
    return sums / IDS_PER_ROW if case.combiner == "mean" else sums


def check(case):
    """Trains one step beside NumPy; returns the digest of what came out."""
    rng = np.random.default_rng(CASES.index(case))
    values = rng.uniform(-1, 1, [VOCABULARY_SIZE, DIMENSION]).astype(np.float32)
    optimizer = Optimizer("Adagrad", RATE, {"initial_accumulator": INITIAL_ACCUMULATOR},
                          accumulate=case.num_replicas == 1)
    setting = Setting(KINDS, num_hosts=case.num_hosts, num_replicas=case.num_replicas)
    runner = setting.runner(RUNNERS["session"], [Table("t", values, case.combiner, optimizer)],
                            [Feature("a", "t"), Feature("b", "t")])
    replicas = new_inputs(rng, case)
    gradients = {name: (rng.integers(-4, 5, [BATCH_SIZE, DIMENSION]) / 8).astype(np.float32)
                 for name in KINDS}
    arrays = replicas[0] if case.num_replicas == 1 else replicas
    activations = runner.train(arrays, gradients, BATCH_SIZE, 0)
    wanted = [expected_activations(case, values.astype(np.float64), replica["a"][0],
                                   replica["a"][2]) for replica in replicas]
    np.testing.assert_allclose(activations["a"], np.concatenate(wanted), rtol=1e-6, atol=5e-6)
    expected = expected_state(case, values.astype(np.float64), replicas, gradients)
    state = runner.read()
    assert_same_state(state, {("t", slot): cut(whole, case.num_hosts, "div")
                              for slot, whole in expected.items()}, rtol=1e-6, atol=3e-7)
    return digest([activations], state)


def main():
    checked = []
    for case in CASES:
        digests = set()
        for number in NUM_THREADS:
            use_threads(number)
            digests.add(check(case))
            checked.append(f"{case} on {number} threads")
        assert len(digests) == 1, case
    print(json.dumps({"checked": checked}))


if __name__ == "__main__":
    main()
