// SPDX-License-Identifier: Apache-2.0
// Moves tables into huge pages, so that accessing a row needs no page table walk.
#ifndef TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_
#define TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tpu_estimator_embedding {

// Whether huge pages are enabled. The loader has checked the value.
inline bool AreHugePagesWanted() {
  static const char* const value = std::getenv("TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES");
  return value == nullptr || std::strcmp(value, "off") != 0;
}

// Asks Linux to move the memory into huge pages at once, not in the background. This is best
// effort: without huge pages, or without enough free memory, nothing changes.
inline void MoveToHugePages(uintptr_t begin, uintptr_t end) {
#ifdef __linux__
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers do not name
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
#endif
}

// Buffers that are moved piece by piece. Linux copies them, after compacting fragmented free
// memory, which can take some seconds per gigabyte: each step moves only a few pieces.
class BuffersInHugePages {
 public:
  struct Memory {
    const void* data = nullptr;
    int64_t bytes = 0;
  };

  // Sets the memory of buffer i to buffer(i) for every i below `count`. It changes after a restore
  // or a copy of the variable. Returns whether there are pieces to move.
  template <class Buffer>
  bool Note(size_t count, const Buffer& buffer) {
    std::lock_guard<std::mutex> lock(mutex_);
    noted_.resize(count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      const Memory memory = buffer(static_cast<int>(i));
      if (memory.data != noted_[i]) Divide(i, memory);
    }
    return !pieces_.empty();
  }

  // Moves pieces until time is up or none is left. Several threads may call it.
  void MoveSome() {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(50);
    Piece piece;
    while (Clock::now() < end && Take(&piece)) MoveToHugePages(piece.begin, piece.end);
  }

 private:
  static constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  static constexpr uintptr_t kPiece = 8 * kHugePage;

  struct Piece {
    size_t buffer;
    uintptr_t begin, end;
  };

  void Divide(size_t i, const Memory& memory) {
    noted_[i] = memory.data;
    pieces_.erase(std::remove_if(pieces_.begin(), pieces_.end(),
                                 [i](const Piece& piece) { return piece.buffer == i; }),
                  pieces_.end());
    const uintptr_t first = reinterpret_cast<uintptr_t>(memory.data), last = first + memory.bytes;
    const uintptr_t end = last / kHugePage * kHugePage;
    for (uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage; begin < end;
         begin += kPiece) {
      pieces_.push_back({i, begin, std::min(begin + kPiece, end)});
    }
  }

  bool Take(Piece* piece) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pieces_.empty()) return false;
    *piece = pieces_.back();
    pieces_.pop_back();
    return true;
  }

  std::mutex mutex_;
  std::vector<const void*> noted_;
  std::vector<Piece> pieces_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES_H_
