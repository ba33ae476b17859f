// SPDX-License-Identifier: Apache-2.0
// Sorts the ids of all tables of a step at the same time.
#ifndef TPU_ESTIMATOR_EMBEDDING_SORTED_TABLES_H_
#define TPU_ESTIMATOR_EMBEDDING_SORTED_TABLES_H_

#include <algorithm>
#include <deque>
#include <vector>

#include "lay_out_ids.h"
#include "parallel_for.h"
#include "run_sorter.h"

namespace tpu_estimator_embedding {

template <class Id>
class SortedTables {
 public:
  SortedTables(tensorflow::OpKernelContext* context, ScratchPool* scratch)
      : context_(context), scratch_(scratch) {}

  // Adds a table of a step with `num_ids_of_step` ids in total. Add the largest table first.
  void Add(TableIds<Id>* table, const Cores& cores, int64_t num_ids_of_step) {
    constexpr int64_t kFewIds = 1 << 15;  // fewer are not worth splitting
    const int64_t ids_of_share =
        std::max(kFewIds, num_ids_of_step / (2 * NumThreads(context_)));
    const int64_t most = std::max<int64_t>(1, table->num_ids / ids_of_share);
    tables_.push_back(table);
    num_ids_ += table->num_ids;
    sorters_.emplace_back(*table, cores, most, scratch_);
    for (int64_t i = 0; i < sorters_.back().num_shares(); ++i) {
      shares_.push_back({tables_.size() - 1, i});
      if (sorters_.back().is_shared()) shares_of_large_.push_back(shares_.back());
    }
  }

  // Sorts, and sets the number of runs in the tables.
  absl::Status Sort() {
    TF_RETURN_IF_ERROR(ForEach(shares_of_large_, [](auto& sorter, int64_t i) { sorter.Count(i); }));
    for (RunSorter<Id>& sorter : sorters_) {
      if (sorter.is_shared()) sorter.ComputeRanges();
    }
    TF_RETURN_IF_ERROR(
        ForEach(shares_of_large_, [](auto& sorter, int64_t i) { sorter.Scatter(i); }));
    TF_RETURN_IF_ERROR(ForEach(shares_, [](auto& sorter, int64_t i) { sorter.Sort(i); }));
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i]->num_runs = sorters_[i].num_runs();
    return absl::OkStatus();
  }

  // Copies the runs to the memory that the tables now point to.
  absl::Status CopyRuns() {
    const int num_threads = NumThreads(context_, kNanosecondsPerId * num_ids_);
    return ParallelFor(context_, num_threads, shares_.size(), [&](int64_t i) {
      const TableIds<Id>& table = *tables_[shares_[i].table];
      sorters_[shares_[i].table].CopyRuns(shares_[i].number, table.run_ids, table.run_ends);
    });
  }

 private:
  struct Share {
    size_t table;
    int64_t number;
  };

  template <class Work>
  absl::Status ForEach(const std::vector<Share>& shares, const Work& work) {
    constexpr int64_t kNanosecondsPerSortedId = 10;
    const int num_threads = NumThreads(context_, kNanosecondsPerSortedId * num_ids_);
    return ParallelFor(context_, num_threads, shares.size(), [&](int64_t i) {
      work(sorters_[shares[i].table], shares[i].number);
    });
  }

  tensorflow::OpKernelContext* const context_;
  ScratchPool* const scratch_;
  std::vector<TableIds<Id>*> tables_;
  int64_t num_ids_ = 0;
  std::deque<RunSorter<Id>> sorters_;  // a deque, because they must not move
  std::vector<Share> shares_, shares_of_large_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SORTED_TABLES_H_
