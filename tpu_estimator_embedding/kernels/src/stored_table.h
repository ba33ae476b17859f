// SPDX-License-Identifier: Apache-2.0
// A part of a table whose rows are read from a checkpoint when they are first looked up.
//
// Rows that were read are kept as long as there is room. When there is none, all of them are
// forgotten, which bounds the memory at little cost: what is looked up often is soon back, from the
// system's page cache, which all processes share.
#ifndef TPU_ESTIMATOR_EMBEDDING_STORED_TABLE_H_
#define TPU_ESTIMATOR_EMBEDDING_STORED_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "row_cache.h"
#include "stored_file.h"

namespace tpu_estimator_embedding {

// Consecutive saved rows in a file.
struct StoredPiece {
  int64_t first_row, num_rows;
  std::shared_ptr<StoredFile> file;
  int64_t offset;
};

// Which saved row is a row of a part. Row r of the part is id first_id + r * id_step. The saved rows
// are in the order of ids, or in that of `num_saved_parts` parts by `mod`.
struct RowOrder {
  int64_t num_rows, first_id, id_step;
  int64_t vocabulary_size, num_saved_parts;

  int64_t SavedRow(int64_t row) const {
    const int64_t id = first_id + row * id_step;
    const int64_t part = id % num_saved_parts, longer_parts = vocabulary_size % num_saved_parts;
    return part * (vocabulary_size / num_saved_parts) + std::min(part, longer_parts) +
           id / num_saved_parts;
  }
};

class StoredTable {
 public:
  // The pieces are those of all saved rows, in order. Keeps at least one row, and more while they
  // fit into `kept_bytes`.
  StoredTable(const RowOrder& order, int64_t dim, std::vector<StoredPiece> pieces,
              int64_t kept_bytes)
      : order_(order),
        dim_(dim),
        pieces_(std::move(pieces)),
        capacity_(std::max<int64_t>(
            1, std::min(order.num_rows, kept_bytes / RowCache::BytesOfRow(dim)))) {}

  int64_t num_rows() const { return order_.num_rows; }
  int64_t dim() const { return dim_; }

  // Finds the places of some rows in the cache that it returns, and reads those that are not in it.
  // `for_each(count, work)` calls work(i) for every i below `count`, in any threads. Sets `problem`,
  // which is empty otherwise, if a row cannot be read. The caller checks the numbers of the rows.
  template <class Id, class ForEach>
  std::shared_ptr<RowCache> Fetch(const Id* rows, int64_t count, Id* places,
                                  const ForEach& for_each, std::string* problem) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Missing> missing;
    if (cache_ == nullptr || !FindAll(rows, count, places, &missing)) {
      missing.clear();
      cache_ = std::make_shared<RowCache>(dim_, std::max(capacity_, count));
      FindAll(rows, count, places, &missing);
    }
    const std::shared_ptr<RowCache> cache = cache_;
    if (missing.empty()) return cache;
    cache_ = nullptr;  // until all rows are in it
    for (Missing& each : missing) each.row = order_.SavedRow(each.row);
    std::sort(missing.begin(), missing.end(),
              [](const Missing& a, const Missing& b) { return a.row < b.row; });
    *problem = ReadAll(missing, cache.get(), for_each);
    if (problem->empty()) *problem = CheckFiles();
    if (problem->empty()) cache_ = cache;
    return cache;
  }

 private:
  struct Missing {
    int64_t row, place;
  };

  // Returns whether the cache has room; those that are new to it are missing.
  template <class Id>
  bool FindAll(const Id* rows, int64_t count, Id* places, std::vector<Missing>* missing) {
    constexpr int64_t kAhead = 16;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) cache_->Prefetch(rows[i + kAhead]);
      int64_t place = cache_->Find(rows[i]);
      if (place == RowCache::kNone) {
        if (cache_->is_full()) return false;
        place = cache_->Add(rows[i]);
        missing->push_back({rows[i], place});
      }
      places[i] = static_cast<Id>(place);
    }
    return true;
  }

  template <class ForEach>
  std::string ReadAll(const std::vector<Missing>& missing, RowCache* cache,
                      const ForEach& for_each) const {
    constexpr int64_t kRowsOfShare = 64;
    const int64_t count = missing.size();
    std::mutex mutex;
    std::string problem;
    for_each((count + kRowsOfShare - 1) / kRowsOfShare, [&](int64_t share) {
      const int64_t end = std::min(count, (share + 1) * kRowsOfShare);
      const std::string found = ReadShare(&missing[share * kRowsOfShare], &missing[end - 1] + 1,
                                          cache);
      if (found.empty()) return;
      std::lock_guard<std::mutex> lock(mutex);
      problem = found;
    });
    return problem;
  }

  // Reads what is close together at once: that takes less time than calls of the system.
  std::string ReadShare(const Missing* begin, const Missing* end, RowCache* cache) const {
    constexpr int64_t kBytesOfGap = 4096, kBytesOfBuffer = 65536;
    const int64_t bytes_of_row = dim_ * sizeof(float);
    std::vector<float> buffer;
    while (begin < end) {
      const Missing* next = begin + 1;
      while (next < end && (next->row - next[-1].row - 1) * bytes_of_row <= kBytesOfGap &&
             (next->row - begin->row + 1) * bytes_of_row <= kBytesOfBuffer) {
        ++next;
      }
      const int64_t count = next[-1].row - begin->row + 1;
      float* to = cache->Place(begin->place);
      if (next > begin + 1) {
        buffer.resize(count * dim_);
        to = buffer.data();
      }
      const std::string problem = Read(begin->row, count, to);
      if (!problem.empty()) return problem;
      for (const Missing* each = begin; next > begin + 1 && each < next; ++each) {
        std::memcpy(cache->Place(each->place), to + (each->row - begin->row) * dim_, bytes_of_row);
      }
      begin = next;
    }
    return "";
  }

  // Reads consecutive saved rows, which may be in several pieces.
  std::string Read(int64_t first, int64_t count, float* to) const {
    const int64_t bytes_of_row = dim_ * sizeof(float);
    auto piece = std::upper_bound(
        pieces_.begin(), pieces_.end(), first,
        [](int64_t row, const StoredPiece& each) { return row < each.first_row; });
    for (--piece; count > 0; ++piece) {
      const int64_t row = first - piece->first_row;
      const int64_t rows_here = std::min(count, piece->num_rows - row);
      const std::string problem =
          piece->file->Read(piece->offset + row * bytes_of_row, rows_here * bytes_of_row,
                            reinterpret_cast<char*>(to));
      if (!problem.empty()) return problem;
      first += rows_here;
      count -= rows_here;
      to += rows_here * dim_;
    }
    return "";
  }

  std::string CheckFiles() const {
    const StoredFile* checked = nullptr;
    for (const StoredPiece& piece : pieces_) {
      if (piece.file.get() == checked) continue;
      checked = piece.file.get();
      const std::string problem = checked->Check();
      if (!problem.empty()) return problem;
    }
    return "";
  }

  const RowOrder order_;
  const int64_t dim_;
  const std::vector<StoredPiece> pieces_;
  const int64_t capacity_;
  std::mutex mutex_;
  std::shared_ptr<RowCache> cache_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_STORED_TABLE_H_
