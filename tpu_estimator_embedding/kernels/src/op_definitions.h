// SPDX-License-Identifier: Apache-2.0
// The ops of a step: prepare ids, look up, update.
#ifndef TPU_ESTIMATOR_EMBEDDING_OP_DEFINITIONS_H_
#define TPU_ESTIMATOR_EMBEDDING_OP_DEFINITIONS_H_

#include <vector>

#include "attribute_checks.h"
#include "prepared_ids.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tpu_estimator_embedding {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

inline absl::Status PrepareIdsShapes(InferenceContext* context) {
  int num_hosts;
  std::vector<int64_t> vocabulary_sizes;
  TF_RETURN_IF_ERROR(context->GetAttr("num_hosts", &num_hosts));
  TF_RETURN_IF_ERROR(context->GetAttr("vocabulary_sizes", &vocabulary_sizes));
  ShapeHandle batch_sizes;
  TF_RETURN_IF_ERROR(
      context->WithRank(context->input(context->num_inputs() - 1), 1, &batch_sizes));
  const int64_t num_tables = vocabulary_sizes.size();
  context->set_output(0, context->Matrix(num_tables, context->Dim(batch_sizes, 0)));
  for (int output = 1; output < context->num_outputs(); ++output) {
    context->set_output(output, context->Vector(InferenceContext::kUnknownDim));
  }
  for (int host = 0; host < num_hosts; ++host) {
    int64_t num_parts = 0;
    for (int64_t size : vocabulary_sizes) num_parts += size > host;
    context->set_output(1 + host, context->Matrix(num_parts, kNumSizes));
  }
  context->set_output(context->num_outputs() - 1, context->Vector(num_tables));
  return absl::OkStatus();
}

inline absl::Status LookupShapes(InferenceContext* context) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
  TF_RETURN_IF_ERROR(CheckCount("dims", "table", context->num_outputs(), dims.size()));
  TF_RETURN_IF_ERROR(CheckAll("dims", dims, 1, kMostColumns));
  for (size_t table = 0; table < dims.size(); ++table) {
    context->set_output(table, context->Matrix(InferenceContext::kUnknownDim, dims[table]));
  }
  return absl::OkStatus();
}

inline absl::Status JoinedLookupShapes(InferenceContext* context) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
  TF_RETURN_IF_ERROR(CheckAll("dims", dims, 1, kMostColumns));
  int64_t num_columns = 0;
  for (int64_t dim : dims) num_columns += dim;
  context->set_output(0, context->Matrix(InferenceContext::kUnknownDim, num_columns));
  return absl::OkStatus();
}

inline absl::Status VectorShapes(InferenceContext* context) {
  for (int output = 0; output < context->num_outputs(); ++output) {
    context->set_output(output, context->Vector(InferenceContext::kUnknownDim));
  }
  return absl::OkStatus();
}

inline absl::Status CompactIdsShapes(InferenceContext* context) {
  TF_RETURN_IF_ERROR(VectorShapes(context));
  context->set_output(0, context->input(0));
  context->set_output(context->num_outputs() - 1, context->input(context->num_inputs() - 1));
  return absl::OkStatus();
}

inline absl::Status SortIdsShapes(InferenceContext* context) {
  TF_RETURN_IF_ERROR(VectorShapes(context));
  context->set_output(0, context->input(0));
  return absl::OkStatus();
}

