// SPDX-License-Identifier: Apache-2.0
// The variables of an op, all locked during the lifetime of this object.
#ifndef TPU_ESTIMATOR_EMBEDDING_LOCKED_VARIABLES_H_
#define TPU_ESTIMATOR_EMBEDDING_LOCKED_VARIABLES_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel_for.h"
#include "row_snapshots.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tpu_estimator_embedding {

enum class Access { kRead, kWrite };

// Locks are taken by increasing address of the mutex, each once, as everywhere in TensorFlow, to
// avoid deadlocks.
class LockedVariables {
 public:
  explicit LockedVariables(Access access) : access_(access) {}
  LockedVariables(const LockedVariables&) = delete;
  LockedVariables& operator=(const LockedVariables&) = delete;

  ~LockedVariables() {
    for (tensorflow::Var* variable : locked_) {
      access_ == Access::kRead ? variable->mu()->unlock_shared() : variable->mu()->unlock();
    }
  }

  // Finds and locks the variables of some inputs. Call it once.
  absl::Status Lock(tensorflow::OpKernelContext* context, const tensorflow::OpInputList& inputs) {
    return Lock(context, inputs, inputs, 0);
  }
  absl::Status Lock(tensorflow::OpKernelContext* context, const tensorflow::OpInputList& tables,
                    const tensorflow::OpInputList& slots, int num_slots) {
    const int count = tables.size() + num_slots;
    handles_.reserve(count);
    variables_.reserve(count);
    for (int i = 0; i < tables.size(); ++i) TF_RETURN_IF_ERROR(Find(context, tables[i]));
    for (int i = 0; i < num_slots; ++i) TF_RETURN_IF_ERROR(Find(context, slots[i]));
    LockInOrder();
    return CheckInitialized();
  }

  int size() const { return static_cast<int>(variables_.size()); }
  // The index of the first input with the same variable.
  int first(int i) const { return firsts_[i]; }
  const std::string& name(int i) const { return handles_[i]->name(); }
  const tensorflow::Tensor& tensor(int i) const { return *variables_[i]->tensor(); }
  template <class T = float>
  T* data(int i) {
    return variables_[i]->tensor()->template flat<T>().data();
  }

