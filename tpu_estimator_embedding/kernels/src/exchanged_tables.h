// SPDX-License-Identifier: Apache-2.0
// Views of what a worker knows of the tables that it exchanges with a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXCHANGED_TABLES_H_
#define TPU_ESTIMATOR_EMBEDDING_EXCHANGED_TABLES_H_

#include <algorithm>
#include <vector>

#include "exchanged_rows.h"
#include "prepare_attributes.h"
#include "prepared_ids.h"

namespace tpu_estimator_embedding {

constexpr int64_t kFloatsOfShare = 1 << 16;  // fewer are not worth another thread

struct RowRange {
  size_t table;
  int64_t begin, end;
};

inline int64_t RowsOfShare(int64_t dim) { return kFloatsOfShare / dim + 1; }

inline void AddRanges(size_t table, int64_t num_rows, int64_t dim, std::vector<RowRange>* ranges) {
  const int64_t rows = RowsOfShare(dim);
  for (int64_t begin = 0; begin < num_rows; begin += rows) {
    ranges->push_back({table, begin, std::min(begin + rows, num_rows)});
  }
}

// A table of a host in the form that `CompactIdsOp` chose.
struct ExchangedTable {
  bool has_rows = false;   // one for each distinct id; otherwise sums
  int64_t num_sent = 0;    // rows or sums
  const int64_t* own_sizes = nullptr;
  const int32_t* places = nullptr;  // row of activations of each sum, or position of each id
};

// Views the tables of a host, in their order, from the sizes that the host got and those of the
// prepared ids.
inline absl::Status ViewExchanged(const tensorflow::Tensor& sent_sizes,
                                  const tensorflow::Tensor& own_sizes,
                                  const tensorflow::Tensor& places,
                                  std::vector<ExchangedTable>* tables) {
  if (sent_sizes.shape() != own_sizes.shape()) return DoNotFit();
  TF_RETURN_IF_ERROR(ForEachTable(sent_sizes, [&](const int64_t* sizes) {
    tables->push_back({sizes[kRuns] > 0, sizes[kRows], nullptr, nullptr});
  }));
  bool fits = true;
  size_t next = 0;
  Pieces<int32_t> pieces(places);
  TF_RETURN_IF_ERROR(ForEachTable(own_sizes, [&](const int64_t* sizes) {
    ExchangedTable& table = (*tables)[next++];
    table.own_sizes = sizes;
    table.places = pieces.Take(table.has_rows ? sizes[kIds] : table.num_sent);
    fits = fits && (!table.has_rows || table.num_sent == sizes[kRuns]);
  }));
  return fits && pieces.is_used_up() ? absl::OkStatus() : DoNotFit();
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXCHANGED_TABLES_H_
