// SPDX-License-Identifier: Apache-2.0
// Distributes work over threads, without TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
#define TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

namespace tpu_estimator_embedding {

// An exception, by its kind and text. It has a fixed size, as there may be no memory for more. Unlike
// std::exception_ptr, it needs no symbols that the C++ libraries of older systems lack.
struct Failure {
  enum class Kind { kNone, kOutOfMemory, kOther };
  Kind kind = Kind::kNone;
  char message[512] = "";

  explicit operator bool() const { return kind != Kind::kNone; }
};

// Describes the exception that the calling handler has caught.
inline Failure CaughtFailure() noexcept {
  Failure failure;
  failure.kind = Failure::Kind::kOther;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    failure.kind = Failure::Kind::kOutOfMemory;
  } catch (const std::length_error&) {  // thrown by a vector before it allocates
    failure.kind = Failure::Kind::kOutOfMemory;
  } catch (const std::exception& error) {
    std::snprintf(failure.message, sizeof(failure.message), "%s", error.what());
  } catch (...) {
    std::snprintf(failure.message, sizeof(failure.message), "an exception of an unknown type");
  }
  return failure;
}

// std::condition_variable without its wait(), which older C++ libraries have in another version.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  ~Condition() { pthread_cond_destroy(&condition_); }

  void Wait(std::unique_lock<std::mutex>* lock) {
    pthread_cond_wait(&condition_, lock->mutex()->native_handle());
  }
  void NotifyOne() { pthread_cond_signal(&condition_); }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// The shared state of the threads.
struct Progress {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  Condition is_done;
  Failure failure;  // the first one
};

// Calls work(i) for every i below `count` on the calling thread; returns the first failure.
template <class Work>
Failure WorkAlone(int64_t count, const Work& work) {
  Failure failure;
  for (int64_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (...) {
      if (!failure) failure = CaughtFailure();
    }
  }
  return failure;
}

// Waits a little without sleeping: a thread that is woken up is late by more than the rest of a
// share of work takes. Returns whether all work is done.
inline bool IsSoonDone(const Progress& progress, int64_t count) {
  constexpr int kMostLooks = 400;  // 5 to 25 microseconds
  for (int i = 0; i < kMostLooks; ++i) {
    if (progress.done == count) return true;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  return false;
}

// Calls work(i) once for every i below `count`, on up to `num_threads` threads; a thread takes the
// next i when it is done with one. `schedule(closure)` runs a closure in another thread. The caller
// works too, so that it never waits for a thread that is busy elsewhere: a late thread finds no
// work left and touches nothing.
//
// Returns the first failure of any work: an exception that left a pool's thread would end the
// process.
template <class Schedule, class Work>
Failure ShareWork(int64_t num_threads, int64_t count, const Schedule& schedule, const Work& work) {
  if (num_threads <= 1 || count <= 1) return WorkAlone(count, work);
  const auto progress = std::make_shared<Progress>();
  const auto take_part = [progress, count, &work] {
    for (int64_t i = progress->next++; i < count; i = progress->next++) {
      try {
        work(i);
      } catch (...) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        if (!progress->failure) progress->failure = CaughtFailure();
      }
      if (++progress->done == count) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        progress->is_done.NotifyOne();
      }
    }
  };
  try {
    for (int64_t i = 1; i < num_threads && i < count; ++i) schedule(take_part);
  } catch (...) {
    // Scheduled closures refer to `work`: continue with them, and wait as usual.
  }
  take_part();
  if (IsSoonDone(*progress, count)) return progress->failure;
  std::unique_lock<std::mutex> lock(progress->mutex);
  while (progress->done < count) progress->is_done.Wait(&lock);
  return progress->failure;
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
