// SPDX-License-Identifier: Apache-2.0
// The op that updates all tables of a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attribute_checks.h"
#include "huge_pages.h"
#include "keep_rows.h"
#include "locked_variables.h"
#include "optimizer_attributes.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "row_kernels.h"
#include "update_shares.h"

namespace tpu_estimator_embedding {

// Nothing is written before the inputs of all tables have been checked.
template <class Id>
class UpdateOp : public tensorflow::OpKernel {
 public:
  explicit UpdateOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 protected:
  virtual absl::Status RunTasks(tensorflow::OpKernelContext* context,
                                const std::vector<Update<Id>>& tasks) {
    const int num_threads = NumThreads(context, Nanoseconds(tasks));
    const std::vector<UpdateShare<Id>> shares = ShareOut(tasks, num_threads);
    const RowKernels& kernels = BestRowKernels();
    return ParallelFor(context, num_threads, shares.size(),
                       [&](int64_t i) { kernels(*shares[i].task, shares[i].range); });
  }

 private:
  using Ids = std::vector<UpdateIds<Id>>;

  struct Gradients {
    const float* data;
    int64_t stride;  // floats from one row to the next
  };

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    int64_t num_tables;
    TF_RETURN_IF_ERROR(construction->GetAttr("num_tables", &num_tables));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_slots", &num_slots_));
    TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims_));
    TF_RETURN_IF_ERROR(CheckCount("dims", "table", num_tables, dims_.size()));
    TF_RETURN_IF_ERROR(CheckAll("dims", dims_, 1, kMostColumns));
    TF_RETURN_IF_ERROR(construction->GetAttr("gradient_columns", &gradient_columns_));
    if (!gradient_columns_.empty()) {
      TF_RETURN_IF_ERROR(
          CheckCount("gradient_columns", "table", num_tables, gradient_columns_.size()));
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      TF_RETURN_IF_ERROR(CheckAll("gradient_columns", gradient_columns_, 0, kMost));
    }
    return attributes_.Read(construction, num_tables);
  }

  absl::Status Run(tensorflow::OpKernelContext* context) {
    Ids ids;
    TF_RETURN_IF_ERROR(ViewTables(context, &ids));
    TF_RETURN_IF_ERROR(CheckCount("tables of the prepared ids", "table", dims_.size(), ids.size()));
    TF_RETURN_IF_ERROR(CheckIds(context, ids));
    std::vector<RowOptimizer> optimizers;
    TF_RETURN_IF_ERROR(attributes_.ForStep(context, &optimizers));
    StepSnapshots::Get().WaitForMemory();
    LockedVariables variables(Access::kWrite);
    TF_RETURN_IF_ERROR(Lock(context, &variables));
    TF_RETURN_IF_ERROR(CheckShapes(ids, variables));
    TF_RETURN_IF_ERROR(CheckShared(optimizers, variables));
    std::vector<Gradients> gradients;
    TF_RETURN_IF_ERROR(ViewGradients(context, ids, variables, &gradients));
    TF_RETURN_IF_ERROR(variables.CopyOnWrite(context));
    TF_RETURN_IF_ERROR(MoveBuffers(context, &variables));
    const std::vector<Update<Id>> tasks = Tasks(ids, gradients, optimizers, &variables);
    TF_RETURN_IF_ERROR(KeepRows(context, tasks, variables));
    return RunTasks(context, tasks);
  }

  static absl::Status CheckIds(tensorflow::OpKernelContext* context, const Ids& ids) {
    constexpr int64_t kRunsOfShare = 1 << 15;
    struct Share {
      const UpdateIds<Id>* ids;
      int64_t begin_run, end_run;
    };
    std::vector<Share> shares;
    int64_t num_checked = 0;
    for (const UpdateIds<Id>& table : ids) {
      num_checked += table.num_runs + table.num_ids;
      for (int64_t begin = 0; begin < table.num_runs; begin += kRunsOfShare) {
        shares.push_back({&table, begin, std::min(begin + kRunsOfShare, table.num_runs)});
      }
    }
    std::atomic<bool> fit{true};
    const int num_threads = NumThreads(context, num_checked);
    TF_RETURN_IF_ERROR(ParallelFor(context, num_threads, shares.size(), [&](int64_t i) {
      if (!IsWithin(*shares[i].ids, shares[i].begin_run, shares[i].end_run)) fit = false;
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }

  absl::Status Lock(tensorflow::OpKernelContext* context, LockedVariables* variables) const {
    tensorflow::OpInputList tables, slots;
    TF_RETURN_IF_ERROR(context->input_list("tables", &tables));
    if (num_slots_ > 0) TF_RETURN_IF_ERROR(context->input_list("slots", &slots));
    return variables->Lock(context, tables, slots, num_slots_);
  }

  // One flat tensor holds the gradients of all tables, if another task sent them, or one matrix, if
  // the model computed them so; otherwise every table has a tensor.
  absl::Status ViewGradients(tensorflow::OpKernelContext* context, const Ids& ids,
                             const LockedVariables& variables,
                             std::vector<Gradients>* gradients) const {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &inputs));
    gradients->reserve(ids.size());
    if (!gradient_columns_.empty()) return ViewColumns(inputs, ids, gradients);
    if (inputs.size() == 1 && inputs[0].dims() == 1) {
      Pieces<float> pieces(inputs[0]);
      for (size_t i = 0; i < ids.size(); ++i) {
        gradients->push_back({pieces.Take(ids[i].num_rows * dims_[i]), dims_[i]});
      }
      return pieces.is_used_up() ? absl::OkStatus() : DoNotFit();
    }
    TF_RETURN_IF_ERROR(CheckCount("gradients", "table", ids.size(), inputs.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
      const tensorflow::TensorShape& got = inputs[i].shape();
      const int64_t num_rows = ids[i].num_rows, dim = dims_[i];
      if (got.dims() != 2 || got.dim_size(0) != num_rows || got.dim_size(1) != dim) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`gradients` of the activations of `", variables.name(i), "` must be of shape [",
            num_rows, ",", dim, "], got ", got.DebugString(), "."));
      }
      gradients->push_back({inputs[i].template flat<float>().data(), dim});
    }
    return absl::OkStatus();
  }

  absl::Status ViewColumns(const tensorflow::OpInputList& inputs, const Ids& ids,
                           std::vector<Gradients>* gradients) const {
    if (inputs.size() != 1 || inputs[0].dims() != 2) return DoNotFit();
    const int64_t num_rows = inputs[0].dim_size(0), num_columns = inputs[0].dim_size(1);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i].num_rows != num_rows || gradient_columns_[i] + dims_[i] > num_columns) {
        return DoNotFit();
      }
      gradients->push_back(
          {inputs[0].template flat<float>().data() + gradient_columns_[i], num_columns});
    }
    return absl::OkStatus();
  }

  absl::Status CheckShapes(const Ids& ids, const LockedVariables& variables) const {
    int slot = static_cast<int>(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t num_table_rows = ids[i].num_table_rows, dim = dims_[i];
      TF_RETURN_IF_ERROR(variables.CheckShape(i, num_table_rows, dim));
      for (int k = 0; k < attributes_.num_slots(i); ++k, ++slot) {
        TF_RETURN_IF_ERROR(variables.CheckShape(slot, num_table_rows, dim));
      }
    }
    return absl::OkStatus();
  }

  // The tables of a stack share its variables, as they update different rows. Other variables have
  // one use.
  absl::Status CheckShared(const std::vector<RowOptimizer>& optimizers,
                           const LockedVariables& variables) const {
    struct Use {
      int slot;
      bool is_of_rows_with_ids;
    };
    std::vector<Use> uses(variables.size());
    int next = static_cast<int>(optimizers.size());
    for (size_t i = 0; i < optimizers.size(); ++i) {
      for (int slot = -1; slot < attributes_.num_slots(i); ++slot) {
        const int variable = slot < 0 ? static_cast<int>(i) : next++;
        uses[variable] = {slot, !optimizers[i].moves_untouched_rows};
        const Use &use = uses[variable], &first = uses[variables.first(variable)];
        if (variables.first(variable) == variable) continue;
        if (use.slot != first.slot || !use.is_of_rows_with_ids || !first.is_of_rows_with_ids) {
          return absl::InvalidArgumentError(
              "Every table and slot must be a separate variable, except those of a stack.");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status MoveBuffers(tensorflow::OpKernelContext* context, LockedVariables* variables) {
    if (!AreHugePagesWanted()) return absl::OkStatus();
    using Memory = BuffersInHugePages::Memory;
    const auto memory_of = [variables](int i) -> Memory {
      if (variables->first(i) != i) return {};  // noted already
      return {variables->data(i), static_cast<int64_t>(variables->tensor(i).TotalBytes())};
    };
    if (!buffers_.Note(variables->size(), memory_of)) return absl::OkStatus();
    return ParallelFor(context, NumThreads(context), [this](int64_t) { buffers_.MoveSome(); });
  }

  absl::Status KeepRows(tensorflow::OpKernelContext* context, const std::vector<Update<Id>>& tasks,
                        const LockedVariables& variables) const {
    if (!variables.has_snapshots()) return absl::OkStatus();
    RowsToKeep<Id> rows;
    int slot = static_cast<int>(tasks.size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto add = [&](int variable) {
        const SnapshotPart& part = variables.snapshot(variable);
        if (part.rows != nullptr) rows.Add(tasks[i], part);
      };
      add(static_cast<int>(i));
      for (int k = 0; k < attributes_.num_slots(i); ++k) add(slot++);
    }
    return rows.Keep(context);
  }

  std::vector<Update<Id>> Tasks(const Ids& ids, const std::vector<Gradients>& gradients,
                                const std::vector<RowOptimizer>& optimizers,
                                LockedVariables* variables) const {
    std::vector<Update<Id>> tasks;
    tasks.reserve(ids.size());
    int slot = static_cast<int>(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      Update<Id> task = {ids[i],       dims_[i], variables->data(i), {}, gradients[i].data,
                         optimizers[i], gradients[i].stride};
      for (int k = 0; k < attributes_.num_slots(i); ++k) task.slots[k] = variables->data(slot++);
      tasks.push_back(task);
    }
    return tasks;
  }

  std::vector<int64_t> dims_;
  std::vector<int64_t> gradient_columns_;
  int num_slots_ = 0;
  OptimizerAttributes attributes_;
  BuffersInHugePages buffers_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_