  // Returns an error unless variable i is float32 of the shape. Call it before `data`.
  absl::Status CheckShape(int i, int64_t rows, int64_t dim) const {
    const tensorflow::Tensor& tensor = *variables_[i]->tensor();
    if (tensor.dtype() == tensorflow::DT_FLOAT && tensor.dims() == 2 &&
        tensor.dim_size(0) == rows && tensor.dim_size(1) == dim) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("`", name(i), "` must be float32 of shape [", rows, ",", dim, "], got ",
                     tensorflow::DataTypeString(tensor.dtype()), " of shape ",
                     tensor.shape().DebugString(), "."));
  }

  // Returns an error unless variable i is a matrix of float32.
  absl::Status CheckIsTable(int i) const {
    const tensorflow::Tensor& tensor = *variables_[i]->tensor();
    if (tensor.dtype() == tensorflow::DT_FLOAT && tensor.dims() == 2) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "`", name(i), "` must be float32 of two dimensions, got ",
        tensorflow::DataTypeString(tensor.dtype()), " of shape ", tensor.shape().DebugString(),
        "."));
  }

  // Returns the value of variable i, which later updates do not change.
  absl::Status Share(tensorflow::OpKernelContext* context, int i, tensorflow::Tensor* value) {
    if (variables_[i]->copy_on_read_mode.load()) return Copy(context, tensor(i), value);
    *value = tensor(i);
    return absl::OkStatus();
  }

  tensorflow::core::RefCountPtr<tensorflow::Var> Reference(int i) const {
    variables_[i]->Ref();
    return tensorflow::core::RefCountPtr<tensorflow::Var>(variables_[i].get());
  }

  // Copies the buffers that others share: a value that was read, or the constant of the initializer.
  // In copy-on-read mode there is no sharing. Of a buffer that only a snapshot shares, the caller
  // keeps the rows that it writes: see `snapshot`.
  absl::Status CopyOnWrite(tensorflow::OpKernelContext* context) {
    for (size_t i = 0; i < variables_.size(); ++i) {
      tensorflow::Var* const variable = variables_[i].get();
      tensorflow::Tensor* value = variable->tensor();
      if (variable->copy_on_read_mode.load() || value->RefCountIsOne()) continue;
      SnapshotPart part = StepSnapshots::Get().Find(variable);
      if (part.rows != nullptr && part.rows->IsOnlyOtherOwner(*value)) {
        snapshots_.resize(variables_.size());
        snapshots_[i] = std::move(part);
        continue;
      }
      tensorflow::Tensor copy;
      TF_RETURN_IF_ERROR(Copy(context, *value, &copy));
      *value = copy;
    }
    return absl::OkStatus();
  }
  // Whether snapshots share buffers after `CopyOnWrite`; the one that shares that of variable i.
  bool has_snapshots() const { return !snapshots_.empty(); }
  const SnapshotPart& snapshot(int i) const { return snapshots_[i]; }

 private:
  static absl::Status Copy(tensorflow::OpKernelContext* context, const tensorflow::Tensor& from,
                           tensorflow::Tensor* to) {
    constexpr int64_t kBytesOfShare = 1 << 20, kBytesPerNanosecond = 4;
    TF_RETURN_IF_ERROR(context->allocate_temp(from.dtype(), from.shape(), to));
    const auto* const source = static_cast<const char*>(from.data());
    auto* const target = static_cast<char*>(to->data());
    const int64_t size = from.TotalBytes();
    const int num_threads = NumThreads(context, size / kBytesPerNanosecond);
    const int64_t num_shares = (size + kBytesOfShare - 1) / kBytesOfShare;
    return ParallelFor(context, num_threads, num_shares, [=](int64_t i) {
      const int64_t begin = i * kBytesOfShare;
      std::memcpy(target + begin, source + begin, std::min(kBytesOfShare, size - begin));
    });
  }

  void LockInOrder() {
    std::vector<int> order(size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](int a, int b) {
      tensorflow::Var *const x = variables_[a].get(), *const y = variables_[b].get();
      return x == y ? a < b : std::less<>()(x->mu(), y->mu());
    });
    firsts_.resize(size());
    locked_.reserve(size());  // nothing may throw between a lock and its entry here
    int first = -1;
    for (const int i : order) {
      tensorflow::Var* const variable = variables_[i].get();
      const bool is_new = first < 0 || variable != variables_[first].get();
      if (is_new) first = i;
      firsts_[i] = first;
      if (!is_new) continue;
      access_ == Access::kRead ? variable->mu()->lock_shared() : variable->mu()->lock();
      locked_.push_back(variable);
    }
  }

  absl::Status Find(tensorflow::OpKernelContext* context, const tensorflow::Tensor& input) {
    if (input.NumElements() != 1) {
      return absl::InvalidArgumentError("Handles of tables and slots must be scalars.");
    }
    const tensorflow::ResourceHandle& handle = input.flat<tensorflow::ResourceHandle>()(0);
    handles_.push_back(&handle);
    variables_.emplace_back();
    if (!tensorflow::LookupResource(context, handle, &variables_.back()).ok()) {
      return IsUninitialized(handle.name());
    }
    return absl::OkStatus();
  }

  absl::Status CheckInitialized() const {
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (!variables_[i]->is_initialized || !variables_[i]->tensor()->IsInitialized()) {
        return IsUninitialized(name(i));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status IsUninitialized(const std::string& name) {
    return absl::FailedPreconditionError(
        absl::StrCat("`", name,
                     "` must be initialized before it is looked up or updated. Run the "
                     "initializer of the variable, restore it, or load it."));
  }

  const Access access_;
  std::vector<const tensorflow::ResourceHandle*> handles_;  // the op's inputs, which live longer
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<int> firsts_;
  std::vector<tensorflow::Var*> locked_;
  std::vector<SnapshotPart> snapshots_;  // empty if there are none
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LOCKED_VARIABLES_H_
