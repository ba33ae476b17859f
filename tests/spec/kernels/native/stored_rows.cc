// SPDX-License-Identifier: Apache-2.0
// Reads random rows of a table from files, from several threads, and compares them.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "from_threads.h"
#include "stored_table.h"

namespace tpu_estimator_embedding {
namespace {

constexpr int64_t kRows = 1000, kDim = 3, kParts = 7;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Writes the parts of a table in two files, each after some other bytes. Every value of a row is
// its id.
std::vector<StoredPiece> WriteParts(const std::string& directory) {
  std::vector<StoredPiece> pieces;
  std::vector<std::string> contents(2, "12345");
  int64_t first_row = 0;
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t count = (kRows - part + kParts - 1) / kParts;
    std::string& content = contents[part % 2];
    pieces.push_back({first_row, count, nullptr, static_cast<int64_t>(content.size())});
    for (int64_t id = part; id < kRows; id += kParts) {
      const std::vector<float> row(kDim, static_cast<float>(id));
      content.append(reinterpret_cast<const char*>(row.data()), kDim * sizeof(float));
    }
    first_row += count;
  }
  for (int i = 0; i < 2; ++i) {
    const std::string path = directory + "/" + std::to_string(i);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    std::fwrite(contents[i].data(), 1, contents[i].size(), file);
    std::fclose(file);
    std::string problem;
    for (int64_t part = i; part < kParts; part += 2) {
      pieces[part].file = StoredFile::Open(path, &problem);
      if (pieces[part].file == nullptr) Fail(problem);
      if (pieces[part].file != pieces[i].file) Fail("a file was opened twice");
    }
  }
  return pieces;
}

void Compare(StoredTable* table, int64_t first_id, int64_t id_step, int num_threads, int seed) {
  std::mt19937 random(seed);
  for (int step = 0; step < 30; ++step) {
    std::vector<int32_t> rows(random() % 200), places(rows.size());
    for (int32_t& row : rows) row = random() % table->num_rows();
    std::string problem;
    const auto cache = table->Fetch(
        rows.data(), rows.size(), places.data(),
        [&](int64_t count, const auto& work) { FromThreads(num_threads, count, work); }, &problem);
    if (!problem.empty()) Fail(problem);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t column = 0; column < kDim; ++column) {
        const float expected = static_cast<float>(first_id + rows[i] * id_step);
        if (cache->Place(places[i])[column] != expected) Fail("another row was read");
      }
    }
  }
}

void Run(const std::string& directory) {
  const std::vector<StoredPiece> pieces = WriteParts(directory);
  for (const int64_t kept_bytes : {int64_t{0}, int64_t{5000}, int64_t{1} << 20}) {
    StoredTable whole({kRows, 0, 1, kRows, kParts}, kDim, pieces, kept_bytes);
    StoredTable third({kRows / 3, 1, 3, kRows, kParts}, kDim, pieces, kept_bytes);
    FromThreads(3, 6, [&](int64_t i) {
      i % 2 == 0 ? Compare(&whole, 0, 1, 2, i) : Compare(&third, 1, 3, 2, i);
    });
  }
  StoredTable table({kRows, 0, 1, kRows, kParts}, kDim, pieces, 1 << 20);
  if (truncate((directory + "/1").c_str(), 100) != 0) Fail("no truncation");
  std::vector<int32_t> rows = {13, 1}, places(2);  // of part 6, in the other file, and of part 1
  std::string problem;
  table.Fetch(
      rows.data(), 2, places.data(),
      [](int64_t count, const auto& work) { FromThreads(1, count, work); }, &problem);
  std::puts(problem.c_str() + directory.size());
}

}  // namespace
}  // namespace tpu_estimator_embedding

int main(int, char** arguments) { tpu_estimator_embedding::Run(arguments[1]); }
