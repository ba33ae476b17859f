# SPDX-License-Identifier: Apache-2.0
"""A session's callable, made once, for running the same part of a graph often.

It skips the overhead of every `Session.run` call, which exceeds the time of a small step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpu_estimator_embedding.types import Tensor


def made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Any = ()
                  ) -> Callable[[], list[Any]]:
    """Returns a function that runs `targets` and returns `fetches`; errors are those of `run`.

    Args:
        session: the session.
        fetches: tensors of its graph.
        targets: a nest of operations, and of tensors whose values nobody needs.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     print(*made_callable(session, [tf.constant(3) + tf.constant(4)])())
    7
    """
    if session.sess_str:  # a session on a server: calls between tasks cost more than this saves
        return lambda: session.run((list(fetches), targets))[0]
    elements = [session.graph.as_graph_element(target) for target in tf.nest.flatten(targets)]
    run = session._make_callable_from_options(config_pb2.CallableOptions(
        target=sorted({getattr(element, "op", element).name for element in elements}),
        fetch=[fetch.name for fetch in fetches]))
    return lambda: session._do_call(run)
