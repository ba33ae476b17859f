// SPDX-License-Identifier: Apache-2.0
// Distributes work over threads, without TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
#define TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>

namespace tpu_estimator_embedding {

// The shared state of the threads.
struct Progress {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::atomic<bool> is_out_of_memory{false};
  std::mutex mutex;
  std::condition_variable is_done;
};

// Calls work(i) once for every i below `count`, on up to `num_threads` threads; a thread takes the
// next i when it is done with one. `schedule(closure)` runs a closure in another thread. The caller
// works too, so that it never waits for a thread that is busy elsewhere: a late thread finds no
// work left and touches nothing.
//
// Returns false if any work ran out of memory: an exception that left a pool's thread would end
// the process.
template <class Schedule, class Work>
bool ShareWork(int64_t num_threads, int64_t count, const Schedule& schedule, const Work& work) {
  const auto progress = std::make_shared<Progress>();
  const auto take_part = [progress, count, &work] {
    for (int64_t i = progress->next++; i < count; i = progress->next++) {
      try {
        work(i);
      } catch (const std::bad_alloc&) {
        progress->is_out_of_memory = true;
      }
      if (++progress->done == count) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        progress->is_done.notify_one();
      }
    }
  };
  try {
    for (int64_t i = 1; i < num_threads && i < count; ++i) schedule(take_part);
  } catch (const std::bad_alloc&) {
    // Scheduled closures refer to `work`: continue with them, and wait as usual.
  }
  take_part();
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->is_done.wait(lock, [&] { return progress->done == count; });
  return !progress->is_out_of_memory;
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
