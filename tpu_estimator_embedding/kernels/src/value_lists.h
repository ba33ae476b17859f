// SPDX-License-Identifier: Apache-2.0
// The values of a `tf.train.Feature`: a BytesList, FloatList or Int64List.
#ifndef TPU_ESTIMATOR_EMBEDDING_VALUE_LISTS_H_
#define TPU_ESTIMATOR_EMBEDDING_VALUE_LISTS_H_

#include <cstdint>
#include <string_view>

#include "wire_reader.h"

namespace tpu_estimator_embedding {

// The encoded values of a list, of which this is a view.
struct ValueList {
  const char* data = nullptr;  // null: there is no list
  uint32_t size : 31;          // bytes
  uint32_t is_packed : 1;      // whether there are no tags between the values
  uint32_t count = 0;          // values

  ValueList() : size(0), is_packed(0) {}
  std::string_view bytes() const { return {data, size}; }
};

// Each checks a list that starts with its length, counts its values and finds where they are.
// Returns false if it is malformed. Bytes up to `end`, that of the record, may be read.
bool FindStrings(std::string_view serialized, ValueList* list);
bool FindFloats(std::string_view serialized, ValueList* list);
bool FindInt64s(std::string_view serialized, const char* end, ValueList* list);

// Each writes the values of a list that was found in the record that ends at `end`.
void WriteValues(const ValueList& list, const char* end, int64_t* values);
void WriteValues(const ValueList& list, const char* end, float* values);

template <class String>
void WriteValues(const ValueList& list, const char*, String* values) {
  WireReader reader(list.bytes());
  for (uint32_t i = 0; i < list.count; ++i) {
    std::string_view value;
    if (!reader.Expect(kField1) || !reader.ReadBytes(&value)) return;  // it was found complete
    (values++)->assign(value.data(), value.size());
  }
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_VALUE_LISTS_H_
