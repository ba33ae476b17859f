# SPDX-License-Identifier: Apache-2.0
"""The combiners that a batch brings, for tables whose configuration has none.

A configuration message does not say how the ids of a row are combined: the op that enqueues them
does. The engine then sums, with weights that contain the factors of the combiner.
"""

from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, EnqueueData
from tpu_estimator_embedding.low_level.core_queue import with_all_parts
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import SparseIds
from tpu_estimator_embedding.plan.embedding_plan import FeaturePlan
from tpu_estimator_embedding.types import COMBINERS


def combined(engine: TPUEmbedding, datas: Mapping[str, AnyEnqueueData],
             combiners: Sequence[str] | None) -> dict[str, AnyEnqueueData]:
    """Returns the ids, with weights for the combiners of the batch.

    Args:
        engine: the tables.
        datas: feature name -> ids.
        combiners: the combiner of each table, in their order; None means that all sum.

    Raises:
        ValueError: if they are not those of the tables, where these have any.
    """
    tables = engine.table_to_features_dict
    checks.check(not combiners or len(combiners) == len(tables), "combiners",
                 f"a list of {len(tables)}, one for each table of {list(tables)}", combiners)
    given = dict(zip(tables, combiners or ["sum"] * len(tables), strict=True))
    for table, combiner in given.items():
        checks.check_one_of(f"combiner of table {table!r}", COMBINERS[:-1], combiner)
    _check_are_those_of_tables(engine, datas, given, combiners)
    configs, features = engine.table_to_config_dict, engine._plan.features
    result = dict(datas)
    for feature in features:
        if configs[feature.table].combiner is None and given[feature.table] != "sum":
            result[feature.name] = _with_factors(
                feature, datas[feature.name], given[feature.table], engine.batch_size_per_core)
    return result


def _check_are_those_of_tables(engine: TPUEmbedding, datas: Mapping[str, AnyEnqueueData],
                               given: Mapping[str, str],
                               combiners: Sequence[str] | None) -> None:
    configs = engine.table_to_config_dict
    own = {table: configs[table].combiner or given[table] for table in given}
    tables = _tables_that_combine(engine, datas)
    checks.check(all(given[table] == own[table] for table in tables), "combiners",
                 f"equal to the combiners of the tables, {list(own.values())}", combiners,
                 "" if combiners else "Without combiners, the ops sum.")


def _tables_that_combine(engine: TPUEmbedding,
                         datas: Mapping[str, AnyEnqueueData]) -> Collection[str]:
    """Returns the tables with features that may have several ids in a sample."""
    configs = engine.feature_to_config_dict
    return [table for table, features in engine.table_to_features_dict.items()
            if any(datas[feature][1] is not None and not configs[feature].max_sequence_length
                   for feature in features)]


def _with_factors(feature: FeaturePlan, data: AnyEnqueueData, combiner: str,
                  batch_size: int) -> EnqueueData:
    ids, places, weights = with_all_parts(feature, data)
    num_rows = batch_size
    rows = places
    if feature.max_sequence_length:
        # One more row of each sample for the positions beyond the length, which are dropped.
        positions = feature.max_sequence_length + 1
        rows = places[:, 0] * positions + tf.minimum(places[:, 1], positions - 1)
        num_rows *= positions
    present = tf.where(ids < 0, 0.0, weights)  # negative ids are padding
    factors = row_scales(combiner, SparseIds(ids, rows, present), num_rows)
    return EnqueueData(ids, places, weights * tf.gather(factors, rows))
