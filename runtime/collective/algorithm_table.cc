// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_table.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

constexpr uint64_t kOneSendBytesMax = 8 << 10;
constexpr uint64_t kFewSendsBytesMax = 64 << 10;

size_t RowOf(Collective collective) {
  return static_cast<size_t>(collective) - 1;
}

// The measured size that is nearest by ratio.
size_t NearestSize(uint64_t num_bytes) {
  const auto size = static_cast<double>(num_bytes);
  size_t nearest = 0;
  for (size_t i = 1; i < kMeasuredBytes.size(); ++i) {
    const auto below = static_cast<double>(kMeasuredBytes[i - 1]);
    const auto above = static_cast<double>(kMeasuredBytes[i]);
    if (size * size >= below * above) nearest = i;
  }
  return nearest;
}

Algorithm GuessFor(int ranks, uint64_t num_bytes) {
  if (num_bytes <= kOneSendBytesMax && ranks <= 4) return Algorithm::kHost;
  if (num_bytes > kFewSendsBytesMax) return Algorithm::kRing;
  return std::has_single_bit(static_cast<unsigned>(ranks)) ? Algorithm::kHalvingDoubling
                                                           : Algorithm::kTree;
}

}  // namespace

AlgorithmTable::AlgorithmTable(int ranks) {
  for (Row& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = GuessFor(ranks, kMeasuredBytes[i]);
  }
}

Algorithm AlgorithmTable::Choose(Collective collective, uint64_t num_bytes) const {
  return rows_[RowOf(collective)][NearestSize(num_bytes)];
}

void AlgorithmTable::Set(Collective collective, size_t size_index, Algorithm algorithm) {
  rows_[RowOf(collective)][size_index] = algorithm;
}

Algorithm FastestOf(const Race& race) {
  PUSHPULL_CHECK(!race.measured.empty() && race.measured.size() == race.seconds.size());
  const auto least = std::min_element(race.seconds.begin(), race.seconds.end());
  return race.measured[static_cast<size_t>(least - race.seconds.begin())];
}

std::vector<Algorithm> WorthMeasuring(const Race& race, double factor) {
  const double least = *std::min_element(race.seconds.begin(), race.seconds.end());
  std::vector<Algorithm> worth;
  for (size_t i = 0; i < race.measured.size(); ++i) {
    if (race.seconds[i] <= factor * least) worth.push_back(race.measured[i]);
  }
  return worth;
}

}  // namespace pushpull
