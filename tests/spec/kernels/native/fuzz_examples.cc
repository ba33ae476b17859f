// SPDX-License-Identifier: Apache-2.0
// Fuzzes serialized Examples. Whatever they hold, they are refused or parsed within their bytes.
#include "whole_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tpu_estimator_embedding;
  ExactCopies copies;
  const std::string_view record = copies.Add(std::string(data, data + size));
  ParseBatch({record, record}, 1, [](int64_t count, const auto& work) {
    for (int64_t i = 0; i < count; ++i) work(i);
  });
  return 0;
}
