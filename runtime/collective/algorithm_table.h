// SPDX-License-Identifier: Apache-2.0
//
// Which algorithm is fastest for how many bytes: a guess, or the measurements of RaceAlgorithms
// (algorithm_race.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collective/schedule.h"

namespace pushpull {

// The sizes that are measured, in bytes of the whole array.
constexpr std::array<uint64_t, 8> kMeasuredBytes = {
    1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};

// Thread-compatible.
class AlgorithmTable {
 public:
  // The choice before anything is measured: host for the smallest arrays of up to 4 ranks,
  // halving-doubling or a tree up to 64 KiB, ring above.
  explicit AlgorithmTable(int ranks);

  Algorithm Choose(Collective collective, uint64_t num_bytes) const;
  void Set(Collective collective, size_t size_index, Algorithm algorithm);

  friend bool operator==(const AlgorithmTable&, const AlgorithmTable&) = default;

 private:
  using Row = std::array<Algorithm, kMeasuredBytes.size()>;

  std::array<Row, 4> rows_{};  // by collective
};

// One measured size. `seconds` has a time for each algorithm in `measured`. FastestOf returns the
// algorithm with the shortest time; one that took more than `factor` times as long is not worth
// measuring with more bytes.
struct Race {
  std::vector<Algorithm> measured;
  std::vector<double> seconds;
};
Algorithm FastestOf(const Race& race);
std::vector<Algorithm> WorthMeasuring(const Race& race, double factor);

}  // namespace pushpull
