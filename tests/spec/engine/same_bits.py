# SPDX-License-Identifier: Apache-2.0
"""A program that trains with every optimizer on 1, 2 and many threads, and prints what came out.

Which instruction set runs is chosen once in a process: it is the caller's to set. Threads are
the session's, as TF_OVERRIDE_GLOBAL_THREADPOOL=1 asks for: without it, the first session of a
process makes the threads of all.
"""

import dataclasses
import functools
import hashlib
import json

import numpy as np
import tensorflow as tf

from tests.batches import Setting, many_ids, random_gradients
from tests.runners import RUNNERS
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Oracle, Table
from tpu_estimator_embedding.kernels import load

VOCABULARY_SIZE, BATCH_SIZE, STEPS = 300, 32, 2
KINDS = {"a": "sparse", "b": "ragged"}
NUM_THREADS = (1, 2, 7)
SESSION = tf.compat.v1.Session


def use_threads(number):
    """Makes the sessions that follow run on so many threads."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=number)
    tf.compat.v1.Session = functools.partial(SESSION, config=config)


def digest(activations, state):
    """Returns the bits of activations, tables and slots in few digits."""
    values = [value for step in activations for _, value in sorted(step.items())]
    values += [part for parts in state.values() for part in parts]
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]


def trained(case):
    """The dimension has columns of every size of block: 64, 32, 16, 8, 4 and single ones."""
    rng = np.random.default_rng(7)
    dimension = 1 if CASES[case].kind == "FrequencyEstimator" else 127
    optimizer = dataclasses.replace(CASES[case], decay=0.125, gradient_limits=(-0.75, 1.0))
    table = Table("t", rng.uniform(-1, 1, [VOCABULARY_SIZE, dimension]).astype(np.float32),
                  "mean", optimizer)
    oracle = Oracle([table], [Feature(name, "t") for name in KINDS])
    runner = Setting(KINDS, weighted=("b",)).runner(RUNNERS["session"], [table],
                                                    list(oracle.features.values()))
    activations = []
    for step in range(STEPS):
        batch = {name: many_ids(rng, BATCH_SIZE, VOCABULARY_SIZE, max_ids=30,
                                weighted=name == "b") for name in KINDS}
        gradients = random_gradients(rng, oracle.activations(batch))
        arrays = Setting(KINDS, weighted=("b",)).arrays(batch)
        activations.append(runner.train(arrays, gradients, BATCH_SIZE, step))
    return digest(activations, runner.read())


def main():
    digests = {}
    for number in NUM_THREADS:
        use_threads(number)
        for case in CASES:
            digests[f"{case} on {number} threads"] = trained(case)
    print(json.dumps({"kernels": load.description(), "digests": digests}))


if __name__ == "__main__":
    main()
