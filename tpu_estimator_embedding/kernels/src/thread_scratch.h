// SPDX-License-Identifier: Apache-2.0
// Memory that a thread keeps from one step to the next.
#ifndef TPU_ESTIMATOR_EMBEDDING_THREAD_SCRATCH_H_
#define TPU_ESTIMATOR_EMBEDDING_THREAD_SCRATCH_H_

#include <cstdint>
#include <memory>

namespace tpu_estimator_embedding {

// Returns room for `size` Ts, with anything in it, until the thread asks for Ts again. Were it
// freed after every step, the C library would give it back to the system, which clears every page
// before it hands it out anew.
template <class T>
T* ThreadScratch(int64_t size) {
  thread_local std::unique_ptr<T[]> room;
  thread_local int64_t size_of_room = 0;
  if (size > size_of_room) {
    room.reset(new T[size]);
    size_of_room = size;
  }
  return room.get();
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_THREAD_SCRATCH_H_
