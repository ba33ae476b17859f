// SPDX-License-Identifier: Apache-2.0
// The memory traffic that no implementation of a step can avoid, and nothing else: every
// distinct row is read once for the lookup, in the order in which ids come; every distinct
// (row, slot) pair is read and written once for the update, in order of memory; ids,
// activations and gradients pass once.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kAhead = 32;  // rows that are prefetched

struct Step {
  const int64_t* met;     // distinct rows in the order of the lookup
  const int64_t* sorted;  // the same rows in order of memory
  int64_t count;
};

struct Memory {
  float* rows;
  float* slots;
  int64_t dim;
  float* written;       // the activations
  const float* read;    // gradients and ids
  int64_t num_written;  // floats
  int64_t num_read;
};

// How near rows are fetched ahead: GCC's numbers of the first and second level of the cache.
constexpr int kFirstLevel = 3, kSecondLevel = 2;

template <int kLevel>
void Prefetch(const float* row, int64_t dim) {
  for (int64_t i = 0; i < dim; i += 16) __builtin_prefetch(row + i, 0, kLevel);
}

template <int kLevel>
float ReadRows(const Memory& memory, const int64_t* rows, int64_t begin, int64_t end) {
  float sum[16] = {};
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) Prefetch<kLevel>(memory.rows + rows[i + kAhead] * memory.dim, memory.dim);
    const float* row = memory.rows + rows[i] * memory.dim;
    for (int64_t j = 0; j + 16 <= memory.dim; j += 16) {
      for (int64_t k = 0; k < 16; ++k) sum[k] += row[j + k];
    }
  }
  return sum[0] + sum[15];
}

template <int kLevel>
void UpdateRows(const Memory& memory, const int64_t* rows, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) {
      Prefetch<kLevel>(memory.rows + rows[i + kAhead] * memory.dim, memory.dim);
      Prefetch<kLevel>(memory.slots + rows[i + kAhead] * memory.dim, memory.dim);
    }
    float* row = memory.rows + rows[i] * memory.dim;
    float* slot = memory.slots + rows[i] * memory.dim;
    for (int64_t j = 0; j < memory.dim; ++j) {
      slot[j] += 1.0f;
      row[j] += slot[j];
    }
  }
}

float Stream(const Memory& memory, int64_t thread, int64_t num_threads) {
  std::fill(memory.written + memory.num_written * thread / num_threads,
            memory.written + memory.num_written * (thread + 1) / num_threads, 1.0f);
  float sum[16] = {};
  const int64_t end = memory.num_read * (thread + 1) / num_threads;
  for (int64_t i = memory.num_read * thread / num_threads; i + 16 <= end; i += 16) {
    for (int64_t k = 0; k < 16; ++k) sum[k] += memory.read[i + k];
  }
  return sum[0] + sum[15];
}

// Threads are made once and meet between the parts of a step, so that making them costs nothing.
class Barrier {
 public:
  explicit Barrier(int64_t num_threads) : num_threads_(num_threads) {}

  void Wait() {
    const int64_t round = round_.load();
    if (++waiting_ == num_threads_) {
      waiting_ = 0;
      ++round_;
      return;
    }
    while (round_.load() == round) std::this_thread::yield();
  }

 private:
  const int64_t num_threads_;
  std::atomic<int64_t> waiting_{0}, round_{0};
};

template <int kLevel>
float RunSteps(const Memory& memory, const std::vector<Step>& steps, int64_t thread,
               int64_t num_threads, Barrier* barrier) {
  float sum = 0;
  for (const Step& step : steps) {
    const int64_t begin = step.count * thread / num_threads;
    const int64_t end = step.count * (thread + 1) / num_threads;
    sum += ReadRows<kLevel>(memory, step.met, begin, end);
    sum += Stream(memory, thread, num_threads);
    barrier->Wait();
    UpdateRows<kLevel>(memory, step.sorted, begin, end);
    barrier->Wait();
  }
  return sum;
}

}  // namespace

// Returns the seconds that `num_steps` steps take, from step `first` of `num_distinct` on.
extern "C" double RunSteps(const int64_t* const* met, const int64_t* const* sorted,
                           const int64_t* counts, int64_t num_distinct, int64_t first,
                           int64_t num_steps, float* rows, float* slots, int64_t dim,
                           float* written, int64_t num_written, const float* read, int64_t num_read,
                           int64_t num_threads, int64_t is_first_level) {
  const Memory memory{rows, slots, dim, written, read, num_written, num_read};
  std::vector<Step> steps;
  for (int64_t number = first; number < first + num_steps; ++number) {
    const int64_t i = number % num_distinct;
    steps.push_back({met[i], sorted[i], counts[i]});
  }
  Barrier barrier(num_threads);
  std::vector<float> sums(num_threads * 16);  // a line of the cache for each
  const auto work = [&](int64_t thread) {
    const auto run = is_first_level ? RunSteps<kFirstLevel> : RunSteps<kSecondLevel>;
    sums[thread * 16] = run(memory, steps, thread, num_threads, &barrier);
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int64_t thread = 1; thread < num_threads; ++thread) threads.emplace_back(work, thread);
  work(0);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  written[0] = sums[0];  // so that no sum is left out
  return seconds.count();
}
