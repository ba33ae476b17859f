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

// Whether row i of the activations has id i and no other.
template <class Id>
bool HasOneIdEach(const TableIds<Id>& table) {
  if (table.num_ids != table.num_rows) return false;
  int32_t differences = 0;  // collected without branches: it takes less than the walk over the rows
  for (int32_t i = 0; i < table.num_rows; ++i) differences |= table.row_ends[i] ^ (i + 1);
  return differences == 0;
}

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

// The digits of keys, for a radix sort that begins with the least significant one. Every pass is
// stable, and entries are created in the order of their places.
class Digits {
 public:
  explicit Digits(int key_bits)
      : number_(Number(key_bits)),
        bits_(Bits(key_bits)),
        positions_(static_cast<size_t>(number_) << bits_, 0) {}

  // The bits of one digit.
  static int Bits(int key_bits) { return (key_bits + Number(key_bits) - 1) / Number(key_bits); }

  int number() const { return number_; }

  // Counts the keys key(0), ..., key(size - 1) by each digit, two digits in a pass over the keys.
  template <class Key>
  void Count(int64_t size, const Key& key) {
    for (int digit = 0; digit < number_; digit += 2) {
      uint32_t* const low = Positions(digit);
      uint32_t* const high = digit + 1 < number_ ? Positions(digit + 1) : nullptr;
      for (int64_t i = 0; i < size; ++i) {
        const uint64_t value = key(i);
        ++low[Value(value, digit)];
        if (high != nullptr) ++high[Value(value, digit + 1)];
      }
    }
    for (int digit = 0; digit < number_; ++digit) ToPositions(Positions(digit));
  }

  // Returns the place of an entry among those sorted by a digit.
  class Places {
   public:
    Places(uint32_t* next, int shift, uint64_t mask) : next_(next), shift_(shift), mask_(mask) {}
    uint32_t operator()(uint64_t key) const { return next_[(key >> shift_) & mask_]++; }

   private:
    uint32_t* const next_;
    const int shift_;
    const uint64_t mask_;
  };
  // For keys that lack their first digits.
  Places places(int digit, int num_missing) {
    const int shift = (digit - num_missing) * bits_;
    return {Positions(digit), shift, (uint64_t{1} << bits_) - 1};
  }

 private:
  static int Number(int key_bits) { return (key_bits + kMaxDigitBits - 1) / kMaxDigitBits; }
  uint32_t* Positions(int digit) { return positions_.data() + (static_cast<size_t>(digit) << bits_); }
  uint64_t Value(uint64_t key, int digit) const {
    return (key >> (digit * bits_)) & ((uint64_t{1} << bits_) - 1);
  }
  void ToPositions(uint32_t* counts) const {
    uint32_t begin = 0;
    for (int value = 0; value < (1 << bits_); ++value) {
      const uint32_t count = counts[value];
      counts[value] = begin;
      begin += count;
    }
  }

  const int number_, bits_;
  std::vector<uint32_t> positions_;
};

// Sorts entries, whose keys may lack their first digits, from the digit `first` on; returns a
// pointer to the result, which is one of both.
template <class Word>
const Word* SortFrom(int first, int num_missing, Word* from, Word* to, int64_t size, int place_bits,
                     Digits* digits) {
  for (int digit = first; digit < digits->number(); ++digit) {
    const Digits::Places place = digits->places(digit, num_missing);
    for (int64_t i = 0; i < size; ++i) {
      to[place(static_cast<uint64_t>(from[i] >> place_bits))] = from[i];
    }
    std::swap(from, to);
  }
  return from;
}

