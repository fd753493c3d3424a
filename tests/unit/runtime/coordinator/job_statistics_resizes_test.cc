// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "runtime/coordinator/job_statistics.h"

namespace pushpull {
namespace {

constexpr Duration kReportPeriod = std::chrono::seconds(1);

SteadyTime At(int milliseconds) {
  return SteadyTime(std::chrono::milliseconds(milliseconds));
}

ResizeLog::Totals Totals(std::initializer_list<double> sync_seconds, uint64_t bytes_copied) {
  ResizeLog::Totals totals{.sync_seconds = {}, .bytes_copied = bytes_copied};
  for (const double seconds : sync_seconds) totals.sync_seconds.Add(seconds);
  return totals;
}

TEST(ResizeLogTest, CountsWhatHappenedSinceTheChangeWasAskedFor) {
  ResizeLog log(kReportPeriod);
  log.Begin(At(1000), {.step = Step{7}, .from = 2, .to = 4}, Totals({3.0}, 100));

  log.Update(At(1500), false, Totals({3.0, 0.25}, 130));
  log.Update(At(3000), true, Totals({3.0, 0.25, 0.1}, 150));

  ASSERT_EQ(log.resizes().size(), 1u);
  const ResizeStatus& resize = log.resizes().front();
  EXPECT_EQ(resize.step, Step{7});
  EXPECT_TRUE(resize.is_settled);
  EXPECT_DOUBLE_EQ(resize.seconds, 2);
  EXPECT_NEAR(resize.pause_seconds, 0.25, 0.005);
  EXPECT_EQ(resize.moved_bytes, 50u);
}

TEST(ResizeLogTest, LateReportsCountForAShortTime) {
  ResizeLog log(kReportPeriod);
  log.Begin(At(0), {.from = 2, .to = 4}, {});
  log.Update(At(100), true, Totals({0.1}, 0));

  log.Update(At(2100), true, Totals({0.1, 0.5}, 10));
  const bool is_open_after_two_periods = log.is_open();
  log.Update(At(9000), true, Totals({0.1, 0.5, 5.0}, 90));

  EXPECT_FALSE(is_open_after_two_periods);
  EXPECT_NEAR(log.resizes().front().pause_seconds, 0.5, 0.01);
  EXPECT_EQ(log.resizes().front().moved_bytes, 10u);
  EXPECT_DOUBLE_EQ(log.resizes().front().seconds, 0.1);
}

TEST(ResizeLogTest, ANewChangeEndsTheOneUnderWay) {
  ResizeLog log(kReportPeriod);
  log.Begin(At(0), {.from = 2, .to = 4}, {});
  log.Update(At(500), false, Totals({}, 20));

  log.Begin(At(1000), {.from = 4, .to = 3}, Totals({}, 20));
  log.Update(At(1500), true, Totals({}, 25));

  ASSERT_EQ(log.resizes().size(), 2u);
  EXPECT_FALSE(log.resizes()[0].is_settled);
  EXPECT_EQ(log.resizes()[0].moved_bytes, 20u);
  EXPECT_TRUE(log.resizes()[1].is_settled);
  EXPECT_EQ(log.resizes()[1].moved_bytes, 5u);
}

TEST(ResizeLogTest, KeepsTheNewest) {
  ResizeLog log(kReportPeriod);

  for (uint32_t i = 0; i <= JobStatus::kResizesMax; ++i) log.Begin(At(0), {.to = i}, {});

  EXPECT_EQ(log.resizes().size(), JobStatus::kResizesMax);
  EXPECT_EQ(log.resizes().front().to, 1u);
}

}  // namespace
}  // namespace pushpull
