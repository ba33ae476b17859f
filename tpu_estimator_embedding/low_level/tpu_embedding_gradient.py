# SPDX-License-Identifier: Apache-2.0
"""Gradients of activations, for `TPUEmbedding.generate_send_gradients_op`.

There are two ways to compute them. `get_gradients_through_compute_gradients` differentiates the
loss explicitly. Alternatively, activations are tied to trainable dummy variables; an optimizer
that minimizes the loss over all trainable variables then computes the gradients too, and
`get_gradients_through_dummy_table_variables` returns them.

>>> from tpu_estimator_embedding.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
>>> from tpu_estimator_embedding.config.table_config import TableConfig
>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     engine = TPUEmbedding({"words": TableConfig(10, 2)}, {"title": FeatureConfig("words")}, 1,
...                           TRAINING, "", AdagradParameters(0.1))
...     dummies, initializer = create_dummy_table_variables(engine)
...     activations = hook_dummy_table_variables_to_activations(
...         engine, {"title": tf.constant([[1.0, 2.0]])}, dummies)
...     loss = tf.reduce_sum(tf.square(activations["title"]))
...     minimize = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
...     gradients = get_gradients_through_dummy_table_variables(engine)
...     session.run(initializer)
...     session.run(gradients["title"]).tolist()
[[2.0, 4.0]]
"""

import collections
import warnings
from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.low_level.engine_configuration import TRAINING
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.captured_gradients import DUMMY_COLLECTION
from tpu_estimator_embedding.types import Tensor


def get_gradients_through_compute_gradients(
        optimizer: tf.compat.v1.train.Optimizer, loss: Tensor, activations: Mapping[str, Tensor]
        ) -> "collections.OrderedDict[str, Tensor]":
    """Differentiates the loss with respect to the activations.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`, usually a `CrossShardOptimizer`.
        loss: scalar float32.
        activations: feature name -> `[batch, dim]` or `[batch, length, dim]` float32.

    Returns:
        Feature name -> gradient, of the shape of its activation, in the same order; None
        if the loss does not depend on the activation.

    >>> with tf.Graph().as_default():
    ...     activations = {"word": tf.constant([[1.0, 2.0]])}
    ...     loss = tf.reduce_sum(3.0 * activations["word"])
    ...     gradients = get_gradients_through_compute_gradients(
    ...         tf.compat.v1.train.GradientDescentOptimizer(1.0), loss, activations)
    ...     tf.compat.v1.Session().run(gradients["word"]).tolist()
    [[3.0, 3.0]]
    """
    gradients = optimizer.compute_gradients(loss, list(activations.values()))
    return collections.OrderedDict(
        (feature, gradient)
        for feature, (gradient, _) in zip(activations, gradients, strict=True))


def create_dummy_table_variables(
        tpu_embedding: TPUEmbedding
        ) -> "tuple[collections.OrderedDict[str, tf.Variable], tf.Operation]":
    """Creates a trainable variable for each table, to tie activations to.

    The variables are in the collection of trainable variables, but not in that of global
    variables, so programs neither save nor initialize them by accident.

    Args:
        tpu_embedding: the engine whose activations are to be tied.

    Returns:
        Table name -> variable `[1]` float32, and the op that initializes the variables.

    Raises:
        RuntimeError: if the graph already has these variables.
    """
    tied = tpu_embedding._ops_for("create_dummy_table_variables").tied
    dummies = collections.OrderedDict(tied.create_dummies(tpu_embedding.table_to_config_dict))
    return dummies, tf.compat.v1.variables_initializer(
        list(dummies.values()), name=f"{DUMMY_COLLECTION}_init")


def hook_dummy_table_variables_to_activations(
        tpu_embedding: TPUEmbedding, activations: Mapping[str, Tensor],
        dummy_table_variables: Mapping[str, tf.Variable]
        ) -> "collections.OrderedDict[str, Tensor]":
    """Connects the activations of one core to dummy variables.

    Args:
        tpu_embedding: the engine.
        activations: feature name -> activation.
        dummy_table_variables: table name -> variable that `create_dummy_table_variables`
            returned.

    Returns:
        Feature name -> the same activation. Its gradient is captured and stopped: the gradient
        of the dummy variable is zero.

    Raises:
        ValueError: if a feature is unknown or its table has no dummy variable.
        RuntimeError: when gradients are computed, if no dummy variables were created or the
            gradient of the activation was computed before.
    """
    tables = {feature: config.table_id
              for feature, config in tpu_embedding.feature_to_config_dict.items()}
    unknown = sorted(set(activations) - set(tables))
    checks.check(not unknown, "activations", f"keyed by the features {sorted(tables)}", unknown)
    missing = sorted({tables[feature] for feature in activations} - set(dummy_table_variables))
    checks.check(not missing, "dummy_table_variables", "have a variable for every table",
                 sorted(dummy_table_variables), f"Missing: {missing}.")
    tied = tpu_embedding._ops_for("hook_dummy_table_variables_to_activations").tied
    return collections.OrderedDict(tied.tie(activations, {
        feature: dummy_table_variables[tables[feature]] for feature in activations}))


def get_gradients_through_dummy_table_variables(
        tpu_embedding: TPUEmbedding) -> "collections.OrderedDict[str, Tensor]":
    """Returns the captured gradients of one core's tied activations.

    If an activation has no gradient, because the loss does not depend on it or the gradient is
    stopped, the function returns zeros and warns: an update with a zero gradient still moves
    rows under optimizers with momentum.

    Args:
        tpu_embedding: the engine.

    Returns:
        Feature name -> gradient, of the shape of its activation.

    Raises:
        RuntimeError: if the mode of the engine is not TRAINING, or no dummy variables were
            created.
    """
    tied = tpu_embedding._ops_for("get_gradients_through_dummy_table_variables").tied
    if tpu_embedding.config_proto.mode != TRAINING:
        raise RuntimeError(checks.complaint(
            "mode", "TRAINING to compute gradients", tpu_embedding.config_proto.mode))
    if tied.dummies is None:
        raise RuntimeError("`create_dummy_table_variables` must be called before gradients are "
                           "requested, got no call in this graph.")
    gradients = tied.take()
    shapes = tpu_embedding._activation_shapes()
    missing = [feature for feature in shapes if feature not in gradients]
    if missing:
        warnings.warn(
            f"The loss has no gradient with respect to the activations of {missing}: zeros are "
            "sent, which still update rows under optimizers with momentum or decay. Leave "
            "unused features out of the TPUEmbedding.", stacklevel=2)
    return collections.OrderedDict(
        (feature, gradients[feature] if feature in gradients else tf.zeros(shape))
        for feature, shape in shapes.items())
