# SPDX-License-Identifier: Apache-2.0
"""The formats of checkpoints, by name, and what tells them apart where no value is read."""

from typing import NamedTuple


class Format(NamedTuple):
    """A format of checkpoints.

    Attributes:
        has_estimator_names: whether variables have their names in TPUEstimator, as in a `v1`.
        is_whole: whether it is one file or directory, without an index beside it.
        template: how a Keras program writes the template that the format needs, after its model
            was built and compiled; empty if it needs none.
    """

    has_estimator_names: bool = False
    is_whole: bool = False
    template: str = ""


FORMATS = {
    "v1": Format(has_estimator_names=True),
    "tf2": Format(),
    "tpu-embedding-layer": Format(),
    "keras-rs": Format(template="tf.train.Checkpoint(model=model).save('template')"),
    "keras-rs-jax": Format(
        is_whole=True,
        template="with orbax.checkpoint.StandardCheckpointer() as checkpointer: "
                 "checkpointer.save(path, model.get_state_tree())"),
    "npz": Format(has_estimator_names=True, is_whole=True)}
NAMES = tuple(FORMATS)
