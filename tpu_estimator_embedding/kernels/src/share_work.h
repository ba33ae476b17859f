// SPDX-License-Identifier: Apache-2.0
// Distributes work over threads, without TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
#define TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace tpu_estimator_embedding {

// The shared state of the threads.
struct Progress {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable is_done;
  std::exception_ptr error;  // the first one
};

// Calls work(i) once for every i below `count`, on up to `num_threads` threads; a thread takes the
// next i when it is done with one. `schedule(closure)` runs a closure in another thread. The caller
// works too, so that it never waits for a thread that is busy elsewhere: a late thread finds no
// work left and touches nothing.
//
// Returns the first exception of any work, null if there was none: one that left a pool's thread
// would end the process.
template <class Schedule, class Work>
std::exception_ptr ShareWork(int64_t num_threads, int64_t count, const Schedule& schedule, const Work& work) {
  const auto progress = std::make_shared<Progress>();
  const auto take_part = [progress, count, &work] {
    for (int64_t i = progress->next++; i < count; i = progress->next++) {
      try {
        work(i);
      } catch (...) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        if (progress->error == nullptr) progress->error = std::current_exception();
      }
      if (++progress->done == count) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        progress->is_done.notify_one();
      }
    }
  };
  try {
    for (int64_t i = 1; i < num_threads && i < count; ++i) schedule(take_part);
  } catch (...) {
    // Scheduled closures refer to `work`: continue with them, and wait as usual.
  }
  take_part();
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->is_done.wait(lock, [&] { return progress->done == count; });
  return progress->error;
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SHARE_WORK_H_
