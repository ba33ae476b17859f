// SPDX-License-Identifier: Apache-2.0
// Maps the ids of a feature to rows of a table.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_MAP_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_MAP_H_

#include <cstdint>

namespace tpu_estimator_embedding {

// Several small tables may share one table, a stack, whose rows are those of 2^log2_shards shards,
// one shard after another. Id i of such a small table is in shard (i + rotation) mod 2^log2_shards,
// row `row_offset + i div 2^log2_shards` of the shard. By default id i is row i.
struct RowMap {
  int log2_shards = 0;
  int64_t rotation = 0;
  int64_t row_offset = 0;
  int64_t rows_per_shard = 0;

  int64_t num_shards() const { return int64_t{1} << log2_shards; }
  bool is_identity() const { return log2_shards == 0 && row_offset == 0; }

  int64_t Row(int64_t id) const {
    const int64_t shard = (id + rotation) & (num_shards() - 1);
    return shard * rows_per_shard + row_offset + (id >> log2_shards);
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_MAP_H_
