// SPDX-License-Identifier: Apache-2.0
// Distributes work over the threads of an op, and reports exceptions to TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_
#define TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "share_work.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

inline int NumThreads(tensorflow::OpKernelContext* context) {
  return std::max(1, context->device()->tensorflow_cpu_worker_threads()->num_threads);
}

// Returns how many threads to use for work that takes one thread about `nanoseconds`: each has as
// much to do as is worth waking one.
inline int NumThreads(tensorflow::OpKernelContext* context, int64_t nanoseconds) {
  constexpr int64_t kWorthOfThread = 30000;
  const int64_t worth = std::max<int64_t>(1, nanoseconds / kWorthOfThread);
  return static_cast<int>(std::min<int64_t>(NumThreads(context), worth));
}

inline absl::Status ToStatus(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::kNone:
      return absl::OkStatus();
    case Failure::Kind::kOutOfMemory:
      return absl::ResourceExhaustedError(
          "The memory ran out in an embedding op. Give smaller batches, or more memory.");
    case Failure::Kind::kOther:
      break;
  }
  return absl::InternalError(absl::StrCat("An embedding op failed: ", failure.message));
}

// Returns the status of `run()`, also for exceptions, which TensorFlow does not catch.
template <class Run>
absl::Status Guarded(const Run& run) {
  try {
    return run();
  } catch (...) {
    return ToStatus(CaughtFailure());
  }
}

// Calls work(i) once for every i below `count`, on up to `num_threads` threads of the op. Returns an
// error for the first exception.
template <class Work>
absl::Status ParallelFor(tensorflow::OpKernelContext* context, int num_threads, int64_t count,
                         const Work& work) {
  auto* threads = context->device()->tensorflow_cpu_worker_threads()->workers;
  const auto schedule = [threads](std::function<void()> closure) {
    threads->Schedule(std::move(closure));
  };
  return ToStatus(ShareWork(num_threads, count, schedule, work));
}

// The same on all threads of the op.
template <class Work>
absl::Status ParallelFor(tensorflow::OpKernelContext* context, int64_t count, const Work& work) {
  return ParallelFor(context, NumThreads(context), count, work);
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARALLEL_FOR_H_
