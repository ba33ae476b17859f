// SPDX-License-Identifier: Apache-2.0
// The lookup and the Adagrad update of a step and nothing else: ids are given sorted and checked,
// for one pattern of tables, and nothing is a tensor. Unlike the accesses of memory_bound.cc, every
// id adds a row to an activation and a gradient to a row. A share of its speed is what the kernels
// lose to preparing ids, to TensorFlow and to being general.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kAhead = 32;         // rows that are prefetched
constexpr int64_t kPiece = 1024;       // activations, or runs, that a thread takes at once
constexpr float kLearningRate = 0.05f;

struct Step {
  const int64_t* ids;           // `[num_ids]`, rows in the order of activations
  const int64_t* ends;          // `[num_activations]`, of each in `ids`
  const int64_t* runs;          // `[num_runs]`, distinct rows in order of memory
  const int64_t* run_ends;      // `[num_runs]`, of each in `activations`
  const int64_t* activations;   // `[num_ids]`, whose gradients the rows of runs get
  int64_t num_ids, num_activations, num_runs;
};

struct Memory {
  float *rows, *slots, *activations;
  const float* gradients;
};

template <int kDim>
void Prefetch(const float* row) {
  for (int i = 0; i < kDim; i += 16) __builtin_prefetch(row + i, 0, 2);
}

template <int kDim>
void LookUp(const Memory& memory, const Step& step, int64_t begin, int64_t end) {
  int64_t id = begin == 0 ? 0 : step.ends[begin - 1];
  for (int64_t i = begin; i < end; ++i) {
    float sum[kDim] = {};
    for (; id < step.ends[i]; ++id) {
      if (id + kAhead < step.num_ids) Prefetch<kDim>(memory.rows + step.ids[id + kAhead] * kDim);
      const float* row = memory.rows + step.ids[id] * kDim;
      for (int j = 0; j < kDim; ++j) sum[j] += row[j];
    }
    float* to = memory.activations + i * kDim;
    for (int j = 0; j < kDim; ++j) to[j] = sum[j];
  }
}

template <int kDim>
void Update(const Memory& memory, const Step& step, int64_t begin, int64_t end) {
  int64_t id = begin == 0 ? 0 : step.run_ends[begin - 1];
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < step.num_runs) {
      Prefetch<kDim>(memory.rows + step.runs[i + kAhead] * kDim);
      Prefetch<kDim>(memory.slots + step.runs[i + kAhead] * kDim);
    }
    float sum[kDim] = {};
    for (; id < step.run_ends[i]; ++id) {
      if (id + kAhead < step.num_ids) {
        Prefetch<kDim>(memory.gradients + step.activations[id + kAhead] * kDim);
      }
      const float* gradient = memory.gradients + step.activations[id] * kDim;
      for (int j = 0; j < kDim; ++j) sum[j] += gradient[j];
    }
    float* row = memory.rows + step.runs[i] * kDim;
    float* slot = memory.slots + step.runs[i] * kDim;
    for (int j = 0; j < kDim; ++j) {
      slot[j] += sum[j] * sum[j];
      row[j] -= kLearningRate * sum[j] / std::sqrt(slot[j]);
    }
  }
}

// What threads take pieces of, and where they meet.
struct Shared {
  explicit Shared(int64_t num_parts) : next(num_parts), done(num_parts) {}
  std::vector<std::atomic<int64_t>> next, done;
};

template <class Work>
void TakePieces(Shared* shared, int64_t part, int64_t count, const Work& work) {
  const int64_t pieces = (count + kPiece - 1) / kPiece;
  for (int64_t i = shared->next[part]++; i < pieces; i = shared->next[part]++) {
    work(i * kPiece, std::min(count, (i + 1) * kPiece));
    ++shared->done[part];
  }
  while (shared->done[part] < pieces) std::this_thread::yield();
}

template <int kDim>
void RunAll(const Memory& memory, const std::vector<Step>& steps, Shared* shared) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    TakePieces(shared, 2 * i, step.num_activations, [&](int64_t begin, int64_t end) {
      LookUp<kDim>(memory, step, begin, end);
    });
    TakePieces(shared, 2 * i + 1, step.num_runs, [&](int64_t begin, int64_t end) {
      Update<kDim>(memory, step, begin, end);
    });
  }
}

}  // namespace

// Returns the seconds that steps take, from step `first` of `num_distinct` on; -1 for a dimension
// that is not compiled.
extern "C" double RunSteps(const Step* distinct, int64_t num_distinct, int64_t first,
                           int64_t num_steps, float* rows, float* slots, float* activations,
                           const float* gradients, int64_t dim, int64_t num_threads) {
  const Memory memory{rows, slots, activations, gradients};
  const auto run = dim == 8 ? RunAll<8> : dim == 32 ? RunAll<32> : dim == 64 ? RunAll<64> : nullptr;
  if (run == nullptr) return -1;
  std::vector<Step> steps;
  for (int64_t i = 0; i < num_steps; ++i) steps.push_back(distinct[(first + i) % num_distinct]);
  Shared shared(2 * num_steps);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < num_threads; ++i) {
    threads.emplace_back([&] { run(memory, steps, &shared); });
  }
  run(memory, steps, &shared);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count();
}
