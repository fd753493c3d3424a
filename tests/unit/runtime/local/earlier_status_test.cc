// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/earlier_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;

JobStatus Uneven(uint64_t count, std::vector<Step> newest) {
  JobStatus status;
  status.uneven_steps = count;
  status.newest_uneven_steps = std::move(newest);
  return status;
}

TEST(EarlierStatusTest, UnevenStepsReportedTwiceCountOnce) {
  const JobStatus earlier = Uneven(3, {Step{2}, Step{5}, Step{9}});

  const JobStatus all = WithEarlier(earlier, Uneven(3, {Step{5}, Step{9}, Step{12}}));

  EXPECT_EQ(all.uneven_steps, 4U);
  EXPECT_THAT(all.newest_uneven_steps, ElementsAre(Step{2}, Step{5}, Step{9}, Step{12}));
}

TEST(EarlierStatusTest, UnevenStepsThatNobodySaysAnyMoreAreKept) {
  EXPECT_EQ(WithEarlier(Uneven(2, {Step{2}, Step{5}}), Uneven(0, {})).uneven_steps, 2U);
  EXPECT_EQ(WithEarlier(Uneven(0, {}), Uneven(1, {Step{5}})).uneven_steps, 1U);
}

TEST(EarlierStatusTest, AnOldUnlistedUnevenStepIsNotCountedAgain) {
  JobStatus earlier = Uneven(300, {});
  for (uint64_t i = 0; i < JobStatus::kUnevenStepsMax; ++i)
    earlier.newest_uneven_steps.emplace_back(100 + i);

  const JobStatus all = WithEarlier(earlier, Uneven(2, {Step{99}, Step{1000}}));

  EXPECT_EQ(all.uneven_steps, 301U);
  EXPECT_EQ(all.newest_uneven_steps.size(), JobStatus::kUnevenStepsMax);
  EXPECT_EQ(all.newest_uneven_steps.back(), Step{1000});
}

}  // namespace
}  // namespace pushpull
