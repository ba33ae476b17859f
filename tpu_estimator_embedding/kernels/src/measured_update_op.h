// SPDX-License-Identifier: Apache-2.0
// The op that updates all tables of a host, marks the updated rows, and measures on demand.
#ifndef TPU_ESTIMATOR_EMBEDDING_MEASURED_UPDATE_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_MEASURED_UPDATE_OP_H_

#include <algorithm>
#include <vector>

#include "update_op.h"

namespace tpu_estimator_embedding {

// For each table: the sums of `RowSums`, in the same order.
constexpr int64_t kNumSums = 5;

// More would leave little work for a share, and fewer would idle on a large machine.
constexpr int kThreadsOfMeasures = 32;

// Updates tables and slots as `UpdateOp` does, bit for bit.
template <class Id>
class MeasuredUpdateOp : public UpdateOp<Id> {
 public:
  explicit MeasuredUpdateOp(tensorflow::OpKernelConstruction* construction)
      : UpdateOp<Id>(construction) {}

 private:
  using Tasks = std::vector<Update<Id>>;

  absl::Status RunTasks(tensorflow::OpKernelContext* context, const Tasks& tasks) override {
    const tensorflow::Tensor* measures;
    TF_RETURN_IF_ERROR(context->input("measures", &measures));
    if (measures->NumElements() != 1) {
      return absl::InvalidArgumentError("`measures` must be a scalar.");
    }
    LockedVariables marks(Access::kWrite);
    TF_RETURN_IF_ERROR(LockMarks(context, tasks, &marks));
    return Run(context, tasks, measures->flat<bool>()(0), &marks);
  }

  // Always locked after tables and slots, so that there is no deadlock.
  static absl::Status LockMarks(tensorflow::OpKernelContext* context, const Tasks& tasks,
                                LockedVariables* marks) {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("marks", &inputs));
    TF_RETURN_IF_ERROR(marks->Lock(context, inputs));
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (marks->first(i) != static_cast<int>(i)) {
        return absl::InvalidArgumentError("The marks of every table must be a separate variable.");
      }
      const tensorflow::Tensor& tensor = marks->tensor(i);
      if (tensor.dtype() != tensorflow::DT_BOOL ||
          tensor.NumElements() != tasks[i].ids.num_table_rows) {
        return absl::InvalidArgumentError(
            absl::StrCat("`", marks->name(i), "` must be bool, one for each row of the table."));
      }
    }
    return marks->CopyOnWrite(context);
  }

  absl::Status Run(tensorflow::OpKernelContext* context, const Tasks& tasks, bool measures,
                   LockedVariables* marks) {
    std::vector<int64_t> begins;  // of the runs of each table among those of all
    int64_t num_runs = 0;
    for (const Update<Id>& task : tasks) {
      begins.push_back(num_runs);
      num_runs += task.ids.num_runs;
    }
    tensorflow::Tensor *sums, *covered, *norms;
    const int64_t num_measured = measures ? tasks.size() : 0;
    TF_RETURN_IF_ERROR(context->allocate_output("sums", {num_measured, kNumSums}, &sums));
    TF_RETURN_IF_ERROR(context->allocate_output("covered", {num_measured}, &covered));
    TF_RETURN_IF_ERROR(context->allocate_output("row_norms", {measures ? num_runs : 0}, &norms));
    float* const all_norms = norms->flat<float>().data();
    const int num_threads = NumThreads(context, Nanoseconds(tasks));
    // The sums of the shares are rounded, so the shares must not depend on the number of threads.
    const std::vector<UpdateShare<Id>> shares =
        ShareOut(tasks, measures ? kThreadsOfMeasures : num_threads);
    std::vector<RowSums> sums_of_shares(shares.size());
    const RowKernels& kernels = BestRowKernels();
    TF_RETURN_IF_ERROR(ParallelFor(context, num_threads, shares.size(), [&](int64_t i) {
      const Update<Id>& task = *shares[i].task;
      const int64_t table = &task - tasks.data();
      if (measures) {
        kernels(task, shares[i].range, all_norms + begins[table], &sums_of_shares[i]);
      } else {
        kernels(task, shares[i].range);
      }
      Mark(task, shares[i].range, marks->template data<bool>(table));
    }));
    if (!measures) return absl::OkStatus();
    AddUp(tasks, shares, sums_of_shares, sums);
    return ParallelFor(context, tasks.size(), [&](int64_t i) {
      const bool* begin = marks->template data<bool>(i);
      covered->flat<int64_t>()(i) = std::count(begin, begin + tasks[i].ids.num_table_rows, true);
    });
  }

  static void Mark(const Update<Id>& task, const Range& range, bool* marks) {
    for (int64_t run = range.begin_run; run < range.end_run; ++run) {
      bool* mark = &marks[task.ids.run_ids[run]];
      if (!*mark) *mark = true;  // usually set already: avoids a write to memory
    }
  }

  static void AddUp(const Tasks& tasks, const std::vector<UpdateShare<Id>>& shares,
                    const std::vector<RowSums>& sums_of_shares, tensorflow::Tensor* output) {
    std::vector<RowSums> totals(tasks.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      totals[shares[i].task - tasks.data()].Add(sums_of_shares[i]);
    }
    auto sums = output->matrix<double>();
    for (size_t i = 0; i < totals.size(); ++i) {
      const RowSums& total = totals[i];
      const double values[kNumSums] = {total.squared_gradients, total.squared_clipped_gradients,
                                       total.clipped_rows, total.squared_updates,
                                       total.squared_rows};
      std::copy_n(values, kNumSums, &sums(i, 0));
    }
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_MEASURED_UPDATE_OP_H_
