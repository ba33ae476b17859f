// SPDX-License-Identifier: Apache-2.0
// How much work the sorting of ids is for each of many threads, what one thread makes of them, and
// that it survives every place where memory can run out. The unit is included to be compiled for
// ids that count.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "from_threads.h"
#include "run_sorter.cc"

namespace {

int64_t num_read = 0, num_sorted = 0;
int64_t allocations_left = -1;  // until one fails; negative: none does
std::atomic<int64_t> num_failed{0};

}  // namespace

void* operator new(std::size_t size) {
  static std::mutex mutex;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (allocations_left == 0) {
      ++num_failed;
      throw std::bad_alloc();
    }
    if (allocations_left > 0) --allocations_left;
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tpu_estimator_embedding {
namespace {

// An id that counts how often it is read, and written when entries become runs.
class CountedId {
 public:
  CountedId() = default;
  explicit CountedId(int64_t id) : id_(id) { ++num_sorted; }
  operator int64_t() const {
    ++num_read;
    return id_;
  }

 private:
  int64_t id_ = 0;
};

// The ids of a table, one for each row of activations; some come often, as in click logs.
template <class Id>
struct Ids {
  std::vector<Id> ids, run_ids;
  std::vector<int32_t> row_ends, run_ends, run_rows;
  std::vector<float> weights, run_weights;
  TableIds<Id> table;

  Ids(int64_t count, int64_t num_table_rows, bool is_weighted)
      : run_ids(count), row_ends(count), run_ends(count), run_rows(count) {
    std::mt19937 engine(7);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int64_t i = 0; i < count; ++i) {
      const double skewed = uniform(engine) * uniform(engine) * uniform(engine);
      ids.push_back(Id(static_cast<int64_t>(skewed * num_table_rows)));
    }
    std::iota(row_ends.begin(), row_ends.end(), 1);
    table.num_table_rows = num_table_rows;
    table.num_ids = table.num_rows = count;
    table.ids = ids.data();
    table.row_ends = row_ends.data();
    table.run_ids = run_ids.data();
    table.run_ends = run_ends.data();
    table.run_rows = run_rows.data();
    if (!is_weighted) return;
    weights.resize(count);
    run_weights.resize(count);
    table.weights = weights.data();
    table.run_weights = run_weights.data();
  }
};

// Makes tasks on threads that do not exist: each goes to the one that has done least. Returns what
// the one that did most has done.
template <class Work>
int64_t MostOf(int num_threads, int64_t count, const int64_t& done, const Work& work) {
  std::vector<int64_t> loads(num_threads);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t before = done;
    work(i);
    *std::min_element(loads.begin(), loads.end()) += done - before;
  }
  return *std::max_element(loads.begin(), loads.end());
}

void CountWork(int num_threads) {
  constexpr int64_t kIds = 1 << 20, kTableRows = 1 << 22;
  static Ids<CountedId> ids(kIds, kTableRows, false);
  ScratchPool scratch;
  num_read = 0;
  RunSorter<CountedId> sorter(ids.table, Cores(), 2 * num_threads, &scratch);
  const int64_t shares = sorter.num_shares(), alone = num_read;
  const int64_t counted =
      MostOf(num_threads, shares, num_read, [&](int64_t i) { sorter.Count(i); });
  sorter.ComputeRanges();
  const int64_t scattered =
      MostOf(num_threads, shares, num_read, [&](int64_t i) { sorter.Scatter(i); });
  const int64_t sorted =
      MostOf(num_threads, shares, num_sorted, [&](int64_t i) { sorter.Sort(i); });
  std::printf("%d %lld %lld\n", num_threads, static_cast<long long>(alone + counted + scattered),
              static_cast<long long>(sorted));
}

std::vector<int32_t> Sorted(Ids<int32_t>* ids, ScratchPool* scratch) {
  constexpr int kThreads = 4;
  RunSorter<int32_t> sorter(ids->table, Cores(), kThreads, scratch);
  const int64_t shares = sorter.num_shares();
  FromThreads(kThreads, shares, [&](int64_t i) { sorter.Count(i); });
  sorter.ComputeRanges();
  FromThreads(kThreads, shares, [&](int64_t i) { sorter.Scatter(i); });
  FromThreads(kThreads, shares, [&](int64_t i) { sorter.Sort(i); });
  std::vector<int32_t> run_ids(sorter.num_runs()), run_ends(run_ids.size());
  FromThreads(kThreads, shares,
              [&](int64_t i) { sorter.CopyRuns(i, run_ids.data(), run_ends.data()); });
  run_ids.insert(run_ids.end(), run_ends.begin(), run_ends.end());
  run_ids.insert(run_ids.end(), ids->run_rows.begin(), ids->run_rows.end());
  return run_ids;
}

// Whether one thread makes the runs that sorting ids and places tells.
template <class Id>
bool IsSortedAlone(Ids<Id>* ids) {
  const TableIds<Id>& table = ids->table;
  ScratchPool scratch;
  RunSorter<Id> sorter(table, Cores(), 1, &scratch);
  sorter.Sort(0);
  std::vector<int32_t> order(table.num_ids), rows;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return ids->ids[a] != ids->ids[b] ? ids->ids[a] < ids->ids[b] : a < b;
  });
  int64_t run = -1;
  for (int64_t i = 0; i < table.num_ids; ++i) {
    const Id id = ids->ids[order[i]];
    if (i == 0 || id != ids->ids[order[i - 1]]) ++run;
    const auto row = std::upper_bound(ids->row_ends.begin(), ids->row_ends.end(), order[i]);
    rows.push_back(static_cast<int32_t>(row - ids->row_ends.begin()));
    const bool is_last = i + 1 == table.num_ids || id != ids->ids[order[i + 1]];
    if (ids->run_ids[run] != id || (is_last && ids->run_ends[run] != i + 1)) return false;
  }
  return sorter.num_runs() == run + 1 && ids->run_rows == rows;
}

