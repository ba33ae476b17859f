// SPDX-License-Identifier: Apache-2.0
// Tables and slots as of one step, from which a checkpoint is written while updates go on.
//
// A snapshot shares the buffers of its variables. An update first copies the rows that it is about to
// write and that were not read yet. So a snapshot takes no time, no step copies a table, and memory
// grows by the rows that are trained while the checkpoint is written.
//
// Rows are read under the variable's lock for reading, a few at a time, and kept under its lock for
// writing, which every update holds. Ops of TensorFlow that write to a variable copy its buffer, as
// they see that it is shared.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_SNAPSHOTS_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_SNAPSHOTS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"

namespace tpu_estimator_embedding {

// The values of one variable.
class RowSnapshot {
 public:
  static constexpr int64_t kMostRows = (int64_t{1} << 32) - 2;

  // `value` is a matrix of at most `kMostRows`, which shares the buffer of the variable or is a copy.
  RowSnapshot(tensorflow::core::RefCountPtr<tensorflow::Var> variable,
              const tensorflow::Tensor& value)
      : variable_(std::move(variable)),
        value_(value),
        num_rows_(value.dim_size(0)),
        dim_(value.dim_size(1)),
        rows_of_chunk_(std::max<int64_t>(
            1, std::min(num_rows_, kFloatsOfChunk / std::max<int64_t>(1, dim_)))),
        places_(static_cast<uint32_t*>(std::calloc(num_rows_ + 1, sizeof(uint32_t)))) {
    if (places_ == nullptr) throw std::bad_alloc();
  }

  const tensorflow::Var* variable() const { return variable_.get(); }

  // Whether this snapshot is all that shares the buffer of `value`, the value of the variable. The
  // caller holds the lock for writing.
  bool IsOnlyOtherOwner(const tensorflow::Tensor& value) {
    if (is_released_ || value.data() != value_.data()) return false;
    value_ = tensorflow::Tensor();
    const bool is_one = value.RefCountIsOne();
    value_ = value;
    return is_one;
  }

  // The lock for writing is held during these three: whether a row is still to be read from the
  // buffer; room for more rows, whose first place it returns; and the copy of a row into a place.
  bool IsToKeep(int64_t row) const { return row >= num_read_ && places_[row] == 0; }
  int64_t Reserve(int64_t count) {
    const int64_t first = num_kept_;
    const size_t num_chunks = (first + count + rows_of_chunk_ - 1) / rows_of_chunk_;
    while (chunks_.size() < num_chunks) {
      chunks_.emplace_back(new float[rows_of_chunk_ * dim_]);
    }
    num_kept_ += count;
    return first;
  }
  void Keep(int64_t row, int64_t place) {
    std::memcpy(Place(place), value_.flat<float>().data() + row * dim_, dim_ * sizeof(float));
    places_[row] = static_cast<uint32_t>(place + 1);
  }

  int64_t bytes_of_row() const { return dim_ * sizeof(float); }
  int64_t kept_bytes() const { return chunks_.size() * rows_of_chunk_ * bytes_of_row(); }

  // Copies the next rows; false unless `begin` is the first row that was not read.
  bool Read(int64_t begin, int64_t count, float* rows) {
    tensorflow::tf_shared_lock lock(*variable_->mu());
    if (is_released_ || begin != num_read_ || count < 0 || count > num_rows_ - begin) return false;
    const float* const live = value_.flat<float>().data();
    int64_t i = 0;
    while (i < count) {
      int64_t end = i;
      while (end < count && places_[begin + end] == 0) ++end;
      std::memcpy(rows + i * dim_, live + (begin + i) * dim_, (end - i) * bytes_of_row());
      for (i = end; i < count && places_[begin + i] != 0; ++i) {
        std::memcpy(rows + i * dim_, Place(places_[begin + i] - 1), bytes_of_row());
      }
    }
    num_read_ = begin + count;
    return true;
  }

  // Frees the memory, so that updates no longer keep rows; returns the bytes of kept rows.
  int64_t Release() {
    tensorflow::mutex_lock lock(*variable_->mu());
    const int64_t freed = kept_bytes();
    is_released_ = true;
    value_ = tensorflow::Tensor();
    chunks_.clear();
    places_.reset();
    return freed;
  }

