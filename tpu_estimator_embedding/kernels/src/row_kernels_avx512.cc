// SPDX-License-Identifier: Apache-2.0
#include "lookup_rows.h"
#include "measure_rows.h"
#include "row_kernels.h"
#include "update_rows.h"

namespace tpu_estimator_embedding {

const RowKernels kAvx512Kernels = {"avx512", &LookupRows<int32_t>, &LookupRows<int64_t>,
                                   &UpdateRows<int32_t>, &UpdateRows<int64_t>,
                                 &MeasureRows<int32_t>, &MeasureRows<int64_t>};

}  // namespace tpu_estimator_embedding
