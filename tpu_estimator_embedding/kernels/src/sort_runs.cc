// SPDX-License-Identifier: Apache-2.0
#include "sort_runs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>

namespace tpu_estimator_embedding {
namespace {

// `place` is the row of activations, or the position of the id where it has a weight to find.
template <class Key>
struct Entry {
  Key key;
  uint32_t place;
};

constexpr int kDigitBits = 11;
constexpr int kMaxDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr int64_t kFewEntries = 64;  // fewer are not worth counting digits

int NumBits(uint64_t largest) {
  int bits = 1;
  while (bits < 64 && (largest >> bits) != 0) ++bits;
  return bits;
}

// Sorts stably by key, least significant digit first; returns where the result is.
template <class Key>
Entry<Key>* Sort(Entry<Key>* entries, Entry<Key>* other, int64_t size, uint64_t largest_key) {
  if (size < kFewEntries) {
    std::stable_sort(entries, entries + size,
                     [](const Entry<Key>& a, const Entry<Key>& b) { return a.key < b.key; });
    return entries;
  }
  const int bits = NumBits(largest_key);
  const int num_digits = (bits + kDigitBits - 1) / kDigitBits;
  const int width = (bits + num_digits - 1) / num_digits;
  const Key mask = (Key{1} << width) - 1;
  uint32_t starts[kMaxDigits][1 << kDigitBits];
  for (int digit = 0; digit < num_digits; ++digit) {
    std::memset(starts[digit], 0, sizeof(uint32_t) << width);
  }
  for (int64_t i = 0; i < size; ++i) {
    for (int digit = 0; digit < num_digits; ++digit) {
      ++starts[digit][(entries[i].key >> (digit * width)) & mask];
    }
  }
  for (int digit = 0; digit < num_digits; ++digit) {
    uint32_t start = 0;
    for (int value = 0; value < (1 << width); ++value) {
      const uint32_t count = starts[digit][value];
      starts[digit][value] = start;
      start += count;
    }
    for (int64_t i = 0; i < size; ++i) {
      other[starts[digit][(entries[i].key >> (digit * width)) & mask]++] = entries[i];
    }
    std::swap(entries, other);
  }
  return entries;
}

// Makes the keys of entries: the id and, behind it, the distance of the core from its home.
template <class Id>
class Keys {
 public:
  explicit Keys(const Cores& cores) : cores_(cores), number_(cores.number()) {}

  void StartRow(int64_t row) {
    while (number_ > 1 && row >= cores_.row_ends[core_]) ++core_;
  }
  uint64_t Key(Id id) const {
    if (number_ == 1) return id;
    const int64_t home = cores_.partition->Id(id, cores_.part) % number_;
    return id * number_ + (core_ - home + number_) % number_;
  }
  Id IdOf(uint64_t key) const { return static_cast<Id>(number_ == 1 ? key : key / number_); }

 private:
  const Cores& cores_;
  const int64_t number_;
  int64_t core_ = 0;
};

// Fills entries, and `rows` with the row of every id where it is not null.
template <class Key, class Id>
void MakeEntries(const TableIds<Id>& table, Keys<Id> keys, Entry<Key>* entries, int32_t* rows) {
  int32_t i = 0;
  for (int64_t row = 0; row < table.num_rows; ++row) {
    keys.StartRow(row);
    for (; i < table.row_ends[row]; ++i) {
      if (rows != nullptr) rows[i] = static_cast<int32_t>(row);
      entries[i] = {static_cast<Key>(keys.Key(table.ids[i])),
                    static_cast<uint32_t>(rows != nullptr ? i : row)};
    }
  }
}

template <class Key, class Id>
int64_t SortByKey(const TableIds<Id>& table, const Keys<Id>& keys, uint64_t largest_key) {
  const int64_t size = table.num_ids;
  std::unique_ptr<Entry<Key>[]> entries(new Entry<Key>[2 * size]);
  std::unique_ptr<int32_t[]> rows(table.weights == nullptr ? nullptr : new int32_t[size]);
  MakeEntries(table, keys, entries.get(), rows.get());
  const Entry<Key>* sorted = Sort(entries.get(), entries.get() + size, size, largest_key);
  int64_t run = -1;
  for (int64_t i = 0; i < size; ++i) {
    if (i == 0 || sorted[i].key != sorted[i - 1].key) {
      table.run_ids[++run] = keys.IdOf(sorted[i].key);
    }
    table.run_ends[run] = static_cast<int32_t>(i + 1);
    const uint32_t place = sorted[i].place;
    table.run_rows[i] = rows == nullptr ? static_cast<int32_t>(place) : rows[place];
    if (rows != nullptr) table.run_weights[i] = table.weights[place];
  }
  return run + 1;
}

}  // namespace

template <class Id>
int64_t SortRuns(const TableIds<Id>& table, const Cores& cores) {
  const uint64_t largest_key = static_cast<uint64_t>(table.num_table_rows) * cores.number() - 1;
  const Keys<Id> keys(cores);
  if (largest_key <= std::numeric_limits<uint32_t>::max()) {
    return SortByKey<uint32_t>(table, keys, largest_key);
  }
  return SortByKey<uint64_t>(table, keys, largest_key);
}

template int64_t SortRuns(const TableIds<int32_t>&, const Cores&);
template int64_t SortRuns(const TableIds<int64_t>&, const Cores&);

}  // namespace tpu_estimator_embedding
