# SPDX-License-Identifier: Apache-2.0
"""Steps that exchange sums or rows with hosts give the bits of steps whose tables are at hand."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.batches import Setting, many_ids, one_id_each, random_gradients
from tests.runners import RUNNERS, to_plan
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Oracle, Table
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.measures import create_marks
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.plan.partition_strategy import part_sizes

pytestmark = pytest.mark.usefixtures("native_kernels")

BATCH_SIZE, STEPS = 12, 2
SIZES = {"t": 13, "u": 5, "v": 1}
KINDS = {"a": "ragged", "b": "sparse", "c": "sparse", "d": "dense", "e": "dense"}
HOSTS = [(2, "mod"), (3, "div")]
VOCABULARY, DIMENSION = 40, 3  # of a separate table


def new_oracle(optimizer, num_cores=1):
    rng = np.random.default_rng(1)
    dimension = 1 if optimizer.kind == "FrequencyEstimator" else 19
    tables = [Table(name, rng.uniform(-1, 1, [size, dimension]).astype(np.float32), combiner,
                    optimizer) for (name, size), combiner in zip(
                        SIZES.items(), ("mean", "sqrtn", "sum"), strict=True)]
    features = [Feature("a", "t"), Feature("b", "t", 2), Feature("c", "u"), Feature("d", "u"),
                Feature("e", "v")]
    return Oracle(tables, features, num_cores=num_cores)


def new_batch(rng):
    return {"a": many_ids(rng, BATCH_SIZE, SIZES["t"], weighted=True),
            "b": many_ids(rng, BATCH_SIZE, SIZES["t"], padded=True),
            "c": many_ids(rng, BATCH_SIZE, SIZES["u"], max_ids=1),
            "d": one_id_each(rng, BATCH_SIZE, SIZES["u"]),
            "e": one_id_each(rng, BATCH_SIZE, 1)}


def trained(runner_class, optimizer, setting):
    """Returns the activations of every step, and tables and slots at the end."""
    oracle, rng = new_oracle(optimizer, setting.num_replicas), np.random.default_rng(3)
    runner = setting.runner(runner_class, list(oracle.tables.values()),
                            list(oracle.features.values()))
    activations = []
    for step in range(STEPS):
        batch = new_batch(rng)
        gradients = random_gradients(rng, oracle.activations(batch))
        activations.append(runner.train(setting.arrays(batch), gradients, BATCH_SIZE, step))
    return activations, {str(key): parts for key, parts in runner.read().items()}


def check_same_bits(runner, optimizer, setting):
    here, there = (trained(RUNNERS[runner], optimizer,
                           dataclasses.replace(setting, on_servers=on)) for on in (False, True))
    tf.nest.map_structure(np.testing.assert_array_equal, here, there)


@pytest.mark.parametrize("num_hosts, strategy", HOSTS)
@pytest.mark.parametrize("case", ["SGD", "Adagrad", "Adam, not lazy", "FTRL"])
def test_bits_are_those_of_one_process(case, num_hosts, strategy):
    check_same_bits("session", CASES[case], Setting(
        KINDS, ("a",), num_hosts=num_hosts, partition_strategy=strategy))


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["function", "eager"])
def test_bits_are_the_same_in_functions_and_eagerly(runner):
    check_same_bits(runner, CASES["Adagrad"], Setting(KINDS, ("a",), num_hosts=2))


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("num_hosts, strategy", HOSTS)
def test_replicas_update_as_in_one_process(accumulate, num_hosts, strategy):
    optimizer = dataclasses.replace(CASES["Adagrad"], accumulate=accumulate)
    check_same_bits("session", optimizer, Setting(
        KINDS, ("a",), num_hosts=num_hosts, partition_strategy=strategy, num_replicas=3))


def test_without_weights_none_are_sent():
    check_same_bits("session", CASES["Momentum"], Setting(KINDS, num_hosts=2))


def test_batches_without_ids_update_nothing():
    oracle = new_oracle(CASES["Adagrad"])
    setting = Setting({"a": "ragged"}, num_hosts=2, on_servers=True)
    runner = setting.runner(RUNNERS["session"], [oracle.tables["t"]], [oracle.features["a"]])
    before = runner.read()
    activations = runner.train(setting.arrays({"a": [[]] * 4}), {"a": np.ones([4, 19])}, 4, 0)
    np.testing.assert_array_equal(activations["a"], np.zeros([4, 19]))
    after = runner.read()
    assert all(np.array_equal(part, old) for key, parts in after.items()
               for part, old in zip(parts, before[key], strict=True))


def test_measures_are_those_of_one_process():
    def measured(on_servers):
        setting = Setting(KINDS, ("a",), num_hosts=2, on_servers=on_servers)
        oracle, rng = new_oracle(CASES["Adagrad"]), np.random.default_rng(3)
        runner = setting.runner(RUNNERS["eager"], list(oracle.tables.values()),
                                list(oracle.features.values()))
        batch = new_batch(rng)
        inputs = {f"{part} {name} 0": tf.constant(array)
                  for name, triple in setting.arrays(batch).items()
                  for part, array in zip(("ids", "places", "weights"), triple, strict=True)
                  if array is not None}
        ids = prepare_replicas(runner.plan, [(runner._datas(inputs, 0), BATCH_SIZE)],
                               training=True, on_servers=on_servers)
        activations = runner.engine.lookup(ids)
        gradients = runner.engine.step_gradients(activations, tf.constant(0))
        measures = runner.engine.measured_update(
            ids, gradients, create_marks(runner.engine.variables), tf.constant(True))
        return tf.nest.map_structure(lambda value: value.numpy(), measures)

    tf.nest.map_structure(np.testing.assert_array_equal, measured(False), measured(True))


@pytest.mark.parametrize("accumulate, sums_only", [(True, True), (True, False), (False, False)])
def test_merged_steps_of_tasks_update_as_replicas(accumulate, sums_only):
    setting = Setting(KINDS, ("a",), num_hosts=2, partition_strategy="mod", num_replicas=2,
                      on_servers=True)
    optimizer = dataclasses.replace(CASES["Adagrad"], accumulate=accumulate)
    (_, expected), oracle = trained(RUNNERS["eager"], optimizer, setting), new_oracle(optimizer, 2)
    rng = np.random.default_rng(3)
    runner = setting.runner(RUNNERS["eager"], list(oracle.tables.values()),
                            list(oracle.features.values()))
    engine, plan, share = runner.engine, runner.plan, BATCH_SIZE // 2
    for step in range(STEPS):
        batch = new_batch(rng)
        gradients = random_gradients(rng, oracle.activations(batch))
        tasks = []
        for task, arrays in enumerate(setting.arrays(batch)):
            inputs = {f"{part} {name} 0": tf.constant(array) for name, triple in arrays.items()
                      for part, array in zip(("ids", "places", "weights"), triple, strict=True)
                      if array is not None}
            stacked = {table.name: tf.concat([
                tf.reshape(gradients[feature.name][task * share:(task + 1) * share],
                           [-1, table.dimension])
                for feature in plan.features_of(table.name)], 0) for table in plan.tables}
            datas = {name: (RaggedEnqueueData if kind == "ragged" else EnqueueData)(
                *(inputs.get(f"{part} {name} 0") for part in ("ids", "places", "weights")))
                for name, kind in KINDS.items()}
            ids = prepare_replicas(plan, [(datas, share)], training=True, on_servers=True,
                                   sums_only=sums_only)
            tasks.append((ids, engine.step_gradients(stacked, tf.constant(step))))
        exchange = tasks[0][0]
        for host in range(2):
            exchange.update_host(plan, engine.variables, host, exchange.merged(plan, host, [
                ids.host_step(plan, of_task, host) for ids, of_task in tasks]))
    # Tasks that exchange rows first add up their own gradients of a row.
    rtol, atol = (1e-6, 1e-7) if accumulate and not sums_only else (0, 0)
    for key, parts in runner.read().items():
        tf.nest.map_structure(lambda part, wanted: np.testing.assert_allclose(
            part, wanted, rtol, atol), parts, expected[str(key)])


def exchanged(samples, *, weighted=False, accumulate=True, num_hosts=2, strategy="mod"):
    """Returns the ids of one feature as they are sent to hosts, and the plan."""
    optimizer = dataclasses.replace(CASES["Adagrad"], accumulate=accumulate)
    setting = Setting({"a": "ragged"}, ("a",) if weighted else (), num_hosts=num_hosts,
                      partition_strategy=strategy)
    plan = to_plan([Table("t", np.zeros([VOCABULARY, DIMENSION], np.float32), "sum", optimizer)],
                   [Feature("a", "t")], num_hosts=num_hosts, partition_strategy=strategy)
    arrays = setting.arrays({"a": [[Entry(id) for id in sample] for sample in samples]})["a"]
    data = RaggedEnqueueData(*(None if array is None else tf.constant(array) for array in arrays))
    return plan, prepare_replicas(plan, [({"a": data}, len(samples))], training=True,
                                  on_servers=True)


def num_values(sent):
    """Returns the number of ids, and of sums or rows, that a host is sent, of one table."""
    sizes = sent.sizes.numpy()[0]
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (sizes[1], sizes[2])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=6), min_size=1, max_size=12),
       st.booleans(), st.sampled_from([(1, "div"), (2, "mod"), (3, "div")]))
def test_a_host_is_sent_the_form_with_fewer_bytes(samples, weighted, hosts):
    num_hosts, strategy = hosts
    _, ids = exchanged(samples, weighted=weighted, num_hosts=num_hosts, strategy=strategy)
    sizes = part_sizes(VOCABULARY, num_hosts)
    for host, sent in enumerate(ids.sent):
        on_host = [[id for id in sample if (
            id % num_hosts if strategy == "mod" else
            np.searchsorted(np.cumsum(sizes), id, side="right")) == host] for sample in samples]
        num_ids, num_sums = sum(map(len, on_host)), sum(map(bool, on_host))
        num_rows = len(set().union(*on_host))
        of_id, of_value = 4 + 4 * weighted, 4 + 2 * 4 * DIMENSION
        rows_are_smaller = (num_rows * (of_id + of_value)
                            < num_ids * of_id + num_sums * of_value)
        assert num_values(sent) == ((num_rows, num_rows) if rows_are_smaller
                                    else (num_ids, num_sums))


def test_multi_hot_tables_are_exchanged_as_rows_where_there_are_many_hosts():
    samples = [[3 * sample + k for k in (0, 5, 11)] for sample in range(8)]  # 24 ids, 16 repeated
    distinct = len({id for sample in samples for id in sample})
    values = {num_hosts: sum(num_values(sent)[1] for sent in
                             exchanged(samples, num_hosts=num_hosts)[1].sent)
              for num_hosts in (1, 12)}
    assert values == {1: 8, 12: distinct}
    assert distinct < 24


def test_tables_that_are_updated_core_by_core_are_exchanged_as_sums():
    samples = [[5], [5], [5]]
    assert [num_values(sent) for sent in exchanged(samples, num_hosts=1)[1].sent] == [(1, 1)]
    assert [num_values(sent) for sent in exchanged(
        samples, num_hosts=1, accumulate=False)[1].sent] == [(3, 3)]
