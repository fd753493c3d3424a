// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/uneven_steps.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr ContributorsDigest kBoth = 7;
constexpr ContributorsDigest kOne = 8;

Contribution Process(uint32_t worker, uint64_t incarnation) {
  return {.worker = WorkerId{worker}, .incarnation = Incarnation{incarnation}};
}

ContributorsDigest Digest(const std::vector<Contribution>& contributors) {
  return DigestOf(contributors);
}

TEST(ContributorsDigestTest, EverySetOfProcessesHasItsOwn) {
  const std::set<ContributorsDigest> digests = {Digest({}),
                                                Digest({Process(0, 1)}),
                                                Digest({Process(0, 2)}),
                                                Digest({Process(1, 1)}),
                                                Digest({Process(0, 1), Process(1, 1)}),
                                                Digest({Process(0, 1), Process(1, 2)}),
                                                Digest({Process(0, 1), Process(2, 1)})};

  EXPECT_EQ(digests.size(), 7U);
  EXPECT_FALSE(digests.contains(0));
}

// Servers of two builds must agree on it.
TEST(ContributorsDigestTest, TheNumbersStayWhatTheyAre) {
  EXPECT_EQ(Digest({}), 0xcbf29ce484222325);
  EXPECT_EQ(Digest({Process(3, 0x0102030405060708)}), 0x033997d0fd012c46);
}

TEST(ContributorsDigestTest, WeightsDoNotChangeTheDigest) {
  Contribution heavy = Process(0, 1);
  heavy.weight = 64;
  heavy.learning_rate = 0.5;

  EXPECT_EQ(Digest({heavy}), Digest({Process(0, 1)}));
}

TEST(UnevenStepsTest, ChunksWithTheSameContributorsMakeAnEvenStep) {
  UnevenSteps steps;

  EXPECT_FALSE(steps.Compare({Step{1}, kBoth}));
  EXPECT_FALSE(steps.Compare({Step{1}, kBoth}));
  EXPECT_FALSE(steps.Compare({Step{2}, kOne}));
  EXPECT_FALSE(steps.Compare({Step{2}, kOne}));
}

TEST(UnevenStepsTest, AStepIsReportedOnceHoweverManyChunksDiffer) {
  UnevenSteps steps;
  steps.Compare({Step{5}, kBoth});

  EXPECT_TRUE(steps.Compare({Step{5}, kOne}));
  EXPECT_FALSE(steps.Compare({Step{5}, kOne}));
  EXPECT_FALSE(steps.Compare({Step{5}, kOne + 1}));
}

TEST(UnevenStepsTest, TheAnswersOfTwoStepsMayBeMixed) {
  UnevenSteps steps;
  steps.Compare({Step{5}, kBoth});
  steps.Compare({Step{6}, kOne});

  EXPECT_TRUE(steps.Compare({Step{5}, kOne}));
  EXPECT_FALSE(steps.Compare({Step{6}, kOne}));
  EXPECT_TRUE(steps.Compare({Step{6}, kBoth}));
}

TEST(UnevenStepsTest, AChunkWhoseContributorsAreNotKnownIsNotCompared) {
  UnevenSteps steps;

  EXPECT_FALSE(steps.Compare({Step{0}, 0}));
  EXPECT_FALSE(steps.Compare({Step{5}, 0}));
  EXPECT_FALSE(steps.Compare({Step{5}, kBoth}));
  EXPECT_FALSE(steps.Compare({Step{5}, 0}));
  EXPECT_TRUE(steps.Compare({Step{5}, kOne}));
}

TEST(UnevenStepsTest, AStepFarBehindTheOthersIsNotMistakenForAnother) {
  constexpr uint64_t kFar = UnevenSteps::kStepsRemembered;
  UnevenSteps steps;
  steps.Compare({Step{5}, kBoth});
  steps.Compare({Step{5 + kFar}, kOne});

  EXPECT_FALSE(steps.Compare({Step{5}, kOne}));
  EXPECT_FALSE(steps.Compare({Step{5}, kBoth}));
  EXPECT_FALSE(steps.Compare({Step{5 + kFar}, kOne}));
  EXPECT_TRUE(steps.Compare({Step{5 + kFar}, kBoth}));
}

}  // namespace
}  // namespace pushpull
