# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingForServing: looks up trained tables with TensorFlow's own ops.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> words = TableConfig(1000, 2, tf.ones_initializer(), name="words")
>>> embedding = TPUEmbeddingForServing({"title": FeatureConfig(words)}, optimizer=None)
>>> embedding({"title": tf.constant([3, 4])})["title"].numpy().tolist()
[[1.0, 1.0], [1.0, 1.0]]
"""


import tensorflow as tf  # noqa: F401  (for the example above)

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.serving.plain_tables import PlainTables
from tpu_estimator_embedding.mid_level.serving.serving_lookup import serving_embedding_lookup
from tpu_estimator_embedding.types import Structure


class TPUEmbeddingForServing(PlainTables):
    """Tables that are restored from a checkpoint of TPUEmbedding or TPUEmbeddingV2, for serving.

    They are trainable variables of the current strategy, which an optimizer of the program can
    train.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: the optimizer whose slots to create and restore; None means no slots.
        experimental_sparsecore_restore_info: must be None.

    Raises:
        ValueError: if a config or optimizer is of the wrong class, two tables have the same
            name, or experimental_sparsecore_restore_info is given.

    Source: documentation of `tf.tpu.experimental.embedding.TPUEmbeddingForServing`.
    """

    def __init__(self, feature_config: Structure, optimizer: TableOptimizer | None,
                 experimental_sparsecore_restore_info: None = None) -> None:
        checks.check(experimental_sparsecore_restore_info is None,
                     "experimental_sparsecore_restore_info", "None",
                     experimental_sparsecore_restore_info,
                     "Restore into TPUEmbeddingV2, which knows the layout of its tables.")
        super().__init__(feature_config, optimizer)

    def embedding_lookup(self, features: Structure, weights: Structure = None) -> Structure:
        """Looks up features; see `serving_embedding_lookup` for arguments, result and errors."""
        return serving_embedding_lookup(features, weights, self._own_tables(),
                                        self._own_config)

    __call__ = embedding_lookup
