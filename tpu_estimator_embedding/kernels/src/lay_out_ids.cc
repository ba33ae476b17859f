// SPDX-License-Identifier: Apache-2.0
#include "lay_out_ids.h"

#include "row_reader.h"
#include "whole_shares.h"

namespace tpu_estimator_embedding {
namespace {

// Calls append(row of the table, weight) for the ids from `begin` to `end` that are not negative.
template <class Integer, class Append>
RowWeights ForEachKept(const Integer* ids, const float* weights, int64_t begin, int64_t end,
                       const RowMap& map, const Append& append) {
  if (weights == nullptr) {
    int64_t kept = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (ids[i] < 0) continue;
      append(map.Row(ids[i]), 1.0f);
      ++kept;
    }
    return RowWeights::OfCount(kept);
  }
  RowWeights total;
  for (int64_t i = begin; i < end; ++i) {
    if (ids[i] < 0) continue;
    append(map.Row(ids[i]), weights[i]);
    total.Add(weights[i]);
  }
  return total;
}

// Collects the ids of a table on one host.
template <class Id>
class OneHost {
 public:
  explicit OneHost(const TableIds<Id>& part) : part_(part) {}

  template <class Integer>
  RowWeights AppendRow(const Integer* ids, const float* weights, int64_t begin, int64_t end,
                       const RowMap& map) {
    Id* to = part_.ids + count_;
    float* weight_to = part_.weights == nullptr ? nullptr : part_.weights + count_;
    int32_t count = 0;  // local, because GCC assumes that stores may change a member
    const RowWeights total = ForEachKept(ids, weights, begin, end, map, [&](int64_t id, float weight) {
      to[count] = static_cast<Id>(id);
      if (weight_to != nullptr) weight_to[count] = weight;
      ++count;
    });
    count_ += count;
    part_.row_ends[row_++] = count_;
    return total;
  }

 private:
  const TableIds<Id> part_;
  int32_t count_ = 0;
  int64_t row_ = 0;
};

// Distributes the ids of a table over its hosts.
template <class Id>
class SeveralHosts {
 public:
  SeveralHosts(const std::vector<TableIds<Id>>& parts, const Partition& partition)
      : parts_(parts), partition_(partition), counts_(parts.size(), 0) {}

  template <class Integer>
  RowWeights AppendRow(const Integer* ids, const float* weights, int64_t begin, int64_t end,
                       const RowMap& map) {
    const RowWeights total = ForEachKept(ids, weights, begin, end, map, [&](int64_t id, float weight) {
      const int part = partition_.Part(id);
      const int32_t place = counts_[part]++;
      parts_[part].ids[place] = static_cast<Id>(partition_.Row(id, part));
      if (parts_[part].weights != nullptr) parts_[part].weights[place] = weight;
    });
    for (size_t part = 0; part < parts_.size(); ++part) {
      parts_[part].row_ends[row_] = counts_[part];
    }
    ++row_;
    return total;
  }

 private:
  const std::vector<TableIds<Id>>& parts_;
  const Partition partition_;
  std::vector<int32_t> counts_;
  int64_t row_ = 0;
};

class Counter {
 public:
  explicit Counter(const Partition& partition)
      : partition_(partition), counts_(partition.num_parts(), 0) {}

  template <class Integer>
  RowWeights AppendRow(const Integer* ids, const float* weights, int64_t begin, int64_t end,
                       const RowMap& map) {
    return ForEachKept(ids, weights, begin, end, map, [&](int64_t id, float) {
      ++counts_[counts_.size() == 1 ? 0 : partition_.Part(id)];
    });
  }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  const Partition partition_;
  std::vector<int64_t> counts_;
};

template <class Integer, class Sink>
float* LayOutShare(const Share& share, const Integer* ids, Sink* sink, float* scales) {
  const FeaturePlan plan = *share.plan;  // local, because stores could change it
  RowReader reader(plan, *share.ids);
  const int64_t num_rows = share.num_rows();
  for (int64_t row = 0; row < num_rows; ++row) {
    int64_t begin = 0, end = 0;
    reader.Next(&begin, &end);
    const RowWeights weights =
        sink->AppendRow(ids, share.ids->weights, begin, end, plan.row_map);
    if (scales != nullptr) *scales++ = Scale(plan.combiner, weights);
  }
  return scales;
}

template <class Sink>
void LayOut(const std::vector<Share>& shares, Sink* sink, float* scales) {
  for (const Share& share : shares) {
    scales = Visit(share.ids->ids,
                   [&](const auto* ids) { return LayOutShare(share, ids, sink, scales); });
  }
}

}  // namespace

std::vector<int64_t> CountIds(const std::vector<Share>& shares, const Partition& partition) {
  Counter counter(partition);
  LayOut(shares, &counter, nullptr);
  return counter.counts();
}

template <class Id>
void LayOutIds(const std::vector<Share>& shares, const Partition& partition,
               const std::vector<TableIds<Id>>& parts, float* scales, bool keeps_every_id) {
  if (keeps_every_id) {
    WholeShares<Id> whole(parts[0], scales);
    for (const Share& share : shares) whole.Append(share);
  } else if (parts.size() == 1) {
    OneHost<Id> host(parts[0]);
    LayOut(shares, &host, scales);
  } else {
    SeveralHosts<Id> hosts(parts, partition);
    LayOut(shares, &hosts, scales);
  }
}

template void LayOutIds(const std::vector<Share>&, const Partition&,
                        const std::vector<TableIds<int32_t>>&, float*, bool);
template void LayOutIds(const std::vector<Share>&, const Partition&,
                        const std::vector<TableIds<int64_t>>&, float*, bool);

}  // namespace tpu_estimator_embedding
