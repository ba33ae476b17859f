// SPDX-License-Identifier: Apache-2.0
// Reads the wire format of protocol buffers from memory.
//
// Where a message is malformed, this accepts and refuses exactly what TensorFlow's parser of
// Examples does: a length that exceeds what is left means what is left, for instance.
// Source: "Encoding", Protocol Buffers documentation.
#ifndef TPU_ESTIMATOR_EMBEDDING_WIRE_READER_H_
#define TPU_ESTIMATOR_EMBEDDING_WIRE_READER_H_

#include <cstdint>
#include <limits>
#include <string_view>

namespace tpu_estimator_embedding {

// Tags of fields 1 to 3 whose values have a length, and of field 1 otherwise.
constexpr uint8_t kField1 = 0x0a, kField2 = 0x12, kField3 = 0x1a;
constexpr uint8_t kVarintField1 = 0x08, kFixed32Field1 = 0x0d;

constexpr int kMostVarintBytes = 10;

class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : next_(reinterpret_cast<const uint8_t*>(bytes.data())), limit_(next_ + bytes.size()) {}

  bool is_at_limit() const { return next_ == limit_; }
  size_t left() const { return limit_ - next_; }
  const uint8_t* next() const { return next_; }
  void Advance(size_t count) { next_ += count; }

  // Whether the next byte is `tag`, which is then read.
  bool Expect(uint8_t tag) {
    if (next_ == limit_ || *next_ != tag) return false;
    ++next_;
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    const uint8_t* byte = next_;
    uint64_t result = 0;
    for (int i = 0; i < kMostVarintBytes; ++i) {
      if (byte == limit_) return false;
      result |= static_cast<uint64_t>(*byte & 0x7f) << (7 * i);
      if (*byte++ < 0x80) {
        next_ = byte;
        *value = result;
        return true;
      }
    }
    return false;
  }

  bool ReadLength(uint32_t* length) {
    uint64_t value;
    if (!ReadVarint(&value)) return false;
    *length = static_cast<uint32_t>(value);
    return true;
  }

  // Reads a tag in as many bytes as it has; 0 if there is none.
  uint32_t ReadTag() {
    uint32_t tag = 0;
    ReadLength(&tag);
    return tag;
  }

  // Reads a length and that many bytes, of which the result is a view.
  bool ReadBytes(std::string_view* bytes) {
    uint32_t length;
    if (!ReadLength(&length) || length > left()) return false;
    *bytes = std::string_view(reinterpret_cast<const char*>(next_), length);
    next_ += length;
    return true;
  }

  // Reads a length and narrows the limit to it; `limit` is the one to widen to again.
  bool Narrow(const uint8_t** limit) {
    uint32_t length;
    if (!ReadLength(&length)) return false;
    *limit = limit_;
    if (length <= kMostBytes && length < left()) limit_ = next_ + length;
    return true;
  }
  void Widen(const uint8_t* limit) { limit_ = limit; }

  // Skips the value of a field that is not known.
  bool SkipField(uint32_t tag) {
    uint64_t value;
    switch (tag & 7) {
      case 0:
        return ReadVarint(&value);
      case 1:
        return Skip(8);
      case 2:
        return SkipBytes();
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }

 private:
  static constexpr uint32_t kMostBytes = std::numeric_limits<int32_t>::max();

  bool Skip(size_t count) {
    if (count > left()) return false;
    next_ += count;
    return true;
  }

  bool SkipBytes() {
    uint32_t length;
    if (!ReadLength(&length)) return false;
    if (length <= kMostBytes) next_ += length < left() ? length : left();
    return true;
  }

  const uint8_t* next_;
  const uint8_t* limit_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_WIRE_READER_H_
