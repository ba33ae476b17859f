# SPDX-License-Identifier: Apache-2.0
"""Random batches that always hold duplicates, and runs of the engine beside the oracle."""

import dataclasses

import numpy as np

from tests.runners import Runner, assert_same_state, encode, state_of, to_plan
from tests.spec.oracle import Entry, Oracle


def one_id_each(rng, batch_size, vocabulary_size):
    """Samples with exactly one id; every third sample repeats the first one's id."""
    ids = rng.integers(0, vocabulary_size, batch_size)
    ids[::3] = ids[0]
    return [[Entry(int(id))] for id in ids]


def many_ids(rng, batch_size, vocabulary_size, *, max_ids=4, weighted=False, padded=False):
    """Samples of 0 to `max_ids` ids.

    The first sample repeats an id, the second is empty, the third repeats the first one's.

    Args:
        weighted: weights of -1 to 2 in steps of 1/8, so that sums of them are exact.
        padded: replaces about every fifth id by -1 or -7.
    """
    samples = [rng.integers(0, vocabulary_size, rng.integers(0, max_ids + 1)).tolist()
               for _ in range(batch_size)]
    common = int(rng.integers(0, vocabulary_size))
    for sample, ids in zip(range(batch_size), ([common, common], [], [common]), strict=False):
        samples[sample] = ids[:max_ids]
    if padded:
        samples = [[int(rng.choice([-1, -7])) if rng.random() < 0.2 else id for id in ids]
                   for ids in samples]
    return [[Entry(id, weight=float(rng.integers(-8, 17)) / 8 if weighted else 1.0, position=k)
             for k, id in enumerate(ids)] for ids in samples]


def with_holes(rng, samples, last_position):
    """Moves the entries of each sample to positions that leave holes."""
    moved = []
    for entries in samples:
        positions = np.sort(rng.permutation(last_position)[:len(entries)])
        moved.append([entry._replace(position=int(position)) for entry, position in
                      zip(entries, positions, strict=False)])
    return moved


@dataclasses.dataclass(frozen=True)
class Setting:
    """How batches reach the engine, and how it is arranged.

    Attributes:
        kinds: feature name -> kind of enqueued data.
        weighted: names of features that are given weights.
        num_replicas: replicas that each batch is shared out to.
        on_servers: whether rows are exchanged as with tables in other tasks.
        plan_options: further arguments of `EmbeddingPlan.build`.
    """

    kinds: dict
    weighted: tuple = ()
    ids_dtype: type = np.int64
    num_hosts: int = 1
    partition_strategy: str = "div"
    num_replicas: int = 1
    on_servers: bool = False
    plan_options: dict = dataclasses.field(default_factory=dict)

    def runner(self, runner_class, tables, features) -> Runner:
        """Returns an engine that holds the same tables and slots as the oracle."""
        plan = to_plan(tables, features, num_hosts=self.num_hosts,
                       partition_strategy=self.partition_strategy, **self.plan_options)
        runner = runner_class(plan, self.kinds, self.num_replicas, on_servers=self.on_servers)
        runner.write(state_of(tables, self.num_hosts, self.partition_strategy))
        return runner

    def arrays(self, batch):
        """Returns a batch as `Runner.train` takes it."""
        if self.num_replicas == 1:
            return self._encoded(batch)
        share = len(next(iter(batch.values()))) // self.num_replicas
        return [self._encoded({name: samples[replica * share:(replica + 1) * share]
                               for name, samples in batch.items()})
                for replica in range(self.num_replicas)]

    def _encoded(self, batch):
        return {name: encode(samples, self.kinds[name], ids_dtype=self.ids_dtype,
                             weighted=name in self.weighted) for name, samples in batch.items()}


def random_gradients(rng, activations):
    """Returns float32 values of -1 to 1, of the shape of each activation."""
    return {name: rng.uniform(-1, 1, values.shape).astype(np.float32)
            for name, values in activations.items()}


def train_beside_oracle(runner_class, oracle: Oracle, batches, setting: Setting, *, rtol, atol,
                        seed=0):
    """Trains engine and oracle on the same batches; compares everything after each step."""
    rng = np.random.default_rng(seed)
    tables = list(oracle.tables.values())
    runner = setting.runner(runner_class, tables, list(oracle.features.values()))
    for step, batch in enumerate(batches):
        expected = oracle.activations(batch)
        gradients = random_gradients(rng, expected)
        batch_size = len(next(iter(batch.values())))
        activations = runner.train(setting.arrays(batch), gradients, batch_size, step)
        assert activations.keys() == expected.keys()
        for name, values in expected.items():
            assert activations[name].shape == values.shape
            np.testing.assert_allclose(activations[name], values, rtol, atol,
                                       err_msg=f"{name} in step {step}")
        oracle.apply(batch, gradients, step)
        state = state_of(tables, setting.num_hosts, setting.partition_strategy)
        assert_same_state(runner.read(), state, rtol, atol)
    return runner
