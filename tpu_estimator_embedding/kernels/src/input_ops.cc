// SPDX-License-Identifier: Apache-2.0
// The ops of input pipelines, in a separate unit: the two units compile at the same time.
#include "parse_examples_definition.h"
#include "parse_examples_op.h"
#include "record_batches_definition.h"
#include "record_batches_op.h"

namespace tpu_estimator_embedding {
namespace {

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingParseExamples").Device(tensorflow::DEVICE_CPU),
                        ParseExamplesOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingRecordBatchesDataset").Device(tensorflow::DEVICE_CPU),
                        RecordBatchesDatasetOp);

}  // namespace
}  // namespace tpu_estimator_embedding
