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

// Whose gradients a run sums: those of all cores, or of one core after another. In the latter
// case, row i of the table lives on core i mod N; its updates come from cores i mod N,
// i mod N + 1, ... around the ring.
struct Cores {
  std::vector<int64_t> row_ends;  // the rows of activations of each core end here; empty: as one
  const Partition* partition = nullptr;
  int part = 0;

  int64_t number() const { return row_ends.empty() ? 1 : static_cast<int64_t>(row_ends.size()); }
};

// A share is a range of ids. What the runs are does not depend on how many shares there are; the
// order of the gradients within a run is that of the rows of activations.
//
// Each step is to be called once for every i below num_shares(), from any threads, when the one
// before is complete: Count, Deal, Sort, and CopyRuns. Count and Deal look at one part of the ids
// each, and Sort at one share, so that the work of a thread falls as there are more of them. One
// share alone needs neither Count nor Deal.
template <class Id>
class RunSorter {
 public:
  // `most` is how many shares there may be; an id that comes often may leave less to share.
  RunSorter(const TableIds<Id>& table, const Cores& cores, int64_t most, ScratchPool* scratch);

  int64_t num_shares() const { return static_cast<int64_t>(last_ids_.size()) + 1; }
  bool is_shared() const { return num_shares() > 1; }

  // Finds the share of every id of part i, and counts them.
  void Count(int64_t i);
  // Makes room for every share. Call it once, between Count and Deal.
  void MakeRoom();
  // Moves what part i has of every share there.
  void Deal(int64_t i);
  // Fills the runs of share i, at the places of its ids among all that are sorted.
  void Sort(int64_t i);

  int64_t num_runs() const;
  // Copies the runs of share i to where those of all shares stand without gaps.
  void CopyRuns(int64_t i, Id* run_ids, int32_t* run_ends) const;

 private:
  void TakeRoom();
  // Calls work(a number) of the type that entries have.
  template <class Work>
  auto WithWord(const Work& work) const;
  // Makes the entries of the ids from `begin` to `end`, that of id i at place(i).
  template <class Word, class Place>
  void MakeEntries(int64_t begin, int64_t end, const Place& place);

  int64_t PartBegin(int64_t i) const { return table_.num_ids * i / num_shares(); }
  int64_t ShareBegin(int64_t i) const { return i == 0 ? 0 : share_ends_[i - 1]; }

  const TableIds<Id> table_;
  const Cores cores_;
  ScratchPool* const scratch_;
  int key_bits_ = 0, place_bits_ = 0;  // of an entry

  std::vector<int64_t> last_ids_;    // of every share but the last
  std::vector<int64_t> counts_;      // [part, share], then where each part goes on in a share
  std::vector<int64_t> share_ends_;  // among all ids
  std::vector<int64_t> run_counts_;  // of each share
  ScratchPool::Room shares_;         // of each id
  ScratchPool::Room entries_;        // room for two: each pass sorts from one to the other
  ScratchPool::Room rows_;           // of each id, where it has a weight
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RUN_SORTER_H_
