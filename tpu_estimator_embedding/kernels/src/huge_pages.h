// SPDX-License-Identifier: Apache-2.0
// Puts tables into huge pages, so that finding where a row lies costs no walk through page tables.
#ifndef TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_
#define TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_

#include <cstdint>
#include <mutex>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tpu_estimator_embedding {

// Asks Linux to move the memory into huge pages, now and not when it finds the time. It is a
// wish: where there are none, or the memory is too full or too small for them, nothing changes.
inline void MoveToHugePages(void* data, int64_t bytes) {
#ifdef __linux__
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers do not name
  const uintptr_t first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (first + bytes) / kHugePage * kHugePage;
  if (begin >= end) return;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
#endif
}

// Moves every buffer once; a variable has another one after a restore, or a copy.
class BuffersInHugePages {
 public:
  void Move(size_t i, void* data, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (moved_.size() <= i) moved_.resize(i + 1, nullptr);
    if (moved_[i] == data) return;
    moved_[i] = data;
    MoveToHugePages(data, bytes);
  }

 private:
  std::mutex mutex_;
  std::vector<void*> moved_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_
