// SPDX-License-Identifier: Apache-2.0
#include "run_sorter.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace tpu_estimator_embedding {
namespace {

constexpr int kMaxDigitBits = 11;    // more counters would not fit into the cache
constexpr int64_t kFewEntries = 64;  // with fewer, a radix sort does not pay off
constexpr int64_t kMostShares = 1 << 16;

// An entry is one integer, as short as possible for speed: its upper bits are the key, its lower
// bits the row of activations, or the position of an id that has a weight.
using WideWord = unsigned __int128;

int NumBits(uint64_t largest) {
  int bits = 1;
  while (bits < 64 && (largest >> bits) != 0) ++bits;
  return bits;
}

// Makes the keys of ids: the id, followed by the distance of the core from the row's home core.
class Keys {
 public:
  explicit Keys(const Cores& cores) : cores_(cores), number_(cores.number()) {}

  void StartRow(int64_t row) {
    while (number_ > 1 && row >= cores_.row_ends[core_]) ++core_;
  }
  uint64_t Key(int64_t id) const {
    if (number_ == 1) return id;
    const int64_t home = cores_.partition->Id(id, cores_.part) % number_;
    return id * number_ + (core_ - home + number_) % number_;
  }
  int64_t IdOf(uint64_t key) const { return number_ == 1 ? key : key / number_; }

 private:
  const Cores& cores_;
  const int64_t number_;
  int64_t core_ = 0;
};

// Returns the last ids of all shares except the last: quantiles of a sample of the ids, taken at
// regular distances.
template <class Id>
std::vector<int64_t> LastIds(const TableIds<Id>& table, int64_t most) {
  constexpr int64_t kSamples = 32;  // for each share
  std::vector<int64_t> last_ids, samples;
  const int64_t distance = table.num_ids / (most * kSamples) + 1;
  for (int64_t i = 0; most > 1 && i < table.num_ids; i += distance) {
    samples.push_back(table.ids[i]);
  }
  std::sort(samples.begin(), samples.end());
  const int64_t size = samples.size();
  for (int64_t i = 1; size > 0 && i < most; ++i) last_ids.push_back(samples[size * i / most]);
  last_ids.erase(std::unique(last_ids.begin(), last_ids.end()), last_ids.end());
  if (!last_ids.empty() && last_ids.back() == table.num_table_rows - 1) last_ids.pop_back();
  return last_ids;
}

// The number of bounds below an id, without unpredictable branches.
class Bounds {
 public:
  explicit Bounds(const std::vector<int64_t>& bounds) : bounds_(bounds) {
    size_t size = 1;
    while (size <= bounds.size()) size *= 2;
    bounds_.resize(size - 1, std::numeric_limits<int64_t>::max());
  }

  int64_t CountBelow(int64_t id) const {
    int64_t count = 0;
    for (int64_t half = (bounds_.size() + 1) / 2; half > 0; half /= 2) {
      count += bounds_[count + half - 1] < id ? half : 0;
    }
    return count;
  }

 private:
  std::vector<int64_t> bounds_;
};

// Calls visit(i, row, key) for the ids from `begin` to `end`.
template <class Id, class Visit>
void ForEachKey(const TableIds<Id> table, const Cores& cores, int64_t begin, int64_t end,
                const Visit& visit) {
  Keys keys(cores);
  const int32_t* row_end = std::upper_bound(table.row_ends, table.row_ends + table.num_rows,
                                            static_cast<int32_t>(begin));
  for (int64_t i = begin, row = row_end - table.row_ends; i < end; ++row) {
    keys.StartRow(row);
    const int64_t last = std::min<int64_t>(table.row_ends[row], end);
    for (; i < last; ++i) visit(i, row, keys.Key(table.ids[i]));
  }
}

template <class Word>
class EntrySorter {
 public:
  EntrySorter(Word* entries, Word* buffer, int64_t size, int key_bits, int place_bits)
      : from_(entries), to_(buffer), size_(size), key_bits_(key_bits), place_bits_(place_bits) {}

