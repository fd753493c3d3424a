// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(AlgorithmChoiceTest, TheGuessForLargeArraysIsARing) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    EXPECT_EQ(GuessFor(ranks, 64 << 20), Algorithm::kRing);
    EXPECT_NE(GuessFor(ranks, 4), Algorithm::kRing);
  }
}

TEST(AlgorithmChoiceTest, EveryAlgorithmIsWorthMeasuringWithFewBytes) {
  EXPECT_EQ(CandidatesFor(Collective::kAllReduce, 8, kFewSendsBytesMax), AllAlgorithms());
}

TEST(AlgorithmChoiceTest, WithManyBytesThoseThatSendMuchMoreAreNot) {
  using testing::ElementsAre;
  constexpr uint64_t kMany = kFewSendsBytesMax + 1;

  EXPECT_THAT(CandidatesFor(Collective::kAllReduce, 4, kMany),
              ElementsAre(Algorithm::kRing,
                          Algorithm::kBidirectionalRing,
                          Algorithm::kHalvingDoubling,
                          Algorithm::kSplit));
  // Three is no power of two.
  EXPECT_THAT(CandidatesFor(Collective::kAllReduce, 3, kMany),
              ElementsAre(Algorithm::kRing, Algorithm::kBidirectionalRing, Algorithm::kSplit));
  // Between two ranks all send the same.
  EXPECT_EQ(CandidatesFor(Collective::kAllReduce, 2, kMany), AllAlgorithms());
}

}  // namespace
}  // namespace pushpull
