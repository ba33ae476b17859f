// SPDX-License-Identifier: Apache-2.0
#include "sort_runs.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "thread_scratch.h"

namespace tpu_estimator_embedding {
namespace {

constexpr int kMaxDigitBits = 11;    // more counters than these leave the cache
constexpr int64_t kFewEntries = 64;  // fewer are not worth counting digits

int NumBits(uint64_t largest) {
  int bits = 1;
  while (bits < 64 && (largest >> bits) != 0) ++bits;
  return bits;
}

// Makes the keys of ids: the id and, behind it, the distance of the core from its home.
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

template <class Id>
int64_t CountBelow(const TableIds<Id>& table, int64_t bound) {
  if (bound == 0) return 0;
  if (bound == table.num_table_rows) return table.num_ids;
  int64_t count = 0;
  for (int64_t i = 0; i < table.num_ids; ++i) count += table.ids[i] < static_cast<Id>(bound);
  return count;
}

// Sorts a range of the ids of a table. An entry is one number, the shorter the faster: its upper
// bits are the key; its lower ones the row of activations, or the position of an id that has a
// weight.
template <class Word, class Id>
class Sorter {
 public:
  Sorter(const TableIds<Id>& table, const Cores& cores, const IdRange& range, int key_bits,
         int place_bits)
      : table_(table),
        keys_(cores),
        range_(range),
        key_bits_(key_bits),
        place_bits_(place_bits),
        first_(CountBelow(table, range.begin)),
        size_(CountBelow(table, range.end) - first_),
        entries_(ThreadScratch<Word>(2 * size_ + 1)),
        rows_(table.weights == nullptr ? nullptr : ThreadScratch<int32_t>(table.num_ids)) {}

  Runs Run() {
    MakeEntries();
    const Word* sorted = Sort();
    const int64_t num_runs = CutIntoRuns(sorted);
    if (rows_ != nullptr) FindRowsAndWeights();
    return {first_, num_runs};
  }

 private:
  void MakeEntries() {
    Keys<Id> keys = keys_;
    const TableIds<Id> table = table_;  // local, so that no store can change it for all GCC knows
    Word* entries = entries_;
    int32_t* rows = rows_;
    const uint64_t begin = range_.begin, size = range_.end - range_.begin;
    int64_t made = 0;  // what is not in the range is made, and overwritten by what follows
    int32_t i = 0;
    for (int64_t row = 0; row < table.num_rows; ++row) {
      keys.StartRow(row);
      for (; i < table.row_ends[row]; ++i) {
        if (rows != nullptr) rows[i] = static_cast<int32_t>(row);
        entries[made] = static_cast<Word>(keys.Key(table.ids[i])) << place_bits_ |
                        static_cast<Word>(rows != nullptr ? i : row);
        made += static_cast<uint64_t>(table.ids[i]) - begin < size;
      }
    }
  }

  // Sorts by key, least significant digit first; returns where the result is. Every pass is
  // stable, and entries are made in order of their places.
  const Word* Sort() {
    Word *from = entries_, *to = from + size_;
    if (size_ < kFewEntries) {
      std::sort(from, to);
      return from;
    }
    const int num_digits = (key_bits_ + kMaxDigitBits - 1) / kMaxDigitBits;
    const int digit_bits = (key_bits_ + num_digits - 1) / num_digits;
    for (int digit = 0; digit < num_digits; ++digit) {
      SortByDigit(from, to, place_bits_ + digit * digit_bits, digit_bits);
      std::swap(from, to);
    }
    return from;
  }

  void SortByDigit(const Word* from, Word* to, int shift, int bits) const {
    const Word mask = (Word{1} << bits) - 1;
    const int64_t size = size_;
    uint32_t ends[1 << kMaxDigitBits];
    std::memset(ends, 0, sizeof(uint32_t) << bits);
    for (int64_t i = 0; i < size; ++i) ++ends[(from[i] >> shift) & mask];
    uint32_t start = 0;
    for (int value = 0; value < (1 << bits); ++value) {
      const uint32_t count = ends[value];
      ends[value] = start;
      start += count;
    }
    for (int64_t i = 0; i < size; ++i) to[ends[(from[i] >> shift) & mask]++] = from[i];
  }

  // Without a branch on whether a run begins, which no processor could foresee.
  int64_t CutIntoRuns(const Word* sorted) const {
    const TableIds<Id> table = table_;
    const Word places = (Word{1} << place_bits_) - 1;
    int64_t run = first_ - 1;
    uint64_t last = std::numeric_limits<uint64_t>::max();
    for (int64_t i = 0; i < size_; ++i) {
      const uint64_t key = static_cast<uint64_t>(sorted[i] >> place_bits_);
      run += key != last;
      last = key;
      table.run_ids[run] = keys_.IdOf(key);
      table.run_ends[run] = static_cast<int32_t>(first_ + i + 1);
      table.run_rows[first_ + i] = static_cast<int32_t>(sorted[i] & places);
    }
    return run + 1 - first_;
  }

  void FindRowsAndWeights() const {
    for (int64_t i = first_; i < first_ + size_; ++i) {
      const int32_t position = table_.run_rows[i];
      table_.run_rows[i] = rows_[position];
      table_.run_weights[i] = table_.weights[position];
    }
  }

  const TableIds<Id>& table_;
  const Keys<Id> keys_;
  const IdRange range_;
  const int key_bits_, place_bits_;
  const int64_t first_, size_;  // where its ids stand among all that are sorted
  Word* const entries_;         // room for two: each pass sorts from one to the other
  int32_t* const rows_;         // of each id, where it has a weight
};

}  // namespace

template <class Id>
Runs SortRuns(const TableIds<Id>& table, const Cores& cores, const IdRange& range) {
  const uint64_t num_keys = static_cast<uint64_t>(table.num_table_rows) * cores.number();
  const int64_t num_places = table.weights == nullptr ? table.num_rows : table.num_ids;
  if (table.num_ids == 0) return {0, 0};
  const int key_bits = NumBits(num_keys - 1), place_bits = NumBits(num_places - 1);
  if (key_bits + place_bits <= 32) {
    return Sorter<uint32_t, Id>(table, cores, range, key_bits, place_bits).Run();
  }
  if (key_bits + place_bits <= 64) {
    return Sorter<uint64_t, Id>(table, cores, range, key_bits, place_bits).Run();
  }
  return Sorter<unsigned __int128, Id>(table, cores, range, key_bits, place_bits).Run();
}

template Runs SortRuns(const TableIds<int32_t>&, const Cores&, const IdRange&);
template Runs SortRuns(const TableIds<int64_t>&, const Cores&, const IdRange&);

}  // namespace tpu_estimator_embedding
