# SPDX-License-Identifier: Apache-2.0
"""Repeated runs return what `Session.run` returns, and raise what it raises."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tpu_estimator_embedding.estimator import step_session
from tpu_estimator_embedding.estimator.step_session import StepSession, Threads, made_callable


class _Hook:
    """The key of a hook's fetches, as in a MonitoredSession."""


@pytest.fixture(name="counter")
def _counter():
    with tf.Graph().as_default():
        yield tf.compat.v1.get_variable("counter", [], tf.int64, tf.zeros_initializer(),
                                        use_resource=True)


@pytest.fixture(name="session")
def _session(counter):
    with StepSession() as session:
        session.run(counter.initializer)
        yield session


def _nests(counter):
    vector = tf.constant([1.0, 2.0])
    sparse = tf.SparseTensor([[0, 1]], [3], [1, 2])
    return [
        {"caller": [counter.assign_add(0, read_value=False), vector], _Hook(): counter},
        {"caller": (vector, [vector, counter])},
        {"caller": [], "hook": []},
        {"caller": {"name": tf.constant("text"), "number": tf.constant(2.5)}},
        {"caller": vector.op},
        {"caller": sparse},
        {"caller": "Const:0"},
        [vector, counter],
    ]


def _described(values):
    """Returns values with their types, to compare."""
    if isinstance(values, dict):
        return {key: _described(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values), [_described(value) for value in values]
    return type(values), np.asarray(values).dtype, np.asarray(values).tolist()


@pytest.mark.parametrize("number", range(8))
def test_results_are_those_of_run(session, counter, number):
    nest = _nests(counter)[number]
    with tf.compat.v1.Session() as plain:
        plain.run(counter.initializer)
        expected = _described(plain.run(nest))
    for _ in range(3):
        assert _described(session.run(nest)) == expected


def test_feeds_and_options_go_to_run(session):
    fed = tf.compat.v1.placeholder_with_default(1, [])
    metadata = tf.compat.v1.RunMetadata()
    assert session.run({"caller": fed}) == {"caller": 1}
    assert session.run({"caller": fed}, {fed: 7}) == {"caller": 7}
    assert session.run({"caller": fed}, options=tf.compat.v1.RunOptions(), run_metadata=metadata
                    ) == {"caller": 1}
    assert not metadata.step_stats.dev_stats
    session.run({"caller": fed}, options=tf.compat.v1.RunOptions(
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE), run_metadata=metadata)
    assert metadata.step_stats.dev_stats


def test_errors_are_those_of_run(session):
    failing = tf.debugging.Assert(False, ["no"])
    queue = tf.queue.FIFOQueue(1, [tf.int32])
    element = queue.dequeue()
    session.run(queue.close())
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="no"):
            session.run({"caller": failing})
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run({"caller": element})
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run({"caller": failing})


def test_runs_that_fetch_the_same_share_a_callable(session, counter, monkeypatch):
    made = _record_callables(monkeypatch)
    one, two, op = tf.constant(1), tf.constant(2), counter.assign_add(1, read_value=False)
    assert session.run({"caller": [op, two], "hook": one}) == {"caller": [None, 2], "hook": 1}
    assert session.measured([one, two], [op, one])() == [1, 2]
    assert session.measured([two, one], op)() == [2, 1]
    assert session.run(counter) == 3
    assert len(made) == 2  # the other one reads the counter


def test_another_callable_is_made_when_calls_took_as_long(session, monkeypatch):
    seconds = iter(range(1000))  # each look at the clock is one second later
    monkeypatch.setattr(step_session.time, "perf_counter", lambda: next(seconds) * 1e-4)
    made = _record_callables(monkeypatch)
    making = session._make_callable_from_options

    def make_slowly(options):
        [next(seconds) for _ in range(20)]
        return making(options)

    monkeypatch.setattr(session, "_make_callable_from_options", make_slowly)
    run = made_callable(session, [tf.constant(3)], threads=Threads.MEASURED)
    for _ in range(20):
        assert run() == [3]
    assert len(made) == 1
    for _ in range(5):
        assert run() == [3]
    assert len(made) == 2


def _record_callables(monkeypatch):
    """Returns the list of names that each new callable fetches."""
    made, make = [], tf.compat.v1.Session._make_callable_from_options

    def record(session, options):
        made.append(sorted([*options.fetch, *options.target]))
        return make(session, options)

    monkeypatch.setattr(tf.compat.v1.Session, "_make_callable_from_options", record)
    return made


@pytest.mark.parametrize("steps", [2, None])
def test_a_call_makes_no_callable_twice(steps, tmp_path, monkeypatch):
    estimator = counting.new_estimator(tmp_path)
    estimator.train(counting.input_of([1, 2]), steps=1)
    made = _record_callables(monkeypatch)
    estimator.evaluate(counting.input_of([1, 2, 3, 4]), steps=steps)
    assert sum(any("group_deps" in name for name in names) and len(names) > 2
               for names in made) == 1, "all steps run by one callable"
    if steps is None:  # the queue closed as the input ended
        assert not [names for names in made if names == ["steps_Close_1"]]


def test_a_session_waits_for_variables_by_ops_that_they_have(tmp_path):
    class Hook(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            names = [op.name for op in session.graph.get_operations()]
            assert not [name for name in names if "report_uninitialized_variables" in name]

    estimator = counting.new_estimator(tmp_path)
    estimator.train(counting.input_of([1, 2]), steps=1)
    estimator.evaluate(counting.input_of([1, 2]), hooks=[Hook()])
    list(estimator.predict(counting.input_of([1, 2]), hooks=[Hook()]))
