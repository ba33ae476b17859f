// SPDX-License-Identifier: Apache-2.0
// Shares work out to the threads of an op.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_
#define TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

inline int NumThreads(tensorflow::OpKernelContext* context) {
  return std::max(1, context->device()->tensorflow_cpu_worker_threads()->num_threads);
}

// What the threads that share some work know of one another.
struct Progress {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable is_done;
};

// Calls work(i) for every i below `count`, each once, from as many threads as the op has; a
// thread that is done with one takes the next. The caller works too, so that it waits for no
// thread that is busy elsewhere: one that comes late finds nothing left and touches nothing.
template <class Work>
void ParallelFor(tensorflow::OpKernelContext* context, int64_t count, const Work& work) {
  const auto progress = std::make_shared<Progress>();
  const auto take_part = [progress, count, &work] {
    for (int64_t i = progress->next++; i < count; i = progress->next++) {
      work(i);
      if (++progress->done == count) {
        std::lock_guard<std::mutex> lock(progress->mutex);
        progress->is_done.notify_one();
      }
    }
  };
  auto* threads = context->device()->tensorflow_cpu_worker_threads()->workers;
  const int64_t num_threads = std::min<int64_t>(NumThreads(context), count);
  for (int64_t i = 1; i < num_threads; ++i) threads->Schedule(take_part);
  take_part();
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->is_done.wait(lock, [&] { return progress->done == count; });
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_
