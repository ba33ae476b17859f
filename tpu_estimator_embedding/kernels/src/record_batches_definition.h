// SPDX-License-Identifier: Apache-2.0
// The dataset op of batches of records.
#ifndef TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_DEFINITION_H_
#define TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_DEFINITION_H_

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

// Reads batches of records from TFRecord files, as TensorFlow's TFRecordDataset and BatchDataset
// do together. A batch continues in the next file. TensorFlow recognizes datasets by the end of
// the op's name.
REGISTER_OP("TpuEmbeddingRecordBatchesDataset")
    .Input("filenames: string")
    .Input("compression_type: string")
    .Input("buffer_size: int64")
    .Input("batch_size: int64")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .SetDoNotOptimize()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

#endif  // TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_DEFINITION_H_
