// SPDX-License-Identifier: Apache-2.0
// Random Examples under a sanitizer, whole, truncated and with changed bytes. Neither the number of
// threads nor the size of blocks may change what is parsed.
#include <cstdio>
#include <random>

#include "from_threads.h"
#include "whole_parse.h"

#include "example_entries.cc"  // NOLINT: the program is compiled alone
#include "parse_block.cc"      // NOLINT
#include "value_lists.cc"      // NOLINT

namespace tpu_estimator_embedding {
namespace {

class Records {
 public:
  explicit Records(uint32_t seed) : engine_(seed) {}

  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(engine_); }

  std::string Example() {
    std::string entries;
    const std::vector<ExampleFeature> features = EveryFeature();
    for (int64_t i = Below(8); i > 0; --i) {
      const ExampleFeature& feature = features[Below(features.size())];
      const int64_t count = feature.is_dense ? 2 : Below(9);
      const std::string list(1, static_cast<char>(feature.type));
      entries += Delimited("\x0a", Delimited("\x0a", feature.key) +
                                       Delimited("\x12", Delimited(list, List(feature, count))));
    }
    return Delimited("\x0a", entries);
  }

  std::string Damaged(std::string record) {
    for (int64_t i = Below(3); i >= 0 && !record.empty(); --i) {
      const int64_t place = Below(record.size());
      if (Below(3) == 0) {
        record.resize(place);
      } else {
        record[place] = static_cast<char>(Below(256));
      }
    }
    return record;
  }

 private:
  std::string Varint(uint64_t value) {
    std::string bytes;
    for (; value > 127; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
    return bytes + static_cast<char>(value);
  }

  std::string Delimited(const std::string& tag, const std::string& bytes) {
    return tag + Varint(bytes.size()) + bytes;
  }

  std::string List(const ExampleFeature& feature, int64_t count) {
    const bool is_packed = feature.type != ValueType::kBytes && Below(3) > 0;
    std::string values;
    for (int64_t i = 0; i < count; ++i) {
      if (feature.type == ValueType::kBytes) {
        values += Delimited("\x0a", std::string(Below(20), 'x'));
      } else if (feature.type == ValueType::kFloat) {
        values += (is_packed ? "" : "\x0d") + std::string(4, static_cast<char>(Below(256)));
      } else {
        values += (is_packed ? "" : "\x08") + Varint(static_cast<uint64_t>(Below(1 << 30)) >> Below(30)
                                                                     << Below(2) * 34);
      }
    }
    return is_packed ? Delimited("\x0a", values) : values;
  }

  std::mt19937 engine_;
};

bool IsSame(const ParsedBatch& first, const ParsedBatch& second) {
  return first.is_valid == second.is_valid && first.ints == second.ints &&
         first.splits == second.splits && first.indices == second.indices &&
         first.strings == second.strings;  // floats may be NaN
}

}  // namespace
}  // namespace tpu_estimator_embedding

int main(int argc, char** argv) {
  using namespace tpu_estimator_embedding;
  const int num_batches = argc > 1 ? std::atoi(argv[1]) : 1000;
  int num_refused = 0;
  for (int number = 0; number < num_batches; ++number) {
    Records random(number);
    ExactCopies copies;
    std::vector<std::string_view> records;
    for (int64_t i = random.Below(20); i >= 0; --i) {
      const std::string record = random.Example();
      records.push_back(copies.Add(random.Below(20) == 0 ? random.Damaged(record) : record));
    }
    const auto alone = [](int64_t count, const auto& work) {
      for (int64_t i = 0; i < count; ++i) work(i);
    };
    const auto shared = [](int64_t count, const auto& work) { FromThreads(3, count, work); };
    const ParsedBatch batch = ParseBatch(records, 1 + random.Below(9), shared);
    num_refused += !batch.is_valid;
    if (!IsSame(batch, ParseBatch(records, 100, alone))) {
      std::fprintf(stderr, "batch %d differs\n", number);
      return 1;
    }
  }
  std::printf("%s\n", num_refused > num_batches / 10 && num_refused < num_batches * 9 / 10
                          ? "refused some" : "refused too many or too few");
  return 0;
}
