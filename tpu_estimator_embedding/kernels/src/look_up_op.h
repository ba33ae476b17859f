// SPDX-License-Identifier: Apache-2.0
// The op that looks up all tables of a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_LOOK_UP_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_LOOK_UP_OP_H_

#include <vector>

#include "locked_variables.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "row_kernels.h"

namespace tpu_estimator_embedding {

template <class Id>
class LookUpOp : public tensorflow::OpKernel {
 public:
  explicit LookUpOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("positions", &positions_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::OpInputList inputs;
    OP_REQUIRES_OK(context, context->input_list("tables", &inputs));
    std::vector<TableIds<Id>> tables;
    OP_REQUIRES_OK(context, View(context, &tables));
    LockedVariables variables(Access::kRead);
    OP_REQUIRES_OK(context, variables.Lock(context, inputs));
    OP_REQUIRES(context,
                dims_.size() == tables.size() && inputs.size() == static_cast<int>(dims_.size()),
                absl::InvalidArgumentError("Attributes must be given for every table."));
    std::vector<LookUp<Id>> tasks(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      if (tables[i].num_rows > 0) {
        OP_REQUIRES_OK(context, variables.CheckShape(i, tables[i].num_table_rows, dims_[i]));
      }
      tensorflow::Tensor* activations;
      OP_REQUIRES_OK(context,
                     context->allocate_output(
                         i, tensorflow::TensorShape({tables[i].num_rows, dims_[i]}), &activations));
      tasks[i] = {tables[i], dims_[i], variables.data(i), activations->flat<float>().data()};
    }
    Run(context, tasks);
  }

 private:
  struct Share {
    const LookUp<Id>* task;
    int64_t begin_row, end_row;
  };

  // Returns the ids of the tables that are looked up, which may be some of those prepared.
  absl::Status View(tensorflow::OpKernelContext* context, std::vector<TableIds<Id>>* tables) const {
    PreparedTensors tensors;
    TF_RETURN_IF_ERROR(context->input("sizes", &tensors.sizes));
    TF_RETURN_IF_ERROR(context->input("ids", &tensors.ids));
    TF_RETURN_IF_ERROR(context->input("row_ends", &tensors.row_ends));
    TF_RETURN_IF_ERROR(context->input("weights", &tensors.weights));
    TF_RETURN_IF_ERROR(context->input("scales", &tensors.scales));
    std::vector<TableIds<Id>> prepared;
    TF_RETURN_IF_ERROR(ViewTables(tensors, &prepared));
    for (int64_t position : positions_) {
      if (position < 0 || position >= static_cast<int64_t>(prepared.size())) {
        return absl::InvalidArgumentError("Ids must be prepared for every table.");
      }
      tables->push_back(prepared[position]);
    }
    return absl::OkStatus();
  }

  static void Run(tensorflow::OpKernelContext* context, const std::vector<LookUp<Id>>& tasks) {
    int64_t total = 0;
    for (const LookUp<Id>& task : tasks) total += Cost(task);
    const int64_t cost_of_share = total / (kSharesPerThread * NumThreads(context)) + 1;
    std::vector<Share> shares;
    for (const LookUp<Id>& task : tasks) {
      const int64_t rows = task.ids.num_rows, count = Cost(task) / cost_of_share + 1;
      for (int64_t i = 0; i < count; ++i) {
        shares.push_back({&task, rows * i / count, rows * (i + 1) / count});
      }
    }
    const RowKernels& kernels = BestRowKernels();
    ParallelFor(context, shares.size(), [&](int64_t i) {
      kernels(*shares[i].task, shares[i].begin_row, shares[i].end_row);
    });
  }

  static int64_t Cost(const LookUp<Id>& task) {
    return (task.ids.num_ids + task.ids.num_rows) * task.dim;
  }

  static constexpr int64_t kSharesPerThread = 16;
  std::vector<int64_t> dims_;
  std::vector<int64_t> positions_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LOOK_UP_OP_H_
