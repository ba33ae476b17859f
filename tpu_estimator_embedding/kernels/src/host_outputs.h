// SPDX-License-Identifier: Apache-2.0
// The outputs of the op that prepares ids, for one host.
#ifndef TPU_ESTIMATOR_EMBEDDING_HOST_OUTPUTS_H_
#define TPU_ESTIMATOR_EMBEDDING_HOST_OUTPUTS_H_

#include <algorithm>
#include <vector>

#include "counted_table.h"
#include "prepare_attributes.h"
#include "prepared_ids.h"

namespace tpu_estimator_embedding {

// The parts of tables, by table; the parts of a table by host.
template <class Id>
using Parts = std::vector<std::vector<TableIds<Id>>>;

template <class Id>
class HostOutputs {
 public:
  HostOutputs(tensorflow::OpKernelContext* context, const PrepareAttributes& attributes, int host)
      : context_(context), attributes_(attributes), host_(host) {}

  // Allocates the ids of the host and adds its part of every table, which points into them.
  absl::Status Allocate(const std::vector<CountedTable>& tables, Parts<Id>* parts) {
    TableIds<Id> next;
    TF_RETURN_IF_ERROR(AllocateAll(tables, &next));
    for (size_t i = 0; i < tables.size(); ++i) {
      if (HasPart(i)) (*parts)[i].push_back(TakePart(attributes_.tables[i], tables[i], &next));
    }
    return absl::OkStatus();
  }

  // Sets the sizes output, and allocates the runs now that their number is known. The parts of the
  // host point into them; the owner of the runs has to copy them.
  absl::Status Finish(Parts<Id>* parts) {
    std::vector<TableIds<Id>*> of_host;
    int64_t num_runs = 0;
    for (size_t i = 0; i < parts->size(); ++i) {
      if (!HasPart(i)) continue;
      of_host.push_back(&(*parts)[i][host_]);
      num_runs += of_host.back()->num_runs;
    }
    Id* run_ids;
    int32_t* run_ends;
    TF_RETURN_IF_ERROR(Output("run_ids", num_runs, &run_ids));
    TF_RETURN_IF_ERROR(Output("run_ends", num_runs, &run_ends));
    for (TableIds<Id>* part : of_host) {
      part->run_ids = run_ids;
      part->run_ends = run_ends;
      run_ids += part->num_runs;
      run_ends += part->num_runs;
    }
    return OutputSizes(of_host);
  }

 private:
  absl::Status AllocateAll(const std::vector<CountedTable>& tables, TableIds<Id>* next) {
    int64_t num_ids = 0, num_rows = 0, num_weights = 0, num_scales = 0;
    for (size_t i = 0; i < tables.size(); ++i) {
      if (!HasPart(i)) continue;
      const TablePlan& plan = attributes_.tables[i];
      num_ids += tables[i].counts[host_];
      num_rows += tables[i].num_rows;
      num_weights += plan.has_weights ? tables[i].counts[host_] : 0;
      num_scales += plan.has_scales ? tables[i].num_rows : 0;
    }
    TF_RETURN_IF_ERROR(Output("host_ids", num_ids, &next->ids));
    TF_RETURN_IF_ERROR(Output("row_ends", num_rows, &next->row_ends));
    TF_RETURN_IF_ERROR(Output("host_weights", num_weights, &next->weights));
    TF_RETURN_IF_ERROR(Output("scales", num_scales, &next->scales));
    const int64_t num_sorted = attributes_.is_training ? num_ids : 0;
    TF_RETURN_IF_ERROR(Output("run_rows", num_sorted, &next->run_rows));
    TF_RETURN_IF_ERROR(
        Output("run_weights", attributes_.is_training ? num_weights : 0, &next->run_weights));
    TF_RETURN_IF_ERROR(Temporary(num_sorted, &run_ids_, &next->run_ids));
    return Temporary(num_sorted, &run_ends_, &next->run_ends);
  }

  // Returns the next pieces.
  TableIds<Id> TakePart(const TablePlan& plan, const CountedTable& table,
                        TableIds<Id>* next) const {
    TableIds<Id> part = *next;
    part.num_table_rows = plan.partition.num_rows(host_);
    part.num_ids = table.counts[host_];
    part.num_rows = table.num_rows;
    if (!plan.has_weights) part.weights = part.run_weights = nullptr;
    if (!plan.has_scales) part.scales = nullptr;
    next->ids += part.num_ids;
    next->row_ends += part.num_rows;
    if (plan.has_weights) next->weights += part.num_ids;
    if (plan.has_scales) next->scales += part.num_rows;
    if (!attributes_.is_training) return part;
    if (plan.has_weights) next->run_weights += part.num_ids;
    next->run_ids += part.num_ids;
    next->run_ends += part.num_ids;
    next->run_rows += part.num_ids;
    return part;
  }

  absl::Status OutputSizes(const std::vector<TableIds<Id>*>& parts) {
    tensorflow::OpOutputList outputs;
    TF_RETURN_IF_ERROR(context_->output_list("sizes", &outputs));
    const int64_t num_parts = parts.size();
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(outputs.allocate(host_, {num_parts, kNumSizes}, &output));
    auto sizes = output->matrix<int64_t>();
    for (int64_t i = 0; i < num_parts; ++i) {
      const TableIds<Id>& part = *parts[i];
      sizes(i, kTableRows) = part.num_table_rows;
      sizes(i, kIds) = part.num_ids;
      sizes(i, kRows) = part.num_rows;
      sizes(i, kRuns) = part.num_runs;
      sizes(i, kWeights) = part.weights == nullptr ? 0 : part.num_ids;
      sizes(i, kScales) = part.scales == nullptr ? 0 : part.num_rows;
    }
    return absl::OkStatus();
  }

  template <class T>
  absl::Status Output(const char* name, int64_t size, T** data) {
    tensorflow::OpOutputList outputs;
    TF_RETURN_IF_ERROR(context_->output_list(name, &outputs));
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(outputs.allocate(host_, {size}, &output));
    *data = output->flat<T>().data();
    return absl::OkStatus();
  }

  template <class T>
  absl::Status Temporary(int64_t size, tensorflow::Tensor* tensor, T** data) {
    TF_RETURN_IF_ERROR(
        context_->allocate_temp(tensorflow::DataTypeToEnum<T>::value, {size}, tensor));
    *data = tensor->flat<T>().data();
    return absl::OkStatus();
  }

  bool HasPart(int64_t table) const {
    return host_ < attributes_.tables[table].partition.num_parts();
  }

  tensorflow::OpKernelContext* const context_;
  const PrepareAttributes& attributes_;
  const int host_;
  tensorflow::Tensor run_ids_, run_ends_;  // sized for one run per id
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_HOST_OUTPUTS_H_