inline absl::Status MeasuredUpdateShapes(InferenceContext* context) {
  constexpr int64_t kNumSums = 5;
  context->set_output(0, context->Matrix(InferenceContext::kUnknownDim, kNumSums));
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  context->set_output(2, context->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

}  // namespace tpu_estimator_embedding

// Checks the ids of every feature of a step and arranges them for every host. Ids and places are
// those of every feature in every replica, replica by replica.
REGISTER_OP("TpuEmbeddingPrepareIds")
    .Input("ids: id_types")
    .Input("places: place_types")
    .Input("weights: num_weights * float")
    .Input("batch_sizes: int64")
    .Output("row_counts: int64")
    .Output("sizes: num_hosts * int64")
    .Output("host_ids: num_hosts * Tid")
    .Output("row_ends: num_hosts * int32")
    .Output("host_weights: num_hosts * float")
    .Output("scales: num_hosts * float")
    .Output("run_ids: num_hosts * Tid")
    .Output("run_ends: num_hosts * int32")
    .Output("run_rows: num_hosts * int32")
    .Output("run_weights: num_hosts * float")
    .Output("given_counts: int64")
    .Attr("id_types: list({int32, int64}) >= 1")
    .Attr("place_types: list({int32, int64}) >= 0")
    .Attr("num_weights: int >= 0")
    .Attr("placements: list({'one_id_each', 'row_splits', 'coordinates'}) >= 1")
    .Attr("has_weights: list(bool) >= 1")
    .Attr("feature_names: list(string) >= 1")
    .Attr("table_of_feature: list(int) >= 1")
    .Attr("sequence_lengths: list(int) >= 1")
    .Attr("vocabulary_sizes: list(int) >= 1")
    .Attr("combiners: list({'sum', 'mean', 'sqrtn'}) >= 1")
    .Attr("samples_per_unit: list(int) >= 1")
    .Attr("feature_vocabulary_sizes: list(int) >= 1")
    .Attr("log2_shards: list(int) >= 1")
    .Attr("rotations: list(int) >= 1")
    .Attr("row_offsets: list(int) >= 1")
    .Attr("rows_per_shard: list(int) >= 1")
    .Attr("updates_core_by_core: list(bool) >= 1")
    .Attr("partition_strategy: {'div', 'mod'}")
    .Attr("num_hosts: int >= 1")
    .Attr("training: bool")
    .Attr("Tid: {int32, int64}")
    .SetShapeFn(tpu_estimator_embedding::PrepareIdsShapes);

// The common inputs of the ops that look up the prepared ids of a host in its tables.
#define TPU_EMBEDDING_LOOKUP_OP(name)       \
  REGISTER_OP(name)                         \
    .Input("tables: num_tables * resource") \
    .Input("sizes: int64")                  \
    .Input("ids: Tid")                      \
    .Input("row_ends: int32")               \
    .Input("weights: float")                \
    .Input("scales: float")                 \
    .Attr("num_tables: int >= 1")           \
    .Attr("positions: list(int) >= 1")      \
    .Attr("dims: list(int) >= 1")           \
    .Attr("Tid: {int32, int64}")            \
    .SetIsStateful()

TPU_EMBEDDING_LOOKUP_OP("TpuEmbeddingLookUp")
    .Output("activations: num_tables * float")
    .SetShapeFn(tpu_estimator_embedding::LookupShapes);

// Concatenates the activations of all tables.
TPU_EMBEDDING_LOOKUP_OP("TpuEmbeddingFlatLookUp")
    .Output("activations: float")
    .SetShapeFn(tpu_estimator_embedding::VectorShapes);

// Concatenates the activations of all tables along axis 1; they have as many rows.
TPU_EMBEDDING_LOOKUP_OP("TpuEmbeddingJoinedLookUp")
    .Output("activations: float")
    .SetShapeFn(tpu_estimator_embedding::JoinedLookupShapes);

#undef TPU_EMBEDDING_LOOKUP_OP

// Chooses what a host is sent of its prepared ids, for each of its tables: the ids of the rows of
// activations that have one there, so that it returns their sums; or, for tables that may, the
// distinct ids, as one per row, so that it returns rows of the table. It takes the form with fewer
// bytes in both directions. `sent_sizes` has runs for tables in the second form only. `places`,
// which are not sent, are the row of the table's activations that each sum is, or the position
// of each id among the distinct ones. `row_counts` are those of every table of the host in every
// replica; `replica_ends` tell where the sums of each replica end.
REGISTER_OP("TpuEmbeddingCompactIds")
    .Input("sizes: int64")
    .Input("ids: Tid")
    .Input("row_ends: int32")
    .Input("weights: float")
    .Input("scales: float")
    .Input("run_ids: Tid")
    .Input("row_counts: int64")
    .Output("sent_sizes: int64")
    .Output("sent_ids: Tid")
    .Output("sent_row_ends: int32")
    .Output("sent_weights: float")
    .Output("sent_scales: float")
    .Output("places: int32")
    .Output("replica_ends: int64")
    .Attr("may_send_rows: list(bool) >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("Tid: {int32, int64}")
    .SetShapeFn(tpu_estimator_embedding::CompactIdsShapes);

// Sorts the ids of a host into the runs of an update. `sizes` are those of the runs then.
REGISTER_OP("TpuEmbeddingSortIds")
    .Input("sizes: int64")
    .Input("ids: Tid")
    .Input("row_ends: int32")
    .Input("weights: float")
    .Input("scales: float")
    .Input("replica_ends: int64")
    .Output("run_sizes: int64")
    .Output("run_ids: Tid")
    .Output("run_ends: int32")
    .Output("run_rows: int32")
    .Output("run_weights: float")
    .Attr("vocabulary_sizes: list(int) >= 1")
    .Attr("updates_core_by_core: list(bool) >= 1")
    .Attr("partition_strategy: {'div', 'mod'}")
    .Attr("num_hosts: int >= 1")
    .Attr("host: int >= 0")
    .Attr("Tid: {int32, int64}")
    .SetShapeFn(tpu_estimator_embedding::SortIdsShapes);

// Makes the activations from what the hosts sent, in the order of the hosts. `sent_sizes` and
// `places` are those of TpuEmbeddingCompactIds, the others those of the prepared ids.
REGISTER_OP("TpuEmbeddingCombine")
    .Input("sent_sizes: num_hosts * int64")
    .Input("places: num_hosts * int32")
    .Input("values: num_hosts * float")
    .Input("sizes: num_hosts * int64")
    .Input("row_ends: num_hosts * int32")
    .Input("weights: num_hosts * float")
    .Input("scales: num_hosts * float")
    .Output("activations: num_tables * float")
    .Attr("num_hosts: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("num_parts: list(int) >= 1")
    .Attr("dims: list(int) >= 1")
    .SetShapeFn(tpu_estimator_embedding::LookupShapes);

// Makes the gradients of the sums or rows of a host, from those of the activations of its tables.
// `sent_sizes` and `places` are those of TpuEmbeddingCompactIds, the others those of the prepared
// ids.
REGISTER_OP("TpuEmbeddingGatherGradients")
    .Input("gradients: num_tables * float")
    .Input("sent_sizes: int64")
    .Input("places: int32")
    .Input("sizes: int64")
    .Input("run_ends: int32")
    .Input("run_rows: int32")
    .Input("run_weights: float")
    .Input("scales: float")
    .Output("host_gradients: float")
    .Attr("num_tables: int >= 1")
    .SetShapeFn(tpu_estimator_embedding::VectorShapes);

// The common inputs of all ops that update the tables of a host, and their slots, from the
// gradients of activations: a matrix for each table, one vector with those of all tables, or one
// matrix in which `gradient_columns` tells where those of each table begin. Tables may share their
// variables if they update different rows.
#define TPU_EMBEDDING_UPDATE_OP(name)                         \
  REGISTER_OP(name)                                           \
    .Input("tables: num_tables * resource")                   \
    .Input("slots: num_slots * resource")                     \
    .Input("gradients: num_gradients * float")                \
    .Input("learning_rates: float")                           \
    .Input("multipliers: float")                              \
    .Input("step: float")                                     \
    .Input("sizes: int64")                                    \
    .Input("run_ids: Tid")                                    \
    .Input("run_ends: int32")                                 \
    .Input("run_rows: int32")                                 \
    .Input("run_weights: float")                              \
    .Input("scales: float")                                   \
    .Attr("num_tables: int >= 1")                             \
    .Attr("num_slots: int >= 0")                              \
    .Attr("num_gradients: int >= 1")                          \
    .Attr("dims: list(int) >= 1")                             \
    .Attr("gradient_columns: list(int) >= 0 = []")            \
    .Attr("rules: list(string) >= 1")                         \
    .Attr("hyperparameter_names: list(string) >= 0")          \
    .Attr("hyperparameters: list(float) >= 0")                \
    .Attr("slot_names: list(string) >= 0")                    \
    .Attr("limits: list(float) >= 0")                         \
    .Attr("decay_factors: list(float) >= 1")                  \
    .Attr("multiply_decay_by_learning_rate: list(bool) >= 1") \
    .Attr("move_untouched_rows: list(bool) >= 1")             \
    .Attr("Tid: {int32, int64}")

TPU_EMBEDDING_UPDATE_OP("TpuEmbeddingUpdate")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// Updates as the op above does, bit for bit, and marks the rows that it updates. If `measures` is
// true, it outputs for each table the sums of `RowSums` and the number of marked rows, and for each
// run the norm of its row; otherwise the outputs are empty.
TPU_EMBEDDING_UPDATE_OP("TpuEmbeddingMeasuredUpdate")
    .Input("marks: num_tables * resource")
    .Input("measures: bool")
    .Output("sums: double")
    .Output("covered: int64")
    .Output("row_norms: float")
    .SetIsStateful()
    .SetShapeFn(tpu_estimator_embedding::MeasuredUpdateShapes);

#undef TPU_EMBEDDING_UPDATE_OP

#endif  // TPU_ESTIMATOR_EMBEDDING_OP_DEFINITIONS_H_
