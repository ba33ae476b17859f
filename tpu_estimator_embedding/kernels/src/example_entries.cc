// SPDX-License-Identifier: Apache-2.0
#include "example_entries.h"

#include "wire_reader.h"

namespace tpu_estimator_embedding {
namespace {

// An entry has exactly two fields, in any order.
bool ReadEntry(WireReader* reader, ExampleEntry* entry) {
  const uint8_t* limit;
  if (!reader->Narrow(&limit)) return false;
  for (int field = 0; field < 2; ++field) {
    const uint32_t tag = reader->ReadTag();
    if (tag != kField1 && tag != kField2) return false;
    if (!reader->ReadBytes(tag == kField1 ? &entry->key : &entry->value)) return false;
  }
  if (!reader->is_at_limit()) return false;
  reader->Widen(limit);
  return true;
}

bool ReadFeatures(WireReader* reader, std::vector<ExampleEntry>* entries) {
  const uint8_t* limit;
  if (!reader->Narrow(&limit)) return false;
  while (!reader->is_at_limit()) {
    entries->emplace_back();
    if (!reader->Expect(kField1) || !ReadEntry(reader, &entries->back())) return false;
  }
  reader->Widen(limit);
  return true;
}

}  // namespace

bool ReadEntries(std::string_view record, std::vector<ExampleEntry>* entries) {
  WireReader reader(record);
  while (!reader.is_at_limit()) {
    if (reader.Expect(kField1) ? !ReadFeatures(&reader, entries)
                               : !reader.SkipField(reader.ReadTag())) {
      return false;
    }
  }
  return true;
}

}  // namespace tpu_estimator_embedding
