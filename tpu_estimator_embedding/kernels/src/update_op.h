// SPDX-License-Identifier: Apache-2.0
// The op that updates all tables of a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_

#include <vector>

#include "absl/strings/str_cat.h"
#include "huge_pages.h"
#include "locked_variables.h"
#include "optimizer_attributes.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "row_kernels.h"
#include "update_shares.h"

namespace tpu_estimator_embedding {

// Nothing is written before everything has been checked, of every table.
template <class Id>
class UpdateOp : public tensorflow::OpKernel {
 public:
  explicit UpdateOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_slots", &num_slots_));
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    std::vector<TableIds<Id>> tables;
    OP_REQUIRES_OK(context, View(context, &tables));
    std::vector<RowOptimizer> optimizers;
    OP_REQUIRES_OK(context, attributes_.ForStep(context, &optimizers));
    LockedVariables variables(Access::kWrite);
    OP_REQUIRES_OK(context, Lock(context, &variables));
    OP_REQUIRES_OK(context, Check(context, tables, variables));
    OP_REQUIRES_OK(context, variables.CopyOnWrite(context));
    tensorflow::OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    std::vector<Update<Id>> tasks;
    int slot = static_cast<int>(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      Update<Id> task = {tables[i], dims_[i], variables.data(i), {}, nullptr, optimizers[i]};
      task.gradients = gradients[i].template flat<float>().data();
      for (int k = 0; k < attributes_.num_slots(i); ++k) task.slots[k] = variables.data(slot++);
      tasks.push_back(task);
    }
    for (int i = 0; i < slot; ++i) {
      buffers_.Note(i, variables.data(i), variables.tensor(i).TotalBytes());
    }
    if (buffers_.has_pieces()) {
      ParallelFor(context, NumThreads(context), [this](int64_t) { buffers_.MoveSome(); });
    }
    Run(context, tasks);
  }

 private:
  absl::Status View(tensorflow::OpKernelContext* context, std::vector<TableIds<Id>>* tables) const {
    PreparedTensors tensors;
    TF_RETURN_IF_ERROR(context->input("sizes", &tensors.sizes));
    TF_RETURN_IF_ERROR(context->input("run_ids", &tensors.run_ids));
    TF_RETURN_IF_ERROR(context->input("run_ends", &tensors.run_ends));
    TF_RETURN_IF_ERROR(context->input("run_rows", &tensors.run_rows));
    TF_RETURN_IF_ERROR(context->input("run_weights", &tensors.run_weights));
    TF_RETURN_IF_ERROR(context->input("scales", &tensors.scales));
    TF_RETURN_IF_ERROR(ViewTables(tensors, tables));
    return tables->size() == dims_.size()
               ? absl::OkStatus()
               : absl::InvalidArgumentError("Ids must be prepared for every table.");
  }

  absl::Status Lock(tensorflow::OpKernelContext* context, LockedVariables* variables) const {
    tensorflow::OpInputList tables, slots;
    TF_RETURN_IF_ERROR(context->input_list("tables", &tables));
    if (num_slots_ > 0) TF_RETURN_IF_ERROR(context->input_list("slots", &slots));
    return variables->Lock(context, tables, slots, num_slots_);
  }

  absl::Status Check(tensorflow::OpKernelContext* context, const std::vector<TableIds<Id>>& tables,
                     const LockedVariables& variables) const {
    tensorflow::OpInputList gradients;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    int slot = static_cast<int>(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      const tensorflow::TensorShape wanted({tables[i].num_rows, dims_[i]});
      if (gradients[i].shape() != wanted) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`gradients` of the activations of `", variables.name(i), "` must be of shape ",
            wanted.DebugString(), ", got ", gradients[i].shape().DebugString(), "."));
      }
      const int64_t rows = tables[i].num_table_rows;
      if (rows > 0) TF_RETURN_IF_ERROR(variables.CheckShape(i, rows, dims_[i]));
      for (int k = 0; k < attributes_.num_slots(i); ++k, ++slot) {
        if (rows > 0) TF_RETURN_IF_ERROR(variables.CheckShape(slot, rows, dims_[i]));
      }
    }
    return absl::OkStatus();
  }

  static void Run(tensorflow::OpKernelContext* context, const std::vector<Update<Id>>& tasks) {
    const std::vector<UpdateShare<Id>> shares = ShareOut(tasks, NumThreads(context));
    const RowKernels& kernels = BestRowKernels();
    ParallelFor(context, shares.size(),
                [&](int64_t i) { kernels(*shares[i].task, shares[i].range); });
  }

  std::vector<int64_t> dims_;
  int num_slots_ = 0;
  OptimizerAttributes attributes_;
  BuffersInHugePages buffers_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_UPDATE_OP_H_