// Prints the numbers of ids and of rows of the table where `IsSortedAlone` is false. Keys have one
// digit or several, and entries up to 128 bits; a row has one id, or two and the next one none.
template <class Id>
void SortAlone(int most_bits) {
  int num_cases = 0;
  for (const int64_t count : {1, 63, 64, 65, 300, 5000}) {
    for (int bits = 0; bits <= most_bits; bits += bits < 24 ? 1 : 5) {
      for (const bool has_one_each : {true, false}) {
        Ids<Id> ids(count, int64_t{1} << bits, false);
        if (!has_one_each) ids.row_ends[0] = ids.row_ends[count > 1];
        ++num_cases;
        if (!IsSortedAlone(&ids)) {
          std::printf("%lld ids of 2^%d, %d\n", static_cast<long long>(count), bits, has_one_each);
        }
      }
    }
  }
  std::printf("%d cases\n", num_cases);
}

// Lets every single allocation fail, the first, the second and so on.
int FailAllocations() {
  Ids<int32_t> ids(3000, 5000, true);
  ScratchPool never_failed;
  const std::vector<int32_t> wanted = Sorted(&ids, &never_failed);
  int64_t count = 0;
  for (bool is_done = false; !is_done; ++count) {
    ScratchPool scratch;
    num_failed = 0;
    allocations_left = count;
    try {
      Sorted(&ids, &scratch);
    } catch (const std::bad_alloc&) {
    }
    is_done = num_failed == 0;
    allocations_left = -1;
    if (Sorted(&ids, &scratch) != wanted) return 1;
  }
  std::printf("%lld allocations failed\n", static_cast<long long>(count - 1));
  return 0;
}

// Prints what becomes of exceptions of work, on as many threads as given and on those that cannot be
// started.
void Throw(int num_threads, bool is_started) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> num_calls{0};
  const auto schedule = [&](std::function<void()> closure) {
    if (!is_started) throw std::runtime_error("no thread");
    threads.emplace_back(std::move(closure));
  };
  const Failure failure = ShareWork(num_threads, 100, schedule, [&](int64_t i) {
    ++num_calls;
    if (i % 2 == 1) throw std::out_of_range("odd");
  });
  for (std::thread& thread : threads) thread.join();
  std::printf("%s after %lld\n", failure.message, static_cast<long long>(num_calls));
}

// Large steps leave nothing behind once small ones follow.
void ShowScratch() {
  ScratchPool scratch;
  for (const int64_t count : {1 << 10, 1 << 16, 1 << 10, 1 << 10}) {
    Ids<int32_t> ids(count, 5000, true);
    Sorted(&ids, &scratch);
    scratch.Trim();
    std::printf("%lld %lld\n", static_cast<long long>(count),
                static_cast<long long>(scratch.num_free_bytes()));
  }
}

}  // namespace
}  // namespace tpu_estimator_embedding

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "memory") return tpu_estimator_embedding::FailAllocations();
  if (what == "exceptions") {
    for (int threads : {1, 4}) tpu_estimator_embedding::Throw(threads, true);
    tpu_estimator_embedding::Throw(4, false);
  }
  if (what == "alone") {
    tpu_estimator_embedding::SortAlone<int32_t>(30);
    tpu_estimator_embedding::SortAlone<int64_t>(62);
  }
  if (what == "scratch") tpu_estimator_embedding::ShowScratch();
  if (what == "work") {
    for (int threads = 1; threads <= 64; threads *= 2) tpu_estimator_embedding::CountWork(threads);
  }
  return 0;
}
