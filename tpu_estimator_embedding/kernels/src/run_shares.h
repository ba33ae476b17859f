// SPDX-License-Identifier: Apache-2.0
// Cuts the sorting of a table's ids into shares for several threads.
#ifndef TPU_ESTIMATOR_EMBEDDING_RUN_SHARES_H_
#define TPU_ESTIMATOR_EMBEDDING_RUN_SHARES_H_

#include <algorithm>
#include <vector>

#include "sort_runs.h"

namespace tpu_estimator_embedding {

// Every share sorts a range of ids. What the runs are does not depend on how many there are.
template <class Id>
class RunShares {
 public:
  // `most` is how many shares there may be; an id that comes often may leave less to share.
  RunShares(TableIds<Id>* table, const Cores& cores, int64_t most)
      : table_(table), cores_(cores), ends_(Ends(*table, most)), runs_(ends_.size()) {}

  int64_t count() const { return ends_.size(); }

  void Sort(int64_t i) {
    runs_[i] = SortRuns(*table_, cores_, {i == 0 ? 0 : ends_[i - 1], ends_[i]});
  }

  // Moves the runs of all shares together, and says in the table how many they are.
  void Join() const {
    table_->num_runs = 0;
    for (const Runs& runs : runs_) {
      MoveDown(runs, table_->run_ids);
      MoveDown(runs, table_->run_ends);
      table_->num_runs += runs.count;
    }
  }

 private:
  // Both places may overlap, which std::copy allows where it copies to a lower one.
  template <class T>
  void MoveDown(const Runs& runs, T* all) const {
    if (runs.begin == table_->num_runs) return;
    std::copy(all + runs.begin, all + runs.begin + runs.count, all + table_->num_runs);
  }

  // Where the ranges end: between as many of some ids, taken at regular distances.
  static std::vector<int64_t> Ends(const TableIds<Id>& table, int64_t most) {
    constexpr int64_t kSamples = 64;  // for each share
    std::vector<int64_t> ends, samples;
    const int64_t distance = table.num_ids / (most * kSamples) + 1;
    for (int64_t i = 0; most > 1 && i < table.num_ids; i += distance) {
      samples.push_back(table.ids[i]);
    }
    std::sort(samples.begin(), samples.end());
    const int64_t size = samples.size();
    for (int64_t i = 1; size > 0 && i < most; ++i) ends.push_back(samples[size * i / most]);
    ends.push_back(table.num_table_rows);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    return ends;
  }

  TableIds<Id>* table_;
  Cores cores_;
  std::vector<int64_t> ends_;
  std::vector<Runs> runs_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RUN_SHARES_H_