  // Sorts by key, least significant digit first; returns a pointer to the result. Every pass is
  // stable, and entries are created in the order of their places.
  const Word* Sort() {
    if (size_ < kFewEntries) {
      std::sort(from_, from_ + size_);
      return from_;
    }
    const int num_digits = (key_bits_ + kMaxDigitBits - 1) / kMaxDigitBits;
    const int digit_bits = (key_bits_ + num_digits - 1) / num_digits;
    for (int digit = 0; digit < num_digits; ++digit) {
      SortByDigit(from_, to_, place_bits_ + digit * digit_bits, digit_bits);
      std::swap(from_, to_);
    }
    return from_;
  }

 private:
  void SortByDigit(const Word* from, Word* to, int shift, int bits) const {
    const Word mask = (Word{1} << bits) - 1;
    const int64_t size = size_;
    std::array<uint32_t, 1 << kMaxDigitBits> ends{};
    for (int64_t i = 0; i < size; ++i) ++ends[(from[i] >> shift) & mask];
    uint32_t start = 0;
    for (int value = 0; value < (1 << bits); ++value) {
      const uint32_t count = ends[value];
      ends[value] = start;
      start += count;
    }
    for (int64_t i = 0; i < size; ++i) to[ends[(from[i] >> shift) & mask]++] = from[i];
  }

  Word *from_, *to_;
  const int64_t size_;
  const int key_bits_, place_bits_;
};

// Splits sorted entries into runs, without an unpredictable branch on the beginning of a run.
// Returns the number of runs.
template <class Word, class Id>
int64_t CutIntoRuns(const TableIds<Id> table, const Keys& keys, const Word* sorted, int64_t first,
                    int64_t size, int place_bits) {
  const Word places = (Word{1} << place_bits) - 1;
  int64_t run = first - 1;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t key = static_cast<uint64_t>(sorted[i] >> place_bits);
    run += key != last;
    last = key;
    table.run_ids[run] = static_cast<Id>(keys.IdOf(key));
    table.run_ends[run] = static_cast<int32_t>(first + i + 1);
    table.run_rows[first + i] = static_cast<int32_t>(sorted[i] & places);
  }
  return run + 1 - first;
}

// Turns the positions of ids into their rows of activations and their weights.
template <class Id>
void FindRowsAndWeights(const TableIds<Id>& table, const int32_t* rows, int64_t first,
                        int64_t size) {
  for (int64_t i = first; i < first + size; ++i) {
    const int32_t position = table.run_rows[i];
    table.run_rows[i] = rows[position];
    table.run_weights[i] = table.weights[position];
  }
}

}  // namespace

template <class Id>
RunSorter<Id>::RunSorter(const TableIds<Id>& table, const Cores& cores, int64_t most,
                         ScratchPool* scratch)
    : table_(table),
      cores_(cores),
      scratch_(scratch),
      last_ids_(LastIds(table, std::min(most, kMostShares))),
      run_counts_(num_shares()) {
  const uint64_t num_keys = static_cast<uint64_t>(table.num_table_rows) * cores.number();
  const int64_t num_places = table.weights == nullptr ? table.num_rows : table.num_ids;
  key_bits_ = NumBits(num_keys - 1);
  place_bits_ = NumBits(std::max<int64_t>(num_places, 1) - 1);
  if (is_shared()) {
    counts_.resize(num_shares() * num_shares());
    shares_ = scratch_->Take(table.num_ids * sizeof(uint16_t));
  } else {
    share_ends_ = {table.num_ids};
  }
}

template <class Id>
void RunSorter<Id>::Count(int64_t i) {
  const Bounds bounds(last_ids_);
  int64_t* counts = &counts_[i * num_shares()];
  uint16_t* shares = shares_.template as<uint16_t>();
  const int64_t end = PartBegin(i + 1);
  for (int64_t k = PartBegin(i); k < end; ++k) {
    const int64_t share = bounds.CountBelow(table_.ids[k]);
    shares[k] = static_cast<uint16_t>(share);
    ++counts[share];
  }
}

