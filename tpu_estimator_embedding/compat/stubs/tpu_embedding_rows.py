# SPDX-License-Identifier: Apache-2.0
"""The rows of a table's activations on a TPU, which hold several features side by side.

Row `b * num_rows + r` belongs to sample b. The features of a table, sorted by name, share its rows
`[0, num_rows)` of a sample: a feature has one of them, a sequence feature one for each position.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.types import Tensor


class FeatureRows(NamedTuple):
    """The rows of one feature in each sample.

    Attributes:
        name: name of the feature.
        start: its first row.
        length: `max_sequence_length` of a sequence feature, otherwise 0.
    """

    name: str
    start: int
    length: int

    @property
    def width(self) -> int:
        """Number of rows."""
        return max(1, self.length)


class TableRows(NamedTuple):
    """The rows of one table in each sample of a core.

    Attributes:
        table: name of the table.
        dimension: columns of the table.
        batch_size: samples of a core.
        features: those of the table, sorted by name.
    """

    table: str
    dimension: int
    batch_size: int
    features: Sequence[FeatureRows]

    @property
    def num_rows(self) -> int:
        """Number of rows of a sample."""
        return sum(feature.width for feature in self.features)

    def split_ids(self, ids: Tensor) -> dict[str, EnqueueData]:
        """Returns feature name -> ids, for one id in every row of the batch, `[batch * rows]`."""
        size = self.batch_size * self.num_rows
        subject = f"ids of table {self.table!r}"
        rule = f"{size}, {self.num_rows} for each of {self.batch_size} samples"
        known = ids.shape.num_elements()
        checks.check(known in (None, size), subject, rule, known)
        with tf.control_dependencies(assert_that(
                tf.equal(tf.size(ids), size),
                f"Ids of table {self.table!r} must be {rule}, got {VALUE}.", tf.size(ids))):
            by_sample = tf.reshape(ids, [self.batch_size, self.num_rows])
        split = {}
        for feature in self.features:
            own = tf.reshape(by_sample[:, feature.start:feature.start + feature.width], [-1])
            places = [[sample, position] for sample in range(self.batch_size)
                      for position in range(feature.length)]
            split[feature.name] = EnqueueData(
                own, tf.constant(places, tf.int64) if feature.length else None)
        return split

    def split_numbered_ids(self, rows: Tensor, ids: Tensor,
                           weights: Tensor) -> dict[str, EnqueueData]:
        """Returns feature name -> ids, for ids `[n]` with the number of their row and a weight."""
        rows = tf.cast(rows, tf.int64)
        samples, within = rows // self.num_rows, rows % self.num_rows
        split = {}
        for feature in self.features:
            is_own = (within >= feature.start) & (within < feature.start + feature.width)
            places = (tf.stack([samples, within - feature.start], 1) if feature.length
                      else samples)
            split[feature.name] = EnqueueData(*(
                part if len(self.features) == 1 else tf.boolean_mask(part, is_own)
                for part in (ids, places, weights)))
        return split

    def join(self, activations: Mapping[str, Tensor]) -> Tensor:
        """Returns the activations `[batch * rows, dim]` of all features of the table."""
        parts = [tf.reshape(activations[feature.name],
                            [self.batch_size, feature.width, self.dimension])
                 for feature in self.features]
        return tf.reshape(tf.concat(parts, 1), [-1, self.dimension])

    def split(self, gradients: Tensor) -> dict[str, Tensor]:
        """Returns feature name -> gradient of its activation: the inverse of `join`."""
        by_sample = tf.reshape(gradients, [self.batch_size, self.num_rows, self.dimension])
        return {feature.name: tf.reshape(
            by_sample[:, feature.start:feature.start + feature.width],
            [self.batch_size, *([feature.length] if feature.length else []), self.dimension])
            for feature in self.features}


def rows_of(engine: TPUEmbedding) -> list[TableRows]:
    """Returns the rows of every table, sorted by name."""
    return [TableRows(table, engine.table_to_config_dict[table].dimension,
                      engine.batch_size_per_core, _features(engine, features))
            for table, features in engine.table_to_features_dict.items()]


def _features(engine: TPUEmbedding, names: Sequence[str]) -> list[FeatureRows]:
    found: list[FeatureRows] = []
    for name in names:
        start = found[-1].start + found[-1].width if found else 0
        found.append(FeatureRows(
            name, start, engine.feature_to_config_dict[name].max_sequence_length))
    return found
