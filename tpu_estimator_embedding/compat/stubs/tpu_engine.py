# SPDX-License-Identifier: Apache-2.0
"""Ops that use the tables of the TPU, which here are those of this package's engine.

A TPU has one configuration of tables at a time. Here it is the last one that a `TPUEmbedding` made,
or that went to `tpu.initialize_system` or `configure_tpu_embedding`.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.low_level import tpu_embedding

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def on_the_engine(
        function: Callable[Concatenate[tpu_embedding.TPUEmbedding, Arguments], Result],
) -> Callable[Arguments, Result]:
    """Calls TensorFlow's function if there is a TPU, otherwise `function` with the engine."""
    name = function.__name__
    on_a_tpu = getattr(tpu_ops, name, None)  # None: TensorFlow has removed it

    @functools.wraps(on_a_tpu or function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        has_a_tpu = tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None
        if has_a_tpu and on_a_tpu is not None:
            return on_a_tpu(*arguments, **named)
        engine = tpu_embedding.configured()
        if engine is None:
            raise RuntimeError(
                f"`tpu_ops.{name}` must be called after a TPUEmbedding was created, got none. "
                "Create one for the tables and features, or pass an embedding_config to "
                "tpu.initialize_system.")
        with tf.name_scope(named.get("name") or name):
            return function(engine, *arguments, **named)

    return call
