// SPDX-License-Identifier: Apache-2.0
// The op that looks up all tables of a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_LOOKUP_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_LOOKUP_OP_H_

#include <atomic>
#include <utility>
#include <vector>

#include "attribute_checks.h"
#include "locked_variables.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "row_kernels.h"
#include "stored_variables.h"

namespace tpu_estimator_embedding {

template <class Id>
class LookupOp : public tensorflow::OpKernel {
 public:
  explicit LookupOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 protected:
  // Allocates the outputs, and lets the tasks write to them.
  virtual absl::Status Allocate(tensorflow::OpKernelContext* context,
                                std::vector<Lookup<Id>>* tasks) const {
    for (size_t i = 0; i < tasks->size(); ++i) {
      Lookup<Id>& task = (*tasks)[i];
      tensorflow::TensorShape shape;
      TF_RETURN_IF_ERROR(
          tensorflow::TensorShape::BuildTensorShape({task.ids.num_rows, task.dim}, &shape));
      tensorflow::Tensor* activations;
      TF_RETURN_IF_ERROR(context->allocate_output(i, shape, &activations));
      task.activations = activations->flat<float>().data();
    }
    return absl::OkStatus();
  }

 private:
  struct Share {
    const Lookup<Id>* task;
    int64_t begin_row, end_row;
  };

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    int64_t num_tables;
    TF_RETURN_IF_ERROR(construction->GetAttr("num_tables", &num_tables));
    TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims_));
    TF_RETURN_IF_ERROR(construction->GetAttr("positions", &positions_));
    TF_RETURN_IF_ERROR(CheckCount("dims", "table", num_tables, dims_.size()));
    TF_RETURN_IF_ERROR(CheckCount("positions", "table", num_tables, positions_.size()));
    return CheckAll("dims", dims_, 1, kMostColumns);
  }

  absl::Status Run(tensorflow::OpKernelContext* context) const {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("tables", &inputs));
    std::vector<LookupIds<Id>> ids;
    TF_RETURN_IF_ERROR(View(context, &ids));
    LockedVariables variables(Access::kRead);
    TF_RETURN_IF_ERROR(variables.Lock(context, inputs));
    std::vector<Lookup<Id>> tasks(ids.size());
    StoredLookups<Id> in_checkpoint;
    for (size_t i = 0; i < ids.size(); ++i) {
      tasks[i] = {ids[i], dims_[i], nullptr, nullptr, dims_[i]};
      if (auto table = FindStoredTable(variables.tensor(i))) {
        TF_RETURN_IF_ERROR(in_checkpoint.Add(std::move(table), variables.name(i), &tasks[i]));
        continue;
      }
      TF_RETURN_IF_ERROR(variables.CheckShape(i, ids[i].num_table_rows, dims_[i]));
      tasks[i].table = variables.data(i);
    }
    TF_RETURN_IF_ERROR(Allocate(context, &tasks));
    TF_RETURN_IF_ERROR(in_checkpoint.Fetch(context));
    return RunTasks(context, tasks);
  }

  // Returns the ids of the tables that are looked up, a subset of the prepared ones.
  absl::Status View(tensorflow::OpKernelContext* context, std::vector<LookupIds<Id>>* ids) const {
    std::vector<LookupIds<Id>> prepared;
    TF_RETURN_IF_ERROR(ViewTables(context, &prepared));
    TF_RETURN_IF_ERROR(CheckAll("positions", positions_, 0, prepared.size() - 1));
    ids->reserve(positions_.size());
    for (int64_t position : positions_) ids->push_back(prepared[position]);
    return absl::OkStatus();
  }

  static absl::Status RunTasks(tensorflow::OpKernelContext* context,
                               const std::vector<Lookup<Id>>& tasks) {
    int64_t total = 0;
    for (const Lookup<Id>& task : tasks) total += Cost(task);
    const int num_threads = NumThreads(context, total / kFloatsPerNanosecond);
    const int64_t num_shares = num_threads == 1 ? 1 : kSharesPerThread * num_threads;
    const int64_t cost_of_share = total / num_shares + 1;
    std::vector<Share> shares;
    shares.reserve(tasks.size() + num_shares);
    for (const Lookup<Id>& task : tasks) {
      const int64_t rows = task.ids.num_rows, count = Cost(task) / cost_of_share + 1;
      for (int64_t i = 0; i < count; ++i) {
        const Share share = {&task, rows * i / count, rows * (i + 1) / count};
        if (share.begin_row < share.end_row) shares.push_back(share);
      }
    }
    const RowKernels& kernels = BestRowKernels();
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, num_threads, shares.size(), [&](int64_t i) {
      const Share& share = shares[i];
      if (IsWithin(share.task->ids, share.begin_row, share.end_row)) {
        kernels(*share.task, share.begin_row, share.end_row);
      } else {
        fit = false;
      }
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }

  // In floats that are read or written.
  static int64_t Cost(const Lookup<Id>& task) {
    return (task.ids.num_ids + task.ids.num_rows) * task.dim;
  }

  static constexpr int64_t kSharesPerThread = 16;
  static constexpr int64_t kFloatsPerNanosecond = 3;
  std::vector<int64_t> dims_;
  std::vector<int64_t> positions_;
};

// Concatenates the activations of all tables into one tensor, for the way to another task.
template <class Id>
class FlatLookupOp : public LookupOp<Id> {
 public:
  explicit FlatLookupOp(tensorflow::OpKernelConstruction* construction)
      : LookupOp<Id>(construction) {}

 protected:
  absl::Status Allocate(tensorflow::OpKernelContext* context,
                        std::vector<Lookup<Id>>* tasks) const override {
    int64_t num_values = 0;
    for (const Lookup<Id>& task : *tasks) num_values += task.ids.num_rows * task.dim;
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({num_values}, &shape));
    tensorflow::Tensor* activations;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &activations));
    float* next = activations->flat<float>().data();
    for (Lookup<Id>& task : *tasks) {
      task.activations = next;
      next += task.ids.num_rows * task.dim;
    }
    return absl::OkStatus();
  }
};

// Concatenates the activations of all tables along axis 1: one row per sample.
template <class Id>
class JoinedLookupOp : public LookupOp<Id> {
 public:
  explicit JoinedLookupOp(tensorflow::OpKernelConstruction* construction)
      : LookupOp<Id>(construction) {}

 protected:
  absl::Status Allocate(tensorflow::OpKernelContext* context,
                        std::vector<Lookup<Id>>* tasks) const override {
    const int64_t num_rows = tasks->front().ids.num_rows;
    int64_t num_columns = 0;
    for (const Lookup<Id>& task : *tasks) {
      if (task.ids.num_rows != num_rows) return DoNotFit();
      num_columns += task.dim;
    }
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({num_rows, num_columns}, &shape));
    tensorflow::Tensor* activations;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &activations));
    float* next = activations->flat<float>().data();
    for (Lookup<Id>& task : *tasks) {
      task.activations = next;
      task.stride = num_columns;
      next += task.dim;
    }
    return absl::OkStatus();
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LOOKUP_OP_H_
