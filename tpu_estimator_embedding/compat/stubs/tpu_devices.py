# SPDX-License-Identifier: Apache-2.0
"""Ops that a program places on the hosts of a TPU run on this machine, which stands in for them.

A program names the hosts, such as "/job:worker/task:1/device:CPU:0", but a local session has the
devices of "/job:localhost/replica:0/task:0" only. An op keeps its device until a local session
takes it over, because its host says which core it feeds; a function keeps those of its ops until
its body is complete. Sessions with a cluster, and functions of eager programs, keep all devices.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import settings, tf_config
from tpu_estimator_embedding.compat.stubs import tpu_system

# Graph -> number of its ops that were placed here.
_placed: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
_placing = threading.Lock()

# Graph -> its version, and whether this machine stood in, when a local session had all of its ops:
# nothing is left to do for the next run.
_extended: weakref.WeakKeyDictionary[tf.Graph, tuple[int, bool]] = weakref.WeakKeyDictionary()


def extending(original: Callable[[tf.compat.v1.Session], None],
              ) -> Callable[[tf.compat.v1.Session], None]:
    """Returns an `_extend_graph` that calls another one, with a TPU's hosts as this machine."""
    @functools.wraps(original)
    def extend_graph(self: tf.compat.v1.Session) -> None:
        graph = self._graph
        state = (graph.version, tpu_system.is_logged())
        if _extended.get(graph) == state or not _is_local(self):
            original(self)
            return
        with graph._session_run_lock():  # no other thread adds ops until the session has them
            if _stands_in():
                _place_new(graph)
            original(self)
        _extended[graph] = state

    return extend_graph


def making_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `from_func_graph` whose functions, if sessions run them, are on this machine."""
    @functools.wraps(original)
    def from_func_graph(name: str | bytes, graph: tf.Graph, *arguments: Any,
                        **named: Any) -> Any:
        _place_body(graph)
        return original(name, graph, *arguments, **named)

    return from_func_graph


def making_defun(original: Callable[..., tf.Graph]) -> Callable[..., tf.Graph]:
    """Returns a `func_graph_from_py_func` whose Defuns, in sessions, are on this machine."""
    @functools.wraps(original)
    def func_graph_from_py_func(*arguments: Any, **named: Any) -> tf.Graph:
        graph = original(*arguments, **named)
        _place_body(graph)
        return graph

    return func_graph_from_py_func


def place_here(operations: Iterable[tf.Operation]) -> None:
    """Removes job, replica and task from devices that this process does not have."""
    for operation in operations:
        device = operation.device
        if "/task:" in device or "/job:" in device or "TPU" in device:
            operation._set_device(here(device))


@functools.cache
def here(device: str) -> str:
    """Returns the device of this machine that stands in for the one of a TPU system.

    >>> here("/job:worker/replica:0/task:3/device:CPU:0"), here("/job:worker/task:0")
    ('/device:CPU:0', '')
    >>> here("/job:localhost/task:0/device:CPU:1"), here("/task:1/device:TPU:2")
    ('/job:localhost/task:0/device:CPU:1', '')
    """
    place = tf.DeviceSpec.from_string(device)
    is_ours = place.job in (None, "localhost") and not place.replica and not place.task
    is_tpu = (place.device_type or "").startswith("TPU")
    if is_ours and not is_tpu:
        return device
    return tf.DeviceSpec(device_type=None if is_tpu else place.device_type,
                         device_index=None if is_tpu else place.device_index).to_string()


def _place_body(graph: tf.Graph) -> None:
    if not _stands_in():
        return
    with tf.init_scope():
        is_run_by_sessions = not tf.executing_eagerly()
    if is_run_by_sessions:
        place_here(graph.get_operations())


def _place_new(graph: tf.Graph) -> None:
    with _placing:
        operations = graph.get_operations()
        place_here(operations[_placed.get(graph, 0):])
        _placed[graph] = len(operations)


def _stands_in() -> bool:
    """Whether this machine stands in for a TPU, and no cluster has the devices of the program."""
    is_asked_for = tpu_system.is_logged() or settings.num_cores() is not None
    return is_asked_for and not tf_config.names_cluster() and not tpu_system.is_present()


def _is_local(of: tf.compat.v1.Session) -> bool:
    is_here = tf.compat.as_str(of._target or "") in tpu_system.LOCAL
    return is_here and not of._config.cluster_def.job
