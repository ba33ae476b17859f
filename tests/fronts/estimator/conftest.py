# SPDX-License-Identifier: Apache-2.0
"""What every test of the estimator is held to: it leaves no thread behind.

Nor may a thread end in an exception that no test sees.
"""

import logging
import threading

import pytest
import tensorflow as tf

import tpu_estimator_embedding.compat.upstream  # noqa: F401  (makes tensorflow_estimator importable)

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)


@pytest.fixture(autouse=True)
def no_thread_is_left_or_fails(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate()
            if thread not in before and not belongs_to_tensorflow(thread)]
    assert not left
    assert not failures


@pytest.fixture
def logged(caplog):
    """Returns a function that returns the lines with a text that TensorFlow's logger has had."""
    caplog.set_level(logging.INFO, logger="tensorflow")
    return lambda text="": [line for line in caplog.messages if text in line]


def belongs_to_tensorflow(thread):
    """Whether TensorFlow keeps a thread: one for each event file, and its pools."""
    return (type(thread).__name__ == "_EventLoggerThread"
            or isinstance(thread, threading._DummyThread))
