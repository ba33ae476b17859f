// SPDX-License-Identifier: Apache-2.0
// Memory that an op keeps from one step to the next.
#ifndef TPU_ESTIMATOR_EMBEDDING_SCRATCH_POOL_H_
#define TPU_ESTIMATOR_EMBEDDING_SCRATCH_POOL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tpu_estimator_embedding {

// If memory were freed after every step, the C library would return it to the system, which clears
// every page before reuse. After a step, a pool keeps at most twice the peak use of the step; it
// frees everything with the op.
class ScratchPool {
 public:
  // Uninitialized memory, returned to the pool by the destructor. It must not outlive the pool.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(block_, other.block_);
      std::swap(num_bytes_, other.num_bytes_);
      return *this;
    }
    ~Buffer() {
      if (pool_ != nullptr) pool_->Return(std::move(block_), num_bytes_);
    }

    // Aligned for every arithmetic type except vectors.
    template <class T>
    T* as() const {
      return reinterpret_cast<T*>(block_.words.get());
    }

   private:
    friend class ScratchPool;
    ScratchPool* pool_ = nullptr;
    struct Block {
      std::unique_ptr<unsigned __int128[]> words;
      int64_t num_bytes = 0;
    } block_;
    int64_t num_bytes_ = 0;  // as requested
  };

  // Throws std::bad_alloc if there is no memory.
  Buffer Take(int64_t num_bytes) {
    constexpr int64_t kWord = sizeof(unsigned __int128);
    Buffer buffer;
    buffer.block_ = TakeFree(num_bytes);
    if (buffer.block_.words == nullptr) {
      const int64_t num_words = num_bytes / kWord + 1;
      buffer.block_ = {std::unique_ptr<unsigned __int128[]>(new unsigned __int128[num_words]),
                     num_words * kWord};
    }
    buffer.pool_ = this;
    buffer.num_bytes_ = num_bytes;
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ += num_bytes;
    peak_ = std::max(peak_, in_use_);
    return buffer;
  }

  // Ends a step: frees unneeded memory.
  void Trim() {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t kept = in_use_;
    const auto is_too_much = [&](const Buffer::Block& block) {
      kept += block.num_bytes;
      const bool is_kept = kept <= 2 * peak_;
      if (!is_kept) kept -= block.num_bytes;
      return !is_kept;
    };
    free_.erase(std::remove_if(free_.begin(), free_.end(), is_too_much), free_.end());
    peak_ = in_use_;
  }

  // Bytes kept for the next step.
  int64_t num_free_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t total = 0;
    for (const Buffer::Block& block : free_) total += block.num_bytes;
    return total;
  }

 private:
  // Returns the most recently used block that is large enough: it may be in the cache. If there is
  // none, a new block replaces one that is too small.
  Buffer::Block TakeFree(int64_t num_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = free_.size(); i-- > 0;) {
      if (free_[i].num_bytes < num_bytes) continue;
      Buffer::Block block = std::move(free_[i]);
      free_.erase(free_.begin() + i);
      return block;
    }
    if (!free_.empty()) free_.pop_back();
    return {};
  }

  void Return(Buffer::Block block, int64_t num_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ -= num_bytes;
    try {
      free_.push_back(std::move(block));
    } catch (const std::bad_alloc&) {
      // Then the block is freed.
    }
  }

  std::mutex mutex_;
  std::vector<Buffer::Block> free_;
  int64_t in_use_ = 0, peak_ = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SCRATCH_POOL_H_
