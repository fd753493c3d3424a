// SPDX-License-Identifier: Apache-2.0
//
// Which algorithm is the fastest for how many bytes: a guess, or what RaceAlgorithms has measured
// (algorithm_race.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collective/schedule.h"

namespace pushpull {

// The sizes that are measured, in bytes of the whole array.
constexpr std::array<uint64_t, 6> kMeasuredBytes = {
    1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25};

// Thread-compatible.
class AlgorithmTable {
 public:
  // What is taken as long as nothing is measured: host for the smallest arrays, halving-doubling or
  // a tree up to 64 KiB, ring above.
  explicit AlgorithmTable(int ranks);

  Algorithm Choose(Collective collective, uint64_t num_bytes) const;
  void Set(Collective collective, size_t size_index, Algorithm algorithm);

  friend bool operator==(const AlgorithmTable&, const AlgorithmTable&) = default;

 private:
  using Row = std::array<Algorithm, kMeasuredBytes.size()>;

  std::array<Row, 4> rows_{};  // by collective
};

// The algorithm that took the least time; those that are slower than `factor` times it are not
// worth measuring with more bytes. `seconds` has a time for each algorithm of `measured`.
struct Race {
  std::vector<Algorithm> measured;
  std::vector<double> seconds;
};
Algorithm FastestOf(const Race& race);
std::vector<Algorithm> WorthMeasuring(const Race& race, double factor);

}  // namespace pushpull