 private:
  static constexpr int64_t kFloatsOfChunk = 1 << 19;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  float* Place(int64_t place) {
    return chunks_[place / rows_of_chunk_].get() + place % rows_of_chunk_ * dim_;
  }

  const tensorflow::core::RefCountPtr<tensorflow::Var> variable_;
  tensorflow::Tensor value_;
  const int64_t num_rows_, dim_, rows_of_chunk_;
  std::unique_ptr<uint32_t[], Free> places_;  // of kept rows, plus 1; 0 for others
  std::vector<std::unique_ptr<float[]>> chunks_;
  int64_t num_kept_ = 0, num_read_ = 0;
  bool is_released_ = false;
};

// The values of all variables of a checkpoint.
struct StepSnapshot {
  std::vector<std::unique_ptr<RowSnapshot>> parts;
  int64_t most_bytes = 0;  // of kept rows; updates wait while there are more
  std::atomic<int64_t> kept_bytes{0}, peak_bytes{0};

  // Counts memory that `Reserve` has taken, or that `Release` has freed.
  void Count(int64_t bytes) {
    const int64_t kept = kept_bytes += bytes;
    if (kept > peak_bytes) peak_bytes = kept;
  }
};

// One part of a snapshot, which lives while this does.
struct SnapshotPart {
  std::shared_ptr<StepSnapshot> snapshot;
  RowSnapshot* rows = nullptr;
};

// The snapshots of the process.
class StepSnapshots {
 public:
  // Never destroyed: threads of TensorFlow use it until the process ends.
  static StepSnapshots& Get() {
    static StepSnapshots* const snapshots = new StepSnapshots;
    return *snapshots;
  }

  // Returns the number of the snapshot; 0 if one of its variables is in another one.
  int64_t Begin(std::shared_ptr<StepSnapshot> snapshot) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& part : snapshot->parts) {
      if (parts_.count(part->variable()) > 0) return 0;
    }
    for (const auto& part : snapshot->parts) parts_[part->variable()] = {snapshot, part.get()};
    snapshots_[++last_] = std::move(snapshot);
    size_ = snapshots_.size();
    return last_;
  }

  std::shared_ptr<StepSnapshot> Find(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = snapshots_.find(number);
    return found == snapshots_.end() ? nullptr : found->second;
  }
  SnapshotPart Find(const tensorflow::Var* variable) {
    if (size_ == 0) return {};
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = parts_.find(variable);
    return found == parts_.end() ? SnapshotPart{} : found->second;
  }

  // Frees what a part keeps.
  void Release(StepSnapshot* snapshot, RowSnapshot* rows) {
    const int64_t freed = rows->Release();
    std::lock_guard<std::mutex> lock(mutex_);
    snapshot->Count(-freed);
    less_memory_.notify_all();
  }

  void End(int64_t number) {
    const std::shared_ptr<StepSnapshot> snapshot = Find(number);
    if (snapshot == nullptr) return;
    for (const auto& part : snapshot->parts) Release(snapshot.get(), part.get());
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& part : snapshot->parts) parts_.erase(part->variable());
    snapshots_.erase(number);
    size_ = snapshots_.size();
    less_memory_.notify_all();
  }

  // Waits while a snapshot keeps more than it may. The caller holds no variable's lock, which reading
  // the snapshot needs.
  void WaitForMemory() {
    if (size_ == 0) return;
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_memory = [this] {
      return std::all_of(snapshots_.begin(), snapshots_.end(), [](const auto& each) {
        return each.second->kept_bytes <= each.second->most_bytes;
      });
    };
    // A wait without a limit would need a newer C++ library than older systems have.
    using Clock = std::chrono::system_clock;
    while (!less_memory_.wait_until(lock, Clock::now() + std::chrono::seconds(1), has_memory)) {
    }
  }

 private:
  StepSnapshots() = default;

  std::mutex mutex_;
  std::condition_variable less_memory_;
  std::unordered_map<int64_t, std::shared_ptr<StepSnapshot>> snapshots_;  // by number
  std::unordered_map<const tensorflow::Var*, SnapshotPart> parts_;
  int64_t last_ = 0;
  std::atomic<size_t> size_{0};
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_SNAPSHOTS_H_
