# SPDX-License-Identifier: Apache-2.0
"""Catching the gradient of activations on its way through the user's own optimizer.

A model_fn computes gradients where and how it likes. A trainable variable of shape [1]
is tied to the activations by an identity whose gradient function keeps what arrives and
passes on zeros, so that whatever minimizes the loss over all trainable variables visits
it. Gradient clipping in the model's optimizer never touches the embedding gradients.
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

DUMMY_VARIABLE_NAME = "tpu_embedding_dummy_table_variable"


class GradientCapture:
    """Ties activations to a dummy variable and remembers their gradients."""

    def __init__(self) -> None:
        self._gradients: dict[str, Tensor] | None = None
        # Trainable, to be visited; local, to stay out of checkpoints.
        self._dummy = tf.compat.v1.get_variable(
            DUMMY_VARIABLE_NAME, [1], tf.float32, initializer=tf.compat.v1.zeros_initializer(),
            use_resource=True, trainable=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])

    def tie(self, activations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the same activations, with gradients that end here.

        Args:
            activations: table name -> `[num_rows, dim]`.
        """
        names, tensors = list(activations), list(activations.values())

        @tf.custom_gradient
        def identity(dummy, *tensors):
            def keep(*gradients):
                self._keep(dict(zip(names, gradients, strict=True)))
                return tf.zeros_like(dummy), *[tf.zeros_like(tensor) for tensor in tensors]

            return [tf.identity(tensor) for tensor in tensors], keep

        return dict(zip(names, identity(self._dummy, *tensors), strict=True))

    def _keep(self, gradients: dict[str, Tensor]) -> None:
        if self._gradients is not None:
            raise RuntimeError(
                "The gradients of embedding activations must be computed once per model_fn, "
                "got a second computation. Compute gradients over all trainable variables "
                "once and reuse them, or leave the variable "
                f"{DUMMY_VARIABLE_NAME!r} out of the var_list of all optimizers but one.")
        self._gradients = {name: tf.convert_to_tensor(gradient)
                           for name, gradient in gradients.items()}

    def captured(self) -> dict[str, Tensor]:
        """Returns the gradient of every table's activations, `[num_rows, dim]`.

        Raises:
            RuntimeError: if the model_fn did not compute them.
        """
        if self._gradients is None:
            raise RuntimeError(
                "model_fn must compute the gradients of its loss over all trainable variables, "
                "got no gradient of the embedding activations. Leave out the `var_list` of the "
                f"optimizer, or add the trainable variable {DUMMY_VARIABLE_NAME!r} to it.")
        return self._gradients

    def hide(self) -> None:
        """Takes the dummy, and what an optimizer keeps for it, out of saved collections.

        Slots and moving averages of the dummy become local variables. To be called when
        the model_fn is done.
        """
        keys = tf.compat.v1.GraphKeys
        graph = tf.compat.v1.get_default_graph()
        for variable in graph.get_collection(keys.GLOBAL_VARIABLES):
            if DUMMY_VARIABLE_NAME in variable.op.name:
                graph.get_collection_ref(keys.GLOBAL_VARIABLES).remove(variable)
                graph.add_to_collection(keys.LOCAL_VARIABLES, variable)
        for key in (keys.TRAINABLE_VARIABLES, keys.MOVING_AVERAGE_VARIABLES,
                    keys.MODEL_VARIABLES):
            collection = graph.get_collection_ref(key)
            collection[:] = [variable for variable in collection
                             if DUMMY_VARIABLE_NAME not in variable.op.name]
