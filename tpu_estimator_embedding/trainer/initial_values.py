# SPDX-License-Identifier: Apache-2.0
"""Initial values as an Estimator draws them, where initializers share a seed.

In a graph every op starts from its seed, so that initializers with equal seeds draw equal numbers.
In eager execution an op goes on where the one before it with equal seeds has stopped.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tpu_estimator_embedding.plan.embedding_plan import initializer_object
from tpu_estimator_embedding.types import Tensor


def create_variable(create: Callable[..., tf.Variable], **options: object) -> tf.Variable:
    """Creates a variable that is drawn from the start of its seed; a `variable_creator`."""
    context.context().clear_kernel_cache()
    return create(**options)


def with_own_draws(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns feature name -> a FeatureConfig of a table that is drawn from the start of its seed.

    >>> from tpu_estimator_embedding.mid_level import FeatureConfig, TableConfig
    >>> initializer = tf.compat.v1.random_uniform_initializer(seed=1)
    >>> features = with_own_draws({
    ...     name: FeatureConfig(TableConfig(3, 2, initializer, name=name)) for name in "ab"})
    >>> a, b = (feature.table.initializer([3, 2]) for feature in features.values())
    >>> bool(tf.reduce_all(a == b))
    True
    """
    tables = {id(feature.table): copy.copy(feature.table) for feature in features.values()}
    for table in tables.values():
        table.initializer = _from_its_start(initializer_object(table.initializer, "initializer"))
    new = {}
    for name, feature in features.items():
        new[name] = copy.copy(feature)
        new[name].table = tables[id(feature.table)]
    return new


def _from_its_start(initializer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(initializer)  # keeps the signature, which shows how to fill a part
    def initialize(*args: object, **options: object) -> Tensor:
        context.context().clear_kernel_cache()
        return initializer(*args, **options)
    return initialize
