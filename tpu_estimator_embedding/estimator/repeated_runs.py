# SPDX-License-Identifier: Apache-2.0
"""Runs of a session that hooks repeat, without the Python code of `Session.run`.

A MonitoredSession fetches the same nest of tensors in most of its runs: those of its hooks, and
the step. `Session.run` takes the nest apart every time, which takes longer than a small step.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as client_session

from tpu_estimator_embedding.estimator.hooks.input_end import only_input_ends
from tpu_estimator_embedding.estimator.made_callable import StepCallable


class RepeatedRuns:
    """Replaces `Session.run` for nests of fetches without feeds and options, with its results.

    Everything else goes to `Session.run`.

    Attributes:
        number: how many runs `run` made; NaN once a callable was made, whose runs are not counted.
    """

    @classmethod
    def of(cls, session: tf.compat.v1.Session) -> "RepeatedRuns":
        """Returns those of a session, whose `run` they replace."""
        runs = getattr(session.run, "__self__", None)
        if not isinstance(runs, cls):
            runs = cls(session)
            session.run, session.make_callable = runs.run, runs._make_callable
        return runs

    def __init__(self, session: tf.compat.v1.Session):
        """Takes a session whose graph does not change."""
        self._session = session
        self._run = session.run
        self._make_any_callable = session.make_callable
        self._is_here = not session.sess_str
        self._leaves: dict[int, Any] = {}  # by id; kept, so that no other object gets the id
        self._made: dict[Any, Callable[[], Any]] = {}
        self.number = 0.0

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None,
            run_metadata: Any = None) -> Any:
        """Runs and returns what `Session.run` would."""
        self.number += 1
        has_options = options is not None and options.ByteSize()
        is_plain = self._is_here and not (feed_dict or has_options or self._session._closed)
        key = self._key(fetches) if is_plain else None
        if key is None:
            return self._run(fetches, feed_dict, options, run_metadata)
        if key not in self._made:
            self._made[key] = self._make(fetches)
        return self._made[key]()

    def _make_callable(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        self.number = math.nan
        return self._make_any_callable(*args, **kwargs)

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
        positions = handler.build_results(session, list(range(len(handler.fetches()))))
        build = _builder(positions)
        return lambda: build(run())


def _builder(positions: Any) -> Callable[[list[Any]], Any]:
    """Returns a function that puts values into a nest, given the nest of their positions.

    >>> _builder({"loss": 1, "others": [0, None]})(["a", "b"])
    {'loss': 'b', 'others': ['a', None]}
    """
    if isinstance(positions, dict):
        items = [(key, _builder(value)) for key, value in positions.items()]
        return lambda values: {key: build(values) for key, build in items}
    if isinstance(positions, list | tuple):
        kind, parts = type(positions), [_builder(value) for value in positions]
        return lambda values: kind([build(values) for build in parts])
    if positions is None:  # of an operation
        return lambda values: None
    return operator.itemgetter(positions)
