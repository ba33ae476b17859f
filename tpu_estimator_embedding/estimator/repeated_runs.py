# SPDX-License-Identifier: Apache-2.0
"""Runs of a session that hooks repeat, without the Python code of `Session.run`.

A MonitoredSession fetches the same nest of tensors in most of its runs: those of its hooks, and
the step. `Session.run` takes the nest apart every time, which takes longer than a small step.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as client_session

from tpu_estimator_embedding.estimator.hooks.input_end import only_input_ends
from tpu_estimator_embedding.estimator.made_callable import StepCallable


class RepeatedRuns:
    """Replaces `Session.run` for nests of fetches without feeds and options, with its results.

    Everything else goes to `Session.run`.
    """

    def __init__(self, session: tf.compat.v1.Session):
        """Takes a session of this process, whose graph does not change."""
        self._session = session
        self._run = session.run
        self._leaves: dict[int, Any] = {}  # by id; kept, so that no other object gets the id
        self._made: dict[Any, Callable[[], Any]] = {}

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None,
            run_metadata: Any = None) -> Any:
        """Runs and returns what `Session.run` would."""
        has_options = options is not None and options.ByteSize()
        key = None if feed_dict or has_options or self._session._closed else self._key(fetches)
        if key is None:
            return self._run(fetches, feed_dict, options, run_metadata)
        if key not in self._made:
            self._made[key] = self._make(fetches)
        return self._made[key]()

    def _key(self, nest: Any) -> Any:
        """Returns what identifies the nest; None if it has other leaves than fetches."""
        if type(nest) is dict:
            return self._key_of((dict, *nest), nest.values())
        if type(nest) is list or type(nest) is tuple:
            return self._key_of((type(nest),), nest)
        if id(nest) not in self._leaves:
            if not isinstance(nest, tf.Tensor | tf.Operation | tf.Variable):
                return None
            self._leaves[id(nest)] = nest
        return id(nest)

    def _key_of(self, head: tuple[Any, ...], values: Any) -> Any:
        keys = tuple(self._key(value) for value in values)
        return None if None in keys else (head, keys)

    def _make(self, nest: Any) -> Callable[[], Any]:
        session = self._session
        handler = client_session._FetchHandler(session.graph, nest, {})
        if not handler.fetches() and not handler.targets():
            return lambda: handler.build_results(session, [])
        run = only_input_ends(StepCallable(session, handler.fetches(), handler.targets()))
        return lambda: handler.build_results(session, run())
