# SPDX-License-Identifier: Apache-2.0
"""The restored `session_support` module: idle without TPU workers, loud with them."""

import collections
from unittest import mock

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules import session_support


def test_shutdown_hook_is_idle_without_tpu_workers():
    hook = session_support.GracefulShutdownHook("prefix", on_shutdown_hooks=[print])
    with tf.Graph().as_default():
        counter = tf.compat.v1.train.get_or_create_global_step()
        step = tf.compat.v1.assign_add(counter, 1)
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(step) == 1


def test_shutdown_hook_refuses_tpu_workers():
    Device = collections.namedtuple("Device", "name device_type")
    session = mock.Mock()
    session.list_devices.return_value = [Device("/job:worker/device:TPU:0", "TPU"),
                                         Device("/device:CPU:0", "CPU")]
    hook = session_support.GracefulShutdownHook("prefix")
    with pytest.raises(RuntimeError, match=r"cannot watch .*'/job:worker/device:TPU:0'\]"):
        hook.after_create_session(session, None)


def test_watchdog_names_the_fix():
    with pytest.raises(RuntimeError, match="start_worker_watchdog needs .* TensorFlow 2.15"):
        session_support.start_worker_watchdog(None)
    session_support.stop_worker_watchdog()


def test_shutdown_functions_ask_for_a_restart():
    everyone, lame = mock.Mock(), mock.Mock()
    session_support.ShutdownLameWorkers()(None, everyone, lame)
    lame.shutdown.assert_called_once_with(exit_code=42)
    everyone.shutdown.assert_not_called()
    session_support.ShutdownAllWorkers()(None, everyone, lame)
    everyone.shutdown.assert_called_once_with(exit_code=42)


def test_reset_raises_what_makes_a_monitored_session_recover():
    workers = mock.Mock()
    with pytest.raises(tf.errors.AbortedError, match="a new session is needed"):
        session_support.ResetComputation()(None, workers, None)
    workers.shutdown.assert_called_once_with(exit_code=42)
