// SPDX-License-Identifier: Apache-2.0
// Shares work out to threads as the ops do, which have those of TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_TESTS_FROM_THREADS_H_
#define TPU_ESTIMATOR_EMBEDDING_TESTS_FROM_THREADS_H_

#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "share_work.h"

namespace tpu_estimator_embedding {

// Calls work(i) for every i below `count` from that many threads, as the ops do. Throws the first
// failure of any of them.
template <class Work>
void FromThreads(int num_threads, int64_t count, const Work& work) {
  std::vector<std::thread> threads;
  threads.reserve(num_threads);
  const auto schedule = [&](std::function<void()> closure) {
    threads.emplace_back(std::move(closure));
  };
  const Failure failure = ShareWork(num_threads, count, schedule, work);
  for (std::thread& thread : threads) thread.join();
  if (failure.kind == Failure::Kind::kOutOfMemory) throw std::bad_alloc();
  if (failure) throw std::runtime_error(failure.message);
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_TESTS_FROM_THREADS_H_
