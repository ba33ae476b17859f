// SPDX-License-Identifier: Apache-2.0
// Sorts the ids of a table into the runs of an update, in shares for several threads.
#ifndef TPU_ESTIMATOR_EMBEDDING_RUN_SORTER_H_
#define TPU_ESTIMATOR_EMBEDDING_RUN_SORTER_H_

#include <cstdint>
#include <vector>

#include "partition.h"
#include "scratch_pool.h"
#include "table_ids.h"

namespace tpu_estimator_embedding {

// The gradients that a run sums: those of all cores, or of a single core. In the latter case,
// row i of the table lives on core i mod N; its updates come from cores i mod N, i mod N + 1, ...
// around the ring.
struct Cores {
  std::vector<int64_t> row_ends;  // ends of each core's rows of activations; empty: one core
  const Partition* partition = nullptr;
  int part = 0;

  int64_t number() const { return row_ends.empty() ? 1 : static_cast<int64_t>(row_ends.size()); }
};

// A share is a range of ids. The runs do not depend on the number of shares; the order of the
// gradients within a run is that of the rows of activations.
// Call each step once for every i below num_shares(), from any thread, after the previous step is
// complete: Count, Scatter, Sort, and CopyRuns. Count and Scatter process one part of the ids each,
// and Sort one share, so that the work per thread falls with the number of threads. A single share
// needs neither Count nor Scatter.
template <class Id>
class RunSorter {
 public:
  // `most` is the maximum number of shares; frequent ids may reduce it.
  RunSorter(const TableIds<Id>& table, const Cores& cores, int64_t most, ScratchPool* scratch);

  int64_t num_shares() const { return static_cast<int64_t>(last_ids_.size()) + 1; }
  bool is_shared() const { return num_shares() > 1; }

  // Finds the share of every id of part i, and counts the ids of each share.
  void Count(int64_t i);
  // Computes the range of every share. Call it once, between Count and Scatter.
  void ComputeRanges();
  // Moves the ids of part i to their shares.
  void Scatter(int64_t i);
  // Fills the runs of share i, at the positions of its ids among all sorted ids.
  void Sort(int64_t i);

  int64_t num_runs() const;
  // Copies the runs of share i, so that the runs of all shares are contiguous.
  void CopyRuns(int64_t i, Id* run_ids, int32_t* run_ends) const;

 private:
  void AllocateEntries();
  // Calls work(number) with a number of the entries' type.
  template <class Work>
  auto WithWord(const Work& work) const;
  // Creates the entries of the ids from `begin` to `end`; the entry of id i is at place(i, key).
  template <class Word, class Place>
  void MakeEntries(int64_t begin, int64_t end, const Place& place);
  // Sorts all rows by their id, if each has one: the row tells the id, so that entries need not keep
  // the digit that they are created in the order of. Shorter entries take less time.
  template <class Word>
  const Word* SortRows();
  // Sorts the entries of a share, which it creates if there is only one share.
  template <class Word>
  const Word* SortEntries(int64_t first, int64_t size);

  int64_t PartBegin(int64_t i) const { return table_.num_ids * i / num_shares(); }
  int64_t ShareBegin(int64_t i) const { return i == 0 ? 0 : share_ends_[i - 1]; }

  const TableIds<Id> table_;
  const Cores cores_;
  ScratchPool* const scratch_;
  int key_bits_ = 0, place_bits_ = 0;  // of an entry
  bool has_one_id_each_ = false;       // so that `SortRows` may sort

  std::vector<int64_t> last_ids_;    // of every share but the last
  std::vector<int64_t> counts_;      // [part, share]; later each part's next position in a share
  std::vector<int64_t> share_ends_;  // among all ids
  std::vector<int64_t> run_counts_;  // of each share
  ScratchPool::Buffer shares_;       // of each id
  ScratchPool::Buffer entries_;      // two buffers: each pass sorts from one to the other
  ScratchPool::Buffer rows_;         // of each id that has a weight
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RUN_SORTER_H_
