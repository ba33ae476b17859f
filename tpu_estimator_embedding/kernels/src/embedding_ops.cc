// SPDX-License-Identifier: Apache-2.0
// The one unit that includes TensorFlow.
#include "look_up_op.h"
#include "measured_update_op.h"
#include "op_definitions.h"
#include "prepare_ids_op.h"
#include "snapshot_op.h"
#include "update_op.h"

namespace tpu_estimator_embedding {
namespace {

#define REGISTER_FOR_IDS(Id)                                                                   \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingPrepareIds").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"), \
      PrepareIdsOp<Id>);                                                                       \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("TpuEmbeddingLookUp").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"),     \
      LookUpOp<Id>);                                                                           \
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

}  // namespace
}  // namespace tpu_estimator_embedding
