// SPDX-License-Identifier: Apache-2.0
// The ops of tables.
#include "combine_op.h"
#include "compact_ids_op.h"
#include "gather_gradients_op.h"
#include "lookup_op.h"
#include "measured_update_op.h"
#include "op_definitions.h"
#include "prepare_ids_op.h"
#include "snapshot_op.h"
#include "sort_ids_op.h"
#include "update_op.h"

namespace tpu_estimator_embedding {
namespace {

#define REGISTER_FOR_IDS(Id)                                                                   \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingPrepareIds").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"), \
      PrepareIdsOp<Id>);                                                                       \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingCompactIds").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"), \
      CompactIdsOp<Id>);                                                                       \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingLookUp").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"),     \
      LookupOp<Id>);                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingFlatLookUp").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"), \
      FlatLookupOp<Id>);                                                                       \
  REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingJoinedLookUp")                                     \
                              .Device(tensorflow::DEVICE_CPU)                                  \
                              .TypeConstraint<Id>("Tid"),                                      \
                          JoinedLookupOp<Id>);                                                 \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingSortIds").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"),    \
      SortIdsOp<Id>);                                                                          \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingUpdate").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"),     \
      UpdateOp<Id>);                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingMeasuredUpdate").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>(    \
          "Tid"),                                                                              \
      MeasuredUpdateOp<Id>);

REGISTER_FOR_IDS(int32_t)
REGISTER_FOR_IDS(int64_t)

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingSnapshot").Device(tensorflow::DEVICE_CPU), SnapshotOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingCombine").Device(tensorflow::DEVICE_CPU), CombineOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingGatherGradients").Device(tensorflow::DEVICE_CPU),
                        GatherGradientsOp);

}  // namespace
}  // namespace tpu_estimator_embedding
