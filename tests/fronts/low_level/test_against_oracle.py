# SPDX-License-Identifier: Apache-2.0
"""Legacy programs, step by step beside the oracle."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.low_level.legacy_program import (
    ADAGRAD,
    ADAM,
    FEATURES,
    RAGGED_KINDS,
    SGD,
    LegacyProgram,
    assert_activations,
    random_batch,
    random_tables,
    train_beside_oracle,
    without_holes,
)
from tests.spec import oracle
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.compat.modules import tpu_embedding

STEPS = 5
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def make(optimizers, batch_size=4, steps=STEPS, **options):
    """Returns a program, the oracle that its tables are of, and batches."""
    rng = np.random.default_rng(3)
    tables = random_tables(rng, optimizers)
    reference = oracle.Oracle(tables, FEATURES, num_cores=options.get("num_cores", 1))
    batches = [random_batch(rng, batch_size) for _ in range(steps)]
    return LegacyProgram(tables, batch_size, **options), reference, batches


def train(optimizers, run_once=True, **options):
    program, reference, batches = make(optimizers, **options)
    if program.kinds is RAGGED_KINDS:
        batches = [without_holes(batch) for batch in batches]
    train_beside_oracle(program, reference, batches, run_once=run_once, **TOLERANCE)


@pytest.mark.parametrize("num_cores", [1, 2])
@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD, ADAM], ids=lambda case: case.kind)
def test_program_trains(optimizer, num_cores):
    train(optimizer, num_cores=num_cores)


@pytest.mark.parametrize("num_cores", [1, 2])
def test_variables_created_first(num_cores):
    train(ADAGRAD, variables_first=True, num_cores=num_cores, steps=2)


def test_ragged_ids():
    train(ADAGRAD, kinds=RAGGED_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_several_hosts(strategy):
    train({"words": ADAGRAD, "shops": ADAM, "users": CASES["Adam, not lazy"]}, steps=3,
          num_cores=2, num_hosts=2, partition_strategy=strategy)


def halving(step):
    return 0.5 / (1 + step)


@pytest.mark.parametrize("num_cores", [1, 2])
def test_learning_rate_follows_the_step_before_it_is_counted(num_cores):
    def rate(step):
        return halving(step if isinstance(step, int) else tf.cast(step, tf.float32))

    train(dataclasses.replace(SGD, learning_rate=rate), num_cores=num_cores)


@pytest.mark.slow
@pytest.mark.parametrize("num_cores", [1, 2])
def test_pipelined_activations_miss_the_update_before(num_cores):
    program, reference, batches = make(ADAGRAD, num_cores=num_cores,
                                       pipeline_execution_with_tensor_core=True)
    pending = None
    for step, batch in enumerate(batches):
        expected = reference.activations(batch)
        activations, gradients = program.train(batch)
        assert_activations(activations, expected, **TOLERANCE)
        if pending:
            reference.apply(*pending)
        program.assert_state_is_the_oracles(**TOLERANCE)
        pending = batch, gradients, step
    with program.graph.as_default():
        retrieve = program.variables.retrieve_ops()
    for _ in range(2):  # the second finds nothing to do
        program.session.run(retrieve)
    reference.apply(*pending)
    program.assert_state_is_the_oracles(**TOLERANCE)


def test_loading_drops_a_delayed_update():
    program, reference, (first, second) = make(
        ADAGRAD, steps=2, pipeline_execution_with_tensor_core=True)
    program.train(first)
    with program.graph.as_default():
        program.session.run(program.variables.load_ops())
    _, gradients = program.train(second)
    with program.graph.as_default():
        program.session.run(program.variables.retrieve_ops())
    reference.apply(second, gradients, 1)
    program.assert_state_is_the_oracles(**TOLERANCE)


def test_several_batches_wait_in_order():
    program, reference, batches = make(SGD, steps=4, num_cores=2)
    for batch in batches:
        program.session.run(program.enqueue, program.feeds(batch))
    for step, batch in enumerate(batches):
        expected = reference.activations(batch)
        activations, gradients = program.session.run(
            [program.activations, program.gradients, program.sends])[:2]
        for core in range(2):
            share = {name: values[2 * core:2 * core + 2] for name, values in expected.items()}
            assert_activations(activations[core], share, **TOLERANCE)
        joined = {name: np.concatenate([core[name] for core in gradients]) for name in expected}
        reference.apply(batch, joined, step)
    program.assert_state_is_the_oracles(**TOLERANCE)


def test_inference_looks_up():
    program, reference, batches = make(SGD, steps=2, num_cores=2, mode=tpu_embedding.INFERENCE)
    for batch in batches:
        assert_activations(program.lookup(batch), reference.activations(batch), **TOLERANCE)
    program.assert_state_is_the_oracles(rtol=1e-7, atol=0)
