// SPDX-License-Identifier: Apache-2.0
// The op of input pipelines, in a unit of its own: the two units compile at the same time.
#include "parse_examples_definition.h"
#include "parse_examples_op.h"

namespace tpu_estimator_embedding {
namespace {

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingParseExamples").Device(tensorflow::DEVICE_CPU),
                        ParseExamplesOp);

}  // namespace
}  // namespace tpu_estimator_embedding
