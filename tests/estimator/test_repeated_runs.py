# SPDX-License-Identifier: Apache-2.0
"""Repeated runs return what `Session.run` returns, and raise what it raises."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.estimator.hooks import session_runs
from tpu_estimator_embedding.estimator.hooks.input_end import NotTheEndOfInputError
from tpu_estimator_embedding.estimator.hooks.session_runs import (
    RepeatedRuns,
    Threads,
    made_callable,
)


class _Hook:
    """The key of a hook's fetches, as in a MonitoredSession."""


@pytest.fixture(name="counter")
def _counter():
    with tf.Graph().as_default():
        yield tf.compat.v1.get_variable("counter", [], tf.int64, tf.zeros_initializer(),
                                        use_resource=True)


@pytest.fixture(name="session")
def _session(counter):
    with tf.compat.v1.Session() as session:
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
    expected = _described(session.run(nest))
    runs = RepeatedRuns(session)
    for _ in range(3):
        assert _described(runs.run(nest)) == expected


def test_equal_nests_are_taken_apart_once(session, counter, monkeypatch):
    hook, made = _Hook(), []

    def counted(*args, **kwargs):
        made.append(args)
        return made_callable(*args, **kwargs)

    monkeypatch.setattr(session_runs, "made_callable", counted)
    add, runs = counter.assign_add(1, read_value=False), RepeatedRuns(session)
    for _ in range(5):
        runs.run({"caller": [add], hook: add})
    assert session.run(counter) == 5 and len(made) == 1
    runs.run({"caller": [add], _Hook(): add})  # another hook, another nest
    assert session.run(counter) == 6 and len(made) == 2


def test_feeds_and_options_go_to_run(session):
    fed = tf.compat.v1.placeholder_with_default(1, [])
    runs, metadata = RepeatedRuns(session), tf.compat.v1.RunMetadata()
    assert runs.run({"caller": fed}) == {"caller": 1}
    assert runs.run({"caller": fed}, {fed: 7}) == {"caller": 7}
    assert runs.run({"caller": fed}, options=tf.compat.v1.RunOptions(), run_metadata=metadata
                    ) == {"caller": 1}
    assert not metadata.step_stats.dev_stats
    runs.run({"caller": fed}, options=tf.compat.v1.RunOptions(
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE), run_metadata=metadata)
    assert metadata.step_stats.dev_stats


def test_errors_are_those_of_run(session):
    failing = tf.debugging.Assert(False, ["no"])
    queue = tf.queue.FIFOQueue(1, [tf.int32])
    element = queue.dequeue()
    session.run(queue.close())
    runs = RepeatedRuns(session)
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="no"):
            runs.run({"caller": failing})
        with pytest.raises(NotTheEndOfInputError):
            runs.run({"caller": element})
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        runs.run({"caller": failing})


@pytest.mark.parametrize(("limit", "on_calling_thread"), [(1e9, True), (0.0, False)])
def test_short_steps_run_on_the_calling_thread(session, counter, monkeypatch, limit,
                                               on_calling_thread):
    made = []

    def counted(session, fetches, targets, threads):
        made.append(threads is Threads.CALLER)
        return original(session, fetches, targets, threads)

    original = session_runs._made_callable
    monkeypatch.setattr(session_runs, "_made_callable", counted)
    monkeypatch.setattr(session_runs, "_SHORT_SECONDS", limit)
    run = made_callable(session, [], counter.assign_add(1, read_value=False),
                        threads=Threads.MEASURED)
    for _ in range(30):
        run()
    assert made == [False, *[True] * on_calling_thread]
    assert session.run(counter) == 30
