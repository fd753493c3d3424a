// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_choice.h"

#include <algorithm>
#include <bit>

namespace pushpull {
namespace {

constexpr uint64_t kOneSendBytesMax = 8 << 10;

// An algorithm whose busiest rank sends this many times as much as the least possible is slower,
// wherever sending is what takes the time.
constexpr double kMuchMore = 1.25;

// Divisible among any number of ranks closely enough to compare.
constexpr uint64_t kElementsToCompare = 1 << 20;

uint64_t SentByBusiest(Collective collective, Algorithm algorithm, int ranks) {
  uint64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    most = std::max(most,
                    ElementsSent(MakeSchedule({.collective = collective,
                                               .algorithm = algorithm,
                                               .ranks = ranks,
                                               .rank = rank,
                                               .elements = kElementsToCompare})));
  }
  return most;
}

}  // namespace

Algorithm GuessFor(int ranks, uint64_t num_bytes) {
  if (num_bytes <= kOneSendBytesMax && ranks <= 4) return Algorithm::kHost;
  if (num_bytes > kFewSendsBytesMax) return Algorithm::kRing;
  return std::has_single_bit(static_cast<unsigned>(ranks)) ? Algorithm::kHalvingDoubling
                                                           : Algorithm::kTree;
}

std::vector<Algorithm> CandidatesFor(Collective collective, int ranks, uint64_t num_bytes) {
  const std::vector<Algorithm> all = AllAlgorithms();
  if (num_bytes <= kFewSendsBytesMax) return all;
  std::vector<uint64_t> sent;
  for (const Algorithm algorithm : all) sent.push_back(SentByBusiest(collective, algorithm, ranks));
  const auto least = static_cast<double>(*std::min_element(sent.begin(), sent.end()));
  std::vector<Algorithm> candidates;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<double>(sent[i]) <= kMuchMore * least) candidates.push_back(all[i]);
  }
  return candidates;
}

}  // namespace pushpull
