# SPDX-License-Identifier: Apache-2.0
"""Repeated runs return what `Session.run` returns, and raise what it raises."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.estimator.step_session import StepSession


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