// Splits sorted entries into runs, without an unpredictable branch on the beginning of a run.
// `key_of(entry, place)` is the key of an entry. Returns the number of runs.
template <class Word, class Id, class KeyOf>
int64_t CutIntoRuns(const TableIds<Id> table, const Keys& keys, const Word* sorted, int64_t first,
                    int64_t size, int place_bits, const KeyOf& key_of) {
  const Word places = (Word{1} << place_bits) - 1;
  int64_t run = first - 1;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  for (int64_t i = 0; i < size; ++i) {
    const int32_t place = static_cast<int32_t>(sorted[i] & places);
    const uint64_t key = key_of(sorted[i], place);
    run += key != last;
    last = key;
    table.run_ids[run] = static_cast<Id>(keys.IdOf(key));
    table.run_ends[run] = static_cast<int32_t>(first + i + 1);
    table.run_rows[first + i] = place;
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
  has_one_id_each_ = !is_shared() && cores.number() == 1 && table.weights == nullptr &&
                     table.num_ids >= kFewEntries && HasOneIdEach(table);
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
  const int bits = key_bits_ + place_bits_ - (has_one_id_each_ ? Digits::Bits(key_bits_) : 0);
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
    entries[place(i, key)] = static_cast<Word>(key) << place_bits |
                             static_cast<Word>(rows != nullptr ? i : row);
  });
}

template <class Id>
void RunSorter<Id>::Scatter(int64_t i) {
  int64_t* const next = &counts_[i * num_shares()];
  const uint16_t* const shares = shares_.template as<uint16_t>();
  WithWord([&](auto word) {
    MakeEntries<decltype(word)>(PartBegin(i), PartBegin(i + 1),
                                [=](int64_t id, uint64_t) { return next[shares[id]]++; });
  });
}

template <class Id>
template <class Word>
const Word* RunSorter<Id>::SortRows() {
  const Id* const ids = table_.ids;
  const int64_t size = table_.num_ids;
  Word* const entries = entries_.template as<Word>();
  Digits digits(key_bits_);
  digits.Count(size, [=](int64_t i) { return static_cast<uint64_t>(ids[i]); });
  const Digits::Places place = digits.places(0, 0);
  const int place_bits = place_bits_, digit_bits = Digits::Bits(key_bits_);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t key = static_cast<uint64_t>(ids[i]);
    entries[place(key)] =
        static_cast<Word>(key >> digit_bits) << place_bits | static_cast<Word>(i);
  }
  return SortFrom(1, 1, entries, entries + size, size, place_bits, &digits);
}

template <class Id>
template <class Word>
const Word* RunSorter<Id>::SortEntries(int64_t first, int64_t size) {
  Word* const entries = entries_.template as<Word>() + first;
  Word* const buffer = entries + table_.num_ids;
  const bool keys_are_ids = cores_.number() == 1, is_small = size < kFewEntries;
  if (!is_shared() && (is_small || !keys_are_ids)) {
    MakeEntries<Word>(0, size, [](int64_t id, uint64_t) { return id; });
  }
  if (is_small) {
    std::sort(entries, entries + size);
    return entries;
  }
  Digits digits(key_bits_);
  const int place_bits = place_bits_;
  if (is_shared() || !keys_are_ids) {
    digits.Count(size, [=](int64_t i) { return static_cast<uint64_t>(entries[i] >> place_bits); });
    return SortFrom(0, 0, entries, buffer, size, place_bits, &digits);
  }
  const Id* const ids = table_.ids;
  digits.Count(size, [=](int64_t i) { return static_cast<uint64_t>(ids[i]); });
  // The entries are created in the order of their first digit.
  const Digits::Places place = digits.places(0, 0);
  MakeEntries<Word>(0, size, [=](int64_t, uint64_t key) { return place(key); });
  return SortFrom(1, 0, entries, buffer, size, place_bits, &digits);
}

template <class Id>
void RunSorter<Id>::Sort(int64_t i) {
  if (!is_shared()) AllocateEntries();
  WithWord([&](auto word) {
    using Word = decltype(word);
    const int64_t first = ShareBegin(i), size = share_ends_[i] - first;
    const auto cut = [&](const Word* sorted, const auto& key_of) {
      return CutIntoRuns(table_, Keys(cores_), sorted, first, size, place_bits_, key_of);
    };
    if (has_one_id_each_) {
      const Id* const ids = table_.ids;
      run_counts_[i] = cut(SortRows<Word>(), [=](Word, int32_t row) {
        return static_cast<uint64_t>(ids[row]);
      });
      return;
    }
    const int place_bits = place_bits_;
    run_counts_[i] = cut(SortEntries<Word>(first, size), [=](Word entry, int32_t) {
      return static_cast<uint64_t>(entry >> place_bits);
    });
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