template <class Id>
void RunSorter<Id>::ComputeRanges() {
  share_ends_.reserve(num_shares());
  int64_t end = 0;
  for (int64_t share = 0; share < num_shares(); ++share) {
    for (int64_t part = 0; part < num_shares(); ++part) {
      int64_t& next = counts_[part * num_shares() + share];
      const int64_t count = next;
      next = end;
      end += count;
    }
    share_ends_.push_back(end);
  }
  AllocateEntries();
}

template <class Id>
void RunSorter<Id>::AllocateEntries() {
  const int64_t num_bytes = WithWord([](auto word) { return static_cast<int64_t>(sizeof(word)); });
  entries_ = scratch_->Take(2 * table_.num_ids * num_bytes);
  if (table_.weights != nullptr) rows_ = scratch_->Take(table_.num_ids * sizeof(int32_t));
}

template <class Id>
template <class Work>
auto RunSorter<Id>::WithWord(const Work& work) const {
  const int bits = key_bits_ + place_bits_;
  if (bits <= 32) return work(uint32_t{});
  return bits <= 64 ? work(uint64_t{}) : work(WideWord{});
}

template <class Id>
template <class Word, class Place>
void RunSorter<Id>::MakeEntries(int64_t begin, int64_t end, const Place& place) {
  Word* const entries = entries_.template as<Word>();
  int32_t* const rows = rows_.template as<int32_t>();
  const int place_bits = place_bits_;
  ForEachKey(table_, cores_, begin, end, [=](int64_t i, int64_t row, uint64_t key) {
    if (rows != nullptr) rows[i] = static_cast<int32_t>(row);
    entries[place(i)] = static_cast<Word>(key) << place_bits |
                        static_cast<Word>(rows != nullptr ? i : row);
  });
}

template <class Id>
void RunSorter<Id>::Scatter(int64_t i) {
  int64_t* const next = &counts_[i * num_shares()];
  const uint16_t* const shares = shares_.template as<uint16_t>();
  WithWord([&](auto word) {
    MakeEntries<decltype(word)>(PartBegin(i), PartBegin(i + 1),
                                [=](int64_t id) { return next[shares[id]]++; });
  });
}

template <class Id>
void RunSorter<Id>::Sort(int64_t i) {
  if (!is_shared()) AllocateEntries();
  WithWord([&](auto word) {
    using Word = decltype(word);
    if (!is_shared()) MakeEntries<Word>(0, table_.num_ids, [](int64_t id) { return id; });
    const int64_t first = ShareBegin(i), size = share_ends_[i] - first;
    Word* const entries = entries_.template as<Word>() + first;
    EntrySorter<Word> sorter(entries, entries + table_.num_ids, size, key_bits_, place_bits_);
    run_counts_[i] =
        CutIntoRuns(table_, Keys(cores_), sorter.Sort(), first, size, place_bits_);
    if (table_.weights != nullptr) {
      FindRowsAndWeights(table_, rows_.template as<int32_t>(), first, size);
    }
  });
  if (is_shared()) return;
  entries_ = {};  // the next table reuses this memory, still in the cache
  rows_ = {};
}

template <class Id>
int64_t RunSorter<Id>::num_runs() const {
  return std::accumulate(run_counts_.begin(), run_counts_.end(), int64_t{0});
}

template <class Id>
void RunSorter<Id>::CopyRuns(int64_t i, Id* run_ids, int32_t* run_ends) const {
  const int64_t to = std::accumulate(run_counts_.begin(), run_counts_.begin() + i, int64_t{0});
  std::copy_n(table_.run_ids + ShareBegin(i), run_counts_[i], run_ids + to);
  std::copy_n(table_.run_ends + ShareBegin(i), run_counts_[i], run_ends + to);
}

template class RunSorter<int32_t>;
template class RunSorter<int64_t>;

}  // namespace tpu_estimator_embedding
