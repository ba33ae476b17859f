# SPDX-License-Identifier: Apache-2.0
"""The rows of a table's activations on a TPU, which hold several features side by side.

Row `b * num_rows + r` belongs to sample b. The features of a table, sorted by name, share its rows
`[0, num_rows)` of a sample: a feature has one of them, a sequence feature one for each position.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, EnqueueData
from tpu_estimator_embedding.low_level.core_queue import with_all_parts
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.plan.embedding_plan import FeaturePlan
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
    """Returns the rows of every table, in the order of the configuration."""
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


class Entry(NamedTuple):
    """What one sparse or ragged tensor of a batch holds.

    Attributes:
        features: a feature, or, of a table without feature descriptors, those that are the
            positions of a sequence.
        table: name of their table.
        length: positions of a sequence, otherwise 0.
        is_split: whether the positions are features.
    """

    features: Sequence[str]
    table: str
    length: int
    is_split: bool = False

    def split(self, data: AnyEnqueueData) -> dict[str, AnyEnqueueData]:
        """Returns feature name -> its ids."""
        if not self.is_split:
            return {self.features[0]: data}
        sequence = FeaturePlan(self.features[0], self.table, self.length)
        ids, places, weights = with_all_parts(sequence, data)
        split: dict[str, AnyEnqueueData] = {}
        for position, feature in enumerate(self.features):
            is_here = tf.equal(places[:, 1], position)
            split[feature] = EnqueueData(*(tf.boolean_mask(part, is_here)
                                           for part in (ids, places[:, 0], weights)))
        return split


def entries_of_features(engine: TPUEmbedding) -> list[Entry]:
    """Returns an entry for each feature, in the order of the configuration."""
    configs = engine.feature_to_config_dict
    return [Entry([feature], configs[feature].table_id, configs[feature].max_sequence_length)
            for feature in engine._feature_order]


def entries_of(engine: TPUEmbedding, table_ids: Sequence[int],
               max_sequence_lengths: Sequence[int] | None,
               num_features: Sequence[int] | None) -> list[Entry]:
    """Returns the entries of a batch: the next feature, or features, of the entry's table each.

    Args:
        engine: the tables.
        table_ids: the table of each entry.
        max_sequence_lengths: positions of each entry, 0 for one without; None for all 0.
        num_features: must be 1 for every entry, or empty.

    Raises:
        ValueError: if they are not the features of the configuration.
    """
    tables = engine.table_to_features_dict
    lengths = list(max_sequence_lengths or [0] * len(table_ids))
    checks.check(len(lengths) == len(table_ids), "max_sequence_lengths",
                 f"a list of {len(table_ids)}, one for each entry", max_sequence_lengths)
    are_split = not engine.config_proto.feature_descriptor
    widths = [max(1, length) if are_split else 1 for length in lengths]
    expected = sorted(number for number, features in enumerate(tables.values()) for _ in features)
    found = sorted(table for table, width in zip(table_ids, widths, strict=True)
                   for _ in range(width))
    checks.check(found == expected, "table_ids",
                 f"the table of each feature, {expected} in any order", list(table_ids))
    checks.check(not num_features or set(num_features) == {1}, "num_features",
                 "1 for every entry", num_features, "Enqueue an entry for each feature.")
    remaining = [iter(features) for features in tables.values()]
    entries = [Entry([next(remaining[table]) for _ in range(width)], list(tables)[table], length,
                     are_split and length > 0)
               for table, width, length in zip(table_ids, widths, lengths, strict=True)]
    if not are_split:
        _check_lengths(engine, entries, lengths)
    return entries


def _check_lengths(engine: TPUEmbedding, entries: Sequence[Entry], given: Sequence[int]) -> None:
    features = [entry.features[0] for entry in entries]
    own = [engine.feature_to_config_dict[feature].max_sequence_length for feature in features]
    checks.check(given == own, "max_sequence_lengths",
                 f"equal to the max_sequence_length of the features {features}, {own}", given)
