// SPDX-License-Identifier: Apache-2.0
// The assignment of rows of a table to hosts.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARTITION_H_
#define TPU_ESTIMATOR_EMBEDDING_PARTITION_H_

#include <algorithm>
#include <cstdint>

namespace tpu_estimator_embedding {

enum class Strategy { kDiv, kMod };

// A table split into parts whose sizes differ by at most one. `kDiv` keeps consecutive ids
// together, `kMod` assigns ids round-robin. Hosts beyond the vocabulary hold no part.
class Partition {
 public:
  Partition(int64_t vocabulary_size, int64_t num_hosts, Strategy strategy)
      : num_parts_(std::min(vocabulary_size, num_hosts)),
        quotient_(vocabulary_size / num_parts_),
        remainder_(vocabulary_size % num_parts_),
        boundary_(remainder_ * (quotient_ + 1)),
        strategy_(strategy) {}

  int num_parts() const { return static_cast<int>(num_parts_); }
  int64_t num_rows(int part) const { return quotient_ + (part < remainder_ ? 1 : 0); }

  int Part(int64_t id) const {
    if (strategy_ == Strategy::kMod) return static_cast<int>(id % num_parts_);
    return static_cast<int>(id < boundary_ ? id / (quotient_ + 1)
                                           : remainder_ + (id - boundary_) / quotient_);
  }

  int64_t Row(int64_t id, int part) const {
    return strategy_ == Strategy::kMod ? id / num_parts_ : id - FirstId(part);
  }

  int64_t Id(int64_t row, int part) const {
    return strategy_ == Strategy::kMod ? row * num_parts_ + part : row + FirstId(part);
  }

 private:
  int64_t FirstId(int64_t part) const { return part * quotient_ + std::min(part, remainder_); }

  int64_t num_parts_, quotient_, remainder_, boundary_;  // boundary: ids in the longer parts
  Strategy strategy_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARTITION_H_
