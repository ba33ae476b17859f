// SPDX-License-Identifier: Apache-2.0
#include "value_lists.h"

#include <cstring>

#include "packed_varints.h"

namespace tpu_estimator_embedding {
namespace {

constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();

// The rest of what the reader reads, of values that are still to be counted.
ValueList RestOf(const WireReader& reader, bool is_packed) {
  ValueList list;
  list.data = reinterpret_cast<const char*>(reader.next());
  list.size = reader.left();
  list.is_packed = is_packed;
  return list;
}

bool Narrow(WireReader* reader) {
  const uint8_t* limit;
  return reader->Narrow(&limit) && reader->left() <= kMostBytes;
}

// Counts the values between which there are tags, each of which `read` reads.
template <class Read>
bool CountTagged(WireReader reader, const Read& read, ValueList* list) {
  *list = RestOf(reader, false);
  for (; !reader.is_at_limit(); ++list->count) {
    if (!read(&reader)) return false;
  }
  return true;
}

bool ReadTagged(WireReader* reader, uint64_t* value) {
  return reader->Expect(kVarintField1) && reader->ReadVarint(value);
}

bool ReadTagged(WireReader* reader, float* value) {
  if (!reader->Expect(kFixed32Field1) || reader->left() < sizeof *value) return false;
  std::memcpy(value, reader->next(), sizeof *value);
  reader->Advance(sizeof *value);
  return true;
}

}  // namespace

bool FindStrings(std::string_view serialized, ValueList* list) {
  WireReader reader(serialized);
  const auto read = [](WireReader* rest) {
    std::string_view value;
    return rest->Expect(kField1) && rest->ReadBytes(&value);
  };
  return Narrow(&reader) && CountTagged(reader, read, list);
}

bool FindFloats(std::string_view serialized, ValueList* list) {
  WireReader reader(serialized);
  if (!Narrow(&reader)) return false;
  if (reader.is_at_limit() || !reader.Expect(kField1)) {
    float value;
    return CountTagged(reader, [&](WireReader* rest) { return ReadTagged(rest, &value); }, list);
  }
  uint32_t size;
  if (!reader.ReadLength(&size)) return false;
  *list = RestOf(reader, true);
  list->count = size / sizeof(float);  // bytes that are no whole value are ignored
  return list->count * sizeof(float) <= reader.left();
}

bool FindInt64s(std::string_view serialized, const char* end, ValueList* list) {
  WireReader reader(serialized);
  if (!Narrow(&reader)) return false;
  if (reader.is_at_limit() || !reader.Expect(kField1)) {
    uint64_t value;
    return CountTagged(reader, [&](WireReader* rest) { return ReadTagged(rest, &value); }, list);
  }
  if (!Narrow(&reader)) return false;  // what follows the packed values is ignored
  *list = RestOf(reader, true);
  const int64_t count =
      CountVarints(reader.next(), reader.left(), reinterpret_cast<const uint8_t*>(end));
  list->count = count < 0 ? 0 : count;
  return count >= 0;
}

void WriteValues(const ValueList& list, const char* end, int64_t* values) {
  if (list.is_packed) {
    DecodeVarints(reinterpret_cast<const uint8_t*>(list.data),
                  reinterpret_cast<const uint8_t*>(end), list.count, values);
    return;
  }
  WireReader reader(list.bytes());
  uint64_t value;
  while (ReadTagged(&reader, &value)) *values++ = static_cast<int64_t>(value);
}

void WriteValues(const ValueList& list, const char*, float* values) {
  if (list.is_packed) {
    std::memcpy(values, list.data, list.count * sizeof(float));
    return;
  }
  WireReader reader(list.bytes());
  float value;
  while (ReadTagged(&reader, &value)) *values++ = value;
}

}  // namespace tpu_estimator_embedding
